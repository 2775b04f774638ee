"""Reads one job of the tree: its keywords, what it inherits from `default`, and mistakes that concern it alone."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, cast

import msgspec

from remuda.pipeline.errors import Report, quote
from remuda.pipeline.keywords.default import Retry, Shared, read_shared
from remuda.pipeline.keywords.environment import (
    read_environment,
    read_pages,
    read_release,
    read_resource_group,
    read_secrets,
)
from remuda.pipeline.keywords.job_inputs import check_uses, read_job_inputs
from remuda.pipeline.keywords.needs import Needs, leave_out, read_needs
from remuda.pipeline.keywords.parallel import Parallel, read_parallel
from remuda.pipeline.keywords.run import ReadFile, read_run
from remuda.pipeline.keywords.trigger import check_alone, read_trigger
from remuda.pipeline.keywords.variables import Variables, read_variables
from remuda.pipeline.rules.clauses import Judge
from remuda.pipeline.rules.job_rules import (
    JOB_WHEN,
    MAX_START_IN,
    AllowFailure,
    Conditions,
    read_allow_failure,
    read_conditions,
)
from remuda.pipeline.rules.regex import PatternError, split_literal
from remuda.pipeline.spec import Artifacts, JobSpec, Trigger, When
from remuda.pipeline.syntax.known_keys import DEFAULT, INHERIT, JOB, JOB_VARIABLE, is_near, join_names, nearest
from remuda.pipeline.syntax.tree import Entry, Items, Node, Scalar, Table
from remuda.pipeline.syntax.typed_values import (
    Fields,
    inside,
    is_null,
    mistyped,
    read_duration,
    read_fields,
    read_script,
    read_strings,
    read_table,
    read_text,
)

_DEFAULT_STAGE = "test"
_INSTEAD_OF_SCRIPT = ("run", "trigger")
"""Keys that replace a script."""


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    """What reading a job needs from the rest of the file: inherited defaults and variables, and the stages."""

    default: Shared
    stages: Mapping[str, int]
    variables: Variables
    read_file: ReadFile
    """Reads a file of the repository, for the definitions of steps."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A job as written: `spec` is not final until rules are evaluated and `parallel` is expanded."""

    spec: JobSpec
    key: Scalar
    entries: Mapping[str, Entry]
    variables: Variables
    conditions: Conditions
    needs: Needs | None
    allow_failure: AllowFailure | None
    interruptible: bool | None
    parallel: Parallel | None

    @property
    def parts(self) -> int:
        return self.parallel.count if self.parallel else 1


def read_job(report: Report, judge: Judge, entry: Entry, context: JobContext) -> Draft:
    """Read a job and apply the defaults. Mistakes are reported, and a draft of the job is returned anyway."""
    name = entry.key.text
    entries = read_table(report, entry.value, name, JOB)
    fields = Fields(report, entries, name)
    context = fields.read("inherit", _inherit, context) or context
    trigger = fields.read("trigger", read_trigger)
    run = fields.read("run", read_run, context.read_file) or ()
    shared = read_shared(report, entries, name, judge).over(_applicable(context.default, trigger, run))
    variables = (fields.read("variables", read_variables, JOB_VARIABLE) or Variables()).over(context.variables)
    stage = _stage(report, entry.key, fields, context.stages)
    when, start_in = _when(fields)
    pages = fields.read("pages", read_pages)
    publish = fields.text_or_empty("publish") or (pages or {}).get("publish")
    retry = shared.retry or Retry()
    check_alone(report, entries, name)
    inputs = fields.read("inputs", read_job_inputs, judge) or {}
    needs = fields.read("needs", read_needs)
    if trigger is None and needs is not None and any(each.pipeline and not each.job for each in needs.outside):
        fields.refuse_value(
            "needs", 'a job that runs something cannot need a "pipeline" without a "job"', "name the job"
        )
    check_uses(report, entries, name, inputs)
    spec = JobSpec(
        name=name,
        stage=stage,
        stage_index=context.stages.get(stage, -1),
        script=(shared.before_script or ()) + _script(report, entry, entries),
        after_script=shared.after_script or (),
        variables=variables.values,
        raw_variables=tuple(sorted(variables.raw)),
        artifacts=_artifacts(shared.artifacts, publish),
        tags=shared.tags or (),
        when=when,
        start_in_seconds=start_in,
        manual_confirmation=fields.text_or_empty("manual_confirmation") or "",
        timeout_seconds=shared.timeout_seconds,
        retry_max=retry.max,
        retry_when=retry.when,
        retry_exit_codes=retry.exit_codes,
        dependencies=fields.strings("dependencies"),
        image=shared.image,
        services=shared.services or (),
        cache=shared.cache or (),
        hooks=shared.hooks or (),
        run=run,
        resource_group=fields.read("resource_group", read_resource_group) or "",
        environment=fields.read("environment", read_environment),
        coverage=fields.read("coverage", _coverage, judge) or "",
        release=fields.read("release", read_release),
        secrets=fields.read("secrets", read_secrets) or {},
        id_tokens=shared.id_tokens or {},
        trigger=trigger,
        pages=pages,
        inputs=inputs,
        line=entry.key.line,
        file=entry.key.file,
    )
    return Draft(
        spec=spec,
        key=entry.key,
        entries=entries,
        variables=variables,
        conditions=read_conditions(report, judge, entries, name),
        needs=needs,
        allow_failure=fields.read("allow_failure", read_allow_failure),
        interruptible=shared.interruptible,
        parallel=fields.read("parallel", read_parallel),
    )


def without_jobs(report: Report, draft: Draft, names: Container[str]) -> Draft:
    """Return the job without needs of and dependencies on jobs that are left out of every pipeline. Warns of each."""
    name, conditions = draft.spec.name, draft.conditions
    path = inside(name, "needs")
    dependencies = draft.spec.dependencies
    if dependencies is not None:
        for each in dependencies:
            if each in names:
                at = draft.entries["dependencies"].value
                report.warn(at, inside(name, "dependencies"), f"has no artifacts of {quote(each)}, which is left out")
        dependencies = tuple(each for each in dependencies if each not in names)
    rules = conditions.rules and tuple(
        msgspec.structs.replace(rule, needs=leave_out(report, rule.needs, names, path)) for rule in conditions.rules
    )
    return msgspec.structs.replace(
        draft,
        spec=msgspec.structs.replace(draft.spec, dependencies=dependencies),
        needs=leave_out(report, draft.needs, names, path),
        conditions=msgspec.structs.replace(conditions, rules=rules),
    )


def _applicable(default: Shared, trigger: Trigger | None, run: tuple[dict[str, Any], ...]) -> Shared:
    """Return the defaults that apply: to a trigger job only `interruptible`, to a job with `run` all but scripts."""
    if trigger is not None:
        return default.only(("interruptible",))
    if run:
        return msgspec.structs.replace(default, before_script=None, after_script=None)
    return default


def _artifacts(artifacts: Artifacts | None, publish: str | None) -> Artifacts | None:
    """Add the folder `publish` (GitLab Pages) to the artifacts. None if the result has neither files nor reports."""
    if publish and publish not in (artifacts.paths if artifacts else ()):
        artifacts = artifacts or Artifacts(paths=())
        artifacts = msgspec.structs.replace(artifacts, paths=(*artifacts.paths, publish))
    return artifacts if artifacts and (artifacts.keeps_files or artifacts.reports) else None


def _inherit(report: Report, node: Node, path: str, context: JobContext) -> JobContext:
    """Read `inherit`, and reduce the context to the defaults and variables that the job inherits."""
    default, variables = context.default, context.variables
    fields = read_fields(report, node, path, INHERIT)
    if (keys := fields.read("default", _allowed_names)) is not None:
        for key in keys:
            if key not in DEFAULT.works:
                suggestion = nearest(key, DEFAULT.works) or f"use some of: {join_names(DEFAULT.works)}"
                fields.refuse_value("default", f"unknown key {quote(key)}", suggestion)
        default = default.only(keys)
    if (names := fields.read("variables", _allowed_names)) is not None:
        values = {name: value for name, value in variables.values.items() if name in names}
        variables = Variables(values=values, raw=variables.raw & values.keys())
    return msgspec.structs.replace(context, default=default, variables=variables)


def _allowed_names(report: Report, node: Node, path: str) -> tuple[str, ...] | None:
    """Read a value of `inherit`: true, false or a list of names. Returns the names to inherit; None means all."""
    if isinstance(node, Scalar) and node.kind in ("true", "false"):
        return None if node.kind == "true" else ()
    if not isinstance(node, Items):
        mistyped(report, node, path, "true, false or a list of names")
        return None
    return read_strings(report, node, path)


def _stage(report: Report, job: Scalar, fields: Fields, stages: Mapping[str, int]) -> str:
    if "stage" not in fields:
        if _DEFAULT_STAGE not in stages:
            message = f'has no "stage", and the default stage "{_DEFAULT_STAGE}" is not among the stages'
            report.add(job, job.text, message, f"give it one of: {join_names(tuple(stages))}")
        return _DEFAULT_STAGE
    stage = fields.text("stage")
    if stage is not None and stage not in stages:
        message = f"unknown stage {quote(stage)}; the stages are: {join_names(tuple(stages))}"
        fields.refuse_value("stage", message, nearest(stage, stages) or 'use one of them, or add it to "stages"')
    return stage or ""


def _script(report: Report, job: Entry, entries: Mapping[str, Entry]) -> tuple[str, ...]:
    name = job.key.text
    if "script" in entries:
        node = entries["script"].value
        script = read_script(report, node, inside(name, "script"))
        if script == () and (isinstance(node, Scalar) or (isinstance(node, Items) and not node.items)):
            report.add(node, inside(name, "script"), "must not be empty", "give it at least one line")
        return script or ()
    body = job.value
    if isinstance(body, Table) and not any(_replaces_script(entry) for entry in body.entries.values()):
        report.add(job.key, name, 'the job has no "script"', "give it the lines to run")
    return ()


def _replaces_script(entry: Entry) -> bool:
    """True if a job with this entry needs no `script`, or its key is a misspelt `script`, which is reported
    elsewhere."""
    key = entry.key.text
    if key in _INSTEAD_OF_SCRIPT:
        return not is_null(entry.value)
    return key not in JOB.works and is_near(key, "script")


def _when(fields: Fields) -> tuple[When, int | None]:
    when, start_in = fields.choice("when", JOB_WHEN), fields.read("start_in", read_duration, MAX_START_IN)
    if "start_in" in fields and "rules" in fields:
        fields.refuse_key("start_in", '"start_in" and "rules" do not go together', "move it into the rules")
    elif "start_in" in fields and when != "delayed":
        fields.refuse_key("start_in", '"start_in" requires "when: delayed"', "set it, or remove this key")
    if when == "delayed" and "start_in" not in fields and "rules" not in fields:
        fields.refuse_value("when", '"delayed" requires a "start_in"', "say how long to wait")
    return cast(When, when or "on_success"), start_in


def _coverage(report: Report, node: Node, path: str, judge: Judge) -> str:
    text = read_text(report, node, path)
    if text is None:
        return ""
    literal = split_literal(text)
    if literal is None:
        report.add(node, path, "must be a regular expression between slashes", r"write it like '/Coverage: (\d+)/'")
        return ""
    try:
        judge.patterns.compile(*literal)
    except PatternError as error:
        message = f"the regular expression is invalid: {error} (character {error.offset + 2})"
        report.add(node, path, message, "correct it")
    return text
