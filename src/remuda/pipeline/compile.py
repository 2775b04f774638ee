"""Compiles the text of a pipeline file to a `Pipeline`, and reads its top-level keywords.

The steps: merge all files into one tree (`include.includes`), resolve templates and references (`syntax.extends`),
decide whether there is a pipeline (`keywords.workflow`), read each job (`keywords.job`), check jobs against each other
(`job_checks`), decide which jobs are in the pipeline (`job_list`). The same arguments always give the same result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remuda.pipeline.errors import Place, Report
from remuda.pipeline.facts import Facts
from remuda.pipeline.include.includes import Loader, Origin, SourceFile
from remuda.pipeline.include.port import MemorySources, Sources
from remuda.pipeline.job_checks import Budget, check_jobs
from remuda.pipeline.job_list import Part, connect_jobs, select_jobs
from remuda.pipeline.keywords.default import Shared, read_shared
from remuda.pipeline.keywords.job import Draft, JobContext, read_job, without_jobs
from remuda.pipeline.keywords.needs import is_status_mirror
from remuda.pipeline.keywords.variables import Variables, read_variables
from remuda.pipeline.keywords.workflow import Workflow, judge_workflow, read_workflow
from remuda.pipeline.rules.clauses import Judge
from remuda.pipeline.rules.regex import TooCostlyError
from remuda.pipeline.spec import LeftOut, Pipeline
from remuda.pipeline.syntax.extends import dereference, extend
from remuda.pipeline.syntax.known_keys import DEFAULT, JOB, TOP, VARIABLE, nearest
from remuda.pipeline.syntax.tree import Entry, Merger, Opaque, Scalar, Table, node_of
from remuda.pipeline.syntax.typed_values import (
    is_null,
    is_text,
    mistyped,
    read_strings,
    read_table,
    report_key,
    report_name,
)

MAX_STAGES = 500
MAX_DEFINITIONS = 200

_FIRST_STAGE, _LAST_STAGE = ".pre", ".post"
_OUTER = (_FIRST_STAGE, _LAST_STAGE)
_DEFAULT_STAGES = ("build", "test", "deploy")


def compile_pipeline(
    text: str,
    *,
    file: str = ".gitlab-ci.yml",
    facts: Facts | None = None,
    sources: Sources | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> Pipeline:
    """Compile the text of a pipeline file. Raises `PipelineError` with all mistakes in it. `file`: its name in
    messages. `facts`: ref, event, variables and files for which rules are evaluated; the default is a push to `main`.
    `sources` provides included files; by default nothing can be included. `inputs`: values for `spec:inputs`."""
    report = Report(file)
    try:
        return _compile(report, text, facts or Facts(), sources or MemorySources(), inputs or {})
    except TooCostlyError:
        report.stop(Place(), "", "the regular expressions take too long to evaluate", "use simpler or fewer ones")


class _StepDefinitions:
    """Reads the definitions of steps in the repository, each once and at most `MAX_DEFINITIONS`."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._texts: dict[str, str | None] = {}

    def read(self, path: str) -> str | None:
        if path not in self._texts and len(self._texts) < MAX_DEFINITIONS:
            self._texts[path] = self._sources.step_definition(path)
        return self._texts.get(path)


def _compile(report: Report, text: str, facts: Facts, sources: Sources, inputs: Mapping[str, Any]) -> Pipeline:
    judge = Judge(report, facts, sources)
    root = read_tree(report, judge, text, sources, inputs)
    keywords, jobs = _sort(report, root)
    stages = _stages(report, keywords.get("stages"))
    variables = Variables()
    if "variables" in keywords:
        variables = read_variables(report, keywords["variables"].value, "variables", VARIABLE)
    workflow = read_workflow(report, judge, keywords["workflow"].value) if "workflow" in keywords else Workflow()
    outcome = judge_workflow(report, judge, workflow, variables)
    context = JobContext(
        default=_default(report, judge, keywords),
        stages={stage: index for index, stage in enumerate(stages)},
        variables=outcome.variables,
        read_file=_StepDefinitions(sources).read,
    )
    drafts: list[Draft] = []
    budget = Budget(report)
    mirrors = {entry.key.text: entry for entry in jobs if is_status_mirror(entry.value)}
    for name, entry in mirrors.items():
        message = "the job is left out: the status of another project's pipeline is not mirrored"
        report.warn(entry.key, name, message)
    for entry in jobs:
        if entry.key.text not in mirrors:
            draft = read_job(report, judge, entry, context)
            drafts.append(without_jobs(report, draft, mirrors) if mirrors else draft)
            budget.take(drafts[-1])
    if not mirrors:
        _check_any(report, drafts)
    check_jobs(report, drafts, budget)
    report.finish()
    parts: list[Part] = []
    left_out: list[LeftOut] = []
    skipped = outcome.skipped
    if skipped is None:
        parts, left_out = select_jobs(report, judge, drafts, workflow_rules=workflow.rules is not None)
        if all(part.spec.stage in _OUTER for part in parts):
            outer = f"only jobs in {_FIRST_STAGE} and {_LAST_STAGE} are left"
            nothing = "the rules of the jobs leave no job" if drafts else "all jobs only mirror other pipelines"
            skipped, parts = outer if parts else nothing, []
    return Pipeline(
        stages=stages,
        variables=outcome.variables.values,
        raw_variables=tuple(sorted(outcome.variables.raw)),
        jobs=connect_jobs(report, parts, facts.needs_limit),
        name=outcome.name,
        cancel_on_new_commit=outcome.auto_cancel.on_new_commit or "conservative",
        cancel_on_job_failure=outcome.auto_cancel.on_job_failure or "none",
        skipped=skipped,
        left_out=tuple(left_out),
        warnings=report.warnings(),
    )


def read_tree(report: Report, judge: Judge, text: str, sources: Sources, inputs: Mapping[str, Any]) -> Table:
    """Parse the file and its includes into one tree, with `extends` and `!reference` resolved. Mistakes are added to
    `report`. Raises `PipelineError` at once only for a mistake after which the rest cannot be checked."""
    place = Place()
    merger = Merger(report)
    loader = Loader(report, judge, sources, merger)
    arguments = {
        name: Entry(key=Scalar(text=name, kind="text", line=1, column=1), value=node_of(value, place))
        for name, value in inputs.items()
    }
    root = loader.load(SourceFile(text=text, file="", origin=Origin()), arguments, at=place, path="inputs")
    if root is None:
        raise report.error()
    if loader.has_failed:
        report.hide_consequences()
    return dereference(report, extend(report, root, merger))


def _sort(report: Report, root: Table) -> tuple[dict[str, Entry], list[Entry]]:
    """Split the top-level keys into keywords by name, and jobs; leave out templates (`.name`). Reports invalid keys."""
    keywords: dict[str, Entry] = {}
    jobs: list[Entry] = []
    for name, entry in root.entries.items():
        if not is_text(entry.key):
            report_name(report, entry.key, "", "the name of a job")
        elif name in TOP.works:
            if _is_job_named_like_keyword(entry):
                message = f'"{name}" is a keyword, so it cannot be the name of a job'
                report.add(entry.key, name, message, "rename the job")
            elif not is_null(entry.value):
                keywords[name] = entry
        elif name == "spec":
            report.add(entry.key, name, '"spec" must be in a header of its own', 'put a line "---" after it')
        elif _is_misspelt(entry):
            report_key(report, entry.key, "", TOP)
        elif not name:
            report.add(entry.key, "", "the name of a job must not be empty", "give it a name")
        elif isinstance(entry.value, Table):
            if not name.startswith("."):
                jobs.append(entry)
        elif not name.startswith("."):
            suggestion = 'give it a "script"' if is_null(entry.value) else ""
            mistyped(report, entry.value, name, "a map, as every job is", suggestion)
    return keywords, jobs


def _is_job_named_like_keyword(entry: Entry) -> bool:
    """True if a keyword of the top level has the keys of a job. `variables` may have any keys."""
    value = entry.value
    is_job = isinstance(value, Table) and any(key in value.entries for key in ("script", "run", "trigger"))
    return is_job and entry.key.text not in ("default", "variables")


def _is_misspelt(entry: Entry) -> bool:
    """True if a top-level key looks like a misspelt keyword rather than a job."""
    name, value = entry.key.text, entry.value
    if name.startswith(".") or isinstance(value, Opaque):
        return False
    if isinstance(value, Table) and any(key in JOB.works or key in JOB.later for key in value.entries):
        return False
    return bool(nearest(name, TOP.works + TOP.later))


def _stages(report: Report, entry: Entry | None) -> tuple[str, ...]:
    names = _DEFAULT_STAGES if entry is None else read_strings(report, entry.value, "stages")
    if entry is not None and names is not None:
        if not names:
            report.add(entry.value, "stages", "must not be empty", "name a stage, or remove the key")
        if len(names) > MAX_STAGES:
            report.stop(entry.value, "stages", f"has more than {MAX_STAGES} entries", "use fewer stages")
    # The outer stages keep their places wherever a file lists them. A name that is listed twice counts once.
    inner = dict.fromkeys(name for name in names or _DEFAULT_STAGES if name not in _OUTER)
    return (_FIRST_STAGE, *inner, _LAST_STAGE)


def _default(report: Report, judge: Judge, keywords: Mapping[str, Entry]) -> Shared:
    """Read `default`, and keywords such as `image` at the top level, as in older files. Reports keywords in both."""
    older = ("image", "services", "cache", "before_script", "after_script")
    outside = {name: entry for name, entry in keywords.items() if name in older}
    section = read_table(report, keywords["default"].value, "default", DEFAULT) if "default" in keywords else {}
    for name in outside.keys() & section.keys():
        message = f'"{name}" stands both here and in "default" (line {section[name].key.line})'
        report.add(outside[name].key, name, message, 'keep the one in "default"')
    return read_shared(report, section, "default", judge).over(read_shared(report, outside, "", judge))


def _check_any(report: Report, drafts: Sequence[Draft]) -> None:
    if not drafts and not report:
        report.add(Place(), "", "the file has no jobs", 'write at least one job with a "script"')
