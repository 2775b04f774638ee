"""The text of a pipeline file to a `Pipeline`: the top level, and the order in which the other modules work.

Decided here: what a key at the top level is (a keyword, a hidden template, a job, or a keyword misspelt), which
stages there are, and where defaults come from. Pure: the same text gives the same value or the same
`PipelineError`. Called by the cell for every new pipeline and by `remuda run`.

Later sources of text (include, components) come in as an argument beside the text, never by reading files here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remuda.pipeline.document import Entry, Opaque, Table, read_document
from remuda.pipeline.errors import Place, Report
from remuda.pipeline.job import Draft, Shared, read_job, read_shared
from remuda.pipeline.keywords import DEFAULT, JOB, TOP, nearest
from remuda.pipeline.reading import is_null, is_text, mistyped, read_strings, read_table, report_key, report_name
from remuda.pipeline.spec import Pipeline
from remuda.pipeline.unfolding import Budget, unfold
from remuda.pipeline.variables import read_variables

MAX_STAGES = 500

_FIRST_STAGE, _LAST_STAGE = ".pre", ".post"
_DEFAULT_STAGES = ("build", "test", "deploy")


def compile_pipeline(text: str, *, file: str = ".gitlab-ci.yml") -> Pipeline:
    """Compile a file, or raise `PipelineError` with all its mistakes. `file` is only the name in messages."""
    report = Report(file)
    root = read_document(text, report)
    if not isinstance(root, Table):
        mistyped(report, root, "", "a map of keywords and jobs at the top level")
        raise report.error()
    keywords, found = _sort(report, root)
    stages = _stages(report, keywords.get("stages"))
    variables = read_variables(report, keywords["variables"].value, "variables") if "variables" in keywords else {}
    default = _default(report, keywords)
    indexes = {stage: index for index, stage in enumerate(stages)}
    drafts: list[Draft] = []
    budget = Budget(report)
    for entry in found:
        drafts.append(read_job(report, entry, default=default, stages=indexes, variables=variables))
        budget.take(drafts[-1])
    _check_any(report, drafts)
    return Pipeline(stages=stages, variables=variables, jobs=unfold(report, drafts, budget))


def _sort(report: Report, root: Table) -> tuple[dict[str, Entry], list[Entry]]:
    """The top level's keywords, and its jobs; hidden templates are only there for anchors."""
    keywords: dict[str, Entry] = {}
    jobs: list[Entry] = []
    for name, entry in root.entries.items():
        if not is_text(entry.key):
            report_name(report, entry.key, "", "the name of a job")
        elif name in TOP.works:
            if not is_null(entry.value):
                keywords[name] = entry
        elif name in TOP.later or _is_misspelt(entry):
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


def _is_misspelt(entry: Entry) -> bool:
    """Whether a key looks like a keyword of the top level rather than like a job."""
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
    # The outer stages keep their places wherever a file lists them, and a name listed twice counts once.
    inner = dict.fromkeys(name for name in names or _DEFAULT_STAGES if name not in (_FIRST_STAGE, _LAST_STAGE))
    return (_FIRST_STAGE, *inner, _LAST_STAGE)


def _default(report: Report, keywords: Mapping[str, Entry]) -> Shared:
    """The `default` section, and the scripts that older files have at the top level instead."""
    outside = {name: entry for name, entry in keywords.items() if name in ("before_script", "after_script")}
    section = read_table(report, keywords["default"].value, "default", DEFAULT) if "default" in keywords else {}
    for name in outside.keys() & section.keys():
        message = f'"{name}" stands both here and in "default" (line {section[name].key.line})'
        report.add(outside[name].key, name, message, 'keep the one in "default"')
    return read_shared(report, section, "default").over(read_shared(report, outside, ""))


def _check_any(report: Report, drafts: Sequence[Draft]) -> None:
    if not drafts and not report:
        report.add(Place(), "", "the file has no jobs", 'write at least one job with a "script"')
    if drafts and all(draft.spec.stage in (_FIRST_STAGE, _LAST_STAGE) for draft in drafts):
        message = f"all jobs are in {_FIRST_STAGE} or {_LAST_STAGE}: such a pipeline does not run"
        report.add(drafts[0].key, drafts[0].spec.name, message, "put a job into another stage")
