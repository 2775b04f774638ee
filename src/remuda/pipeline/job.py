"""One job, or the `default` section, out of the tree.

Decided here: what each keyword of a job means, what it inherits, and what is wrong with it on its own. What
concerns several jobs (needs that name a job, `parallel`, sizes) is decided in `unfolding`. Called by `compile`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from remuda.pipeline.document import Entry, Items, Node, Scalar, Table
from remuda.pipeline.durations import parse_duration
from remuda.pipeline.errors import Report, quoted
from remuda.pipeline.keywords import (
    ALLOW_FAILURE,
    ARTIFACTS,
    JOB,
    NEED,
    PARALLEL,
    RETRY,
    RETRY_WHEN,
    is_near,
    listed,
    nearest,
)
from remuda.pipeline.reading import (
    inside,
    is_text,
    mistyped,
    read_choice,
    read_flag,
    read_integer,
    read_script,
    read_strings,
    read_table,
    read_text,
)
from remuda.pipeline.spec import Artifacts, ArtifactsWhen, JobSpec, Need, When
from remuda.pipeline.variables import read_variables

MIN_PARALLEL, MAX_PARALLEL = 1, 200
MAX_RETRIES = 2
MAX_NEEDS = 50

_DEFAULT_STAGE = "test"
_WHEN = ("on_success", "on_failure", "always", "manual")
_ARTIFACTS_WHEN = ("on_success", "on_failure", "always")
# Keys that stand in for a script in GitLab.
_INSTEAD_OF_SCRIPT = ("run", "trigger", "extends")


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often to try again, and after which failures."""

    max: int = 0
    when: tuple[str, ...] = ("always",)


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What a job can take from `default`. None: not given."""

    before_script: tuple[str, ...] | None = None
    after_script: tuple[str, ...] | None = None
    artifacts: Artifacts | None = None
    tags: tuple[str, ...] | None = None
    timeout_seconds: int | None = None
    retry: Retry | None = None

    def over(self, other: Shared) -> Shared:
        """These values, and the other's where there is none here: whole keys, nothing is merged."""
        given = {field: getattr(self, field) for field in self.__struct_fields__}
        return msgspec.structs.replace(other, **{k: v for k, v in given.items() if v is not None})


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the file has it: `spec` before unfolding, and where its needs stand."""

    spec: JobSpec
    key: Scalar
    parallel: int | None
    need_places: tuple[Node, ...]


def read_shared(report: Report, entries: Mapping[str, Entry], path: str) -> Shared:
    """The keys that both `default` and jobs have."""
    values = {name: (entry.value, inside(path, name)) for name, entry in entries.items()}
    return Shared(
        before_script=read_script(report, *at) if (at := values.get("before_script")) else None,
        after_script=read_script(report, *at) if (at := values.get("after_script")) else None,
        artifacts=_artifacts(report, *at) if (at := values.get("artifacts")) else None,
        tags=read_strings(report, *at) if (at := values.get("tags")) else None,
        timeout_seconds=_timeout(report, *at) if (at := values.get("timeout")) else None,
        retry=_retry(report, *at) if (at := values.get("retry")) else None,
    )


def read_job(
    report: Report, entry: Entry, *, default: Shared, stages: Mapping[str, int], variables: dict[str, str]
) -> Draft:
    """A job with defaults applied. Whatever is wrong with it is noted, and it is drafted all the same."""
    name = entry.key.text
    entries = read_table(report, entry.value, name, JOB)
    shared = read_shared(report, entries, name).over(default)
    stage = _stage(report, entry, entries, stages)
    when = _when(report, entries, name)
    own = (
        read_variables(report, entries["variables"].value, inside(name, "variables"))
        if ("variables" in entries)
        else {}
    )
    needs = _needs(report, entries["needs"].value, inside(name, "needs")) if "needs" in entries else None
    artifacts = shared.artifacts
    keeps = artifacts is not None and (artifacts.paths or artifacts.untracked)
    retry = shared.retry or Retry()
    spec = JobSpec(
        name=name,
        stage=stage,
        stage_index=stages.get(stage, -1),
        script=(shared.before_script or ()) + _script(report, entry, entries),
        after_script=shared.after_script or (),
        variables={**variables, **own} if own else variables,
        needs=None if needs is None else tuple(need for need, _ in needs),
        # Artifacts that name no file keep nothing: later jobs need not ask for them.
        artifacts=artifacts if keeps else None,
        allow_failure=_allow_failure(report, entries, name, when),
        tags=shared.tags or (),
        when=when,
        timeout_seconds=shared.timeout_seconds,
        retry_max=retry.max,
        retry_when=retry.when,
        line=entry.key.line,
    )
    return Draft(
        spec=spec,
        key=entry.key,
        parallel=_parallel(report, entries, name),
        need_places=tuple(place for _, place in needs or ()),
    )


def _stage(report: Report, job: Entry, entries: Mapping[str, Entry], stages: Mapping[str, int]) -> str:
    name = job.key.text
    if "stage" not in entries:
        if _DEFAULT_STAGE not in stages:
            report.add(
                job.key,
                name,
                f'has no "stage", and the default stage "{_DEFAULT_STAGE}" is not among the stages',
                f"give it one of: {listed(tuple(stages))}",
            )
        return _DEFAULT_STAGE
    node, path = entries["stage"].value, inside(name, "stage")
    stage = read_text(report, node, path)
    if stage is not None and stage not in stages:
        suggestion = nearest(stage, stages)
        message = f"unknown stage {quoted(stage)}; the stages are: {listed(tuple(stages))}"
        report.add(node, path, message, suggestion or 'use one of them, or add it to "stages"')
    return stage or ""


def _script(report: Report, job: Entry, entries: Mapping[str, Entry]) -> tuple[str, ...]:
    name = job.key.text
    if "script" in entries:
        node = entries["script"].value
        script = read_script(report, node, inside(name, "script"))
        if script is not None and isinstance(node, Items) and not node.items:
            report.add(node, inside(name, "script"), "must not be empty", "give it at least one line")
        return script or ()
    body = job.value
    if isinstance(body, Table) and not any(_stands_for_script(key) for key in body.entries):
        report.add(job.key, name, 'the job has no "script"', "give it the lines to run")
    return ()


def _stands_for_script(key: str) -> bool:
    """Whether a key is there instead of a script, or is a script misspelt: its own mistake says enough."""
    return key in _INSTEAD_OF_SCRIPT or (key not in JOB.works and is_near(key, "script"))


def _when(report: Report, entries: Mapping[str, Entry], name: str) -> When:
    if "when" not in entries:
        return "on_success"
    node, path = entries["when"].value, inside(name, "when")
    if isinstance(node, Scalar) and node.text == "delayed":
        report.add(node, path, 'the value "delayed" is not supported yet', f"use one of: {', '.join(_WHEN)}")
        return "on_success"
    return cast(When, read_choice(report, node, path, _WHEN) or "on_success")


def _allow_failure(report: Report, entries: Mapping[str, Entry], name: str, when: When) -> bool:
    # A manual job that nobody starts must not hold up the pipeline, unless the file says so.
    by_default = when == "manual"
    if "allow_failure" not in entries:
        return by_default
    node, path = entries["allow_failure"].value, inside(name, "allow_failure")
    if isinstance(node, Table):
        read_table(report, node, path, ALLOW_FAILURE)
        return by_default
    return read_flag(report, node, path) or False


def _parallel(report: Report, entries: Mapping[str, Entry], name: str) -> int | None:
    if "parallel" not in entries:
        return None
    node, path = entries["parallel"].value, inside(name, "parallel")
    if isinstance(node, Table):
        read_table(report, node, path, PARALLEL)
        return None
    return read_integer(report, node, path, low=MIN_PARALLEL, high=MAX_PARALLEL)


def _timeout(report: Report, node: Node, path: str) -> int | None:
    if not isinstance(node, Scalar) or node.kind not in ("text", "number"):
        mistyped(report, node, path, 'a duration such as "1h 30m"')
        return None
    seconds = parse_duration(node.text)
    if not seconds:
        report.add(node, path, f"{quoted(node.text)} is no duration", 'write it like "1h 30m" or "90 minutes"')
    return seconds or None


def _retry(report: Report, node: Node, path: str) -> Retry:
    if not isinstance(node, Table):
        return Retry(max=read_integer(report, node, path, low=0, high=MAX_RETRIES) or 0)
    entries = read_table(report, node, path, RETRY)
    most = 0
    if "max" in entries:
        most = read_integer(report, entries["max"].value, inside(path, "max"), low=0, high=MAX_RETRIES) or 0
    if "when" not in entries:
        return Retry(max=most)
    reasons = entries["when"].value
    nodes = reasons.items if isinstance(reasons, Items) else (reasons,)
    read = [read_choice(report, reason, inside(path, "when"), RETRY_WHEN) for reason in nodes]
    return Retry(max=most, when=tuple(reason for reason in read if reason is not None) or ("always",))


def _artifacts(report: Report, node: Node, path: str) -> Artifacts:
    entries = read_table(report, node, path, ARTIFACTS)
    values = {name: (entry.value, inside(path, name)) for name, entry in entries.items()}
    when = read_choice(report, *at, _ARTIFACTS_WHEN) if (at := values.get("when")) else None
    return Artifacts(
        paths=(read_strings(report, *at) if (at := values.get("paths")) else None) or (),
        exclude=(read_strings(report, *at) if (at := values.get("exclude")) else None) or (),
        untracked=(read_flag(report, *at) if (at := values.get("untracked")) else None) or False,
        when=cast(ArtifactsWhen, when or "on_success"),
        name=(read_text(report, *at) if (at := values.get("name")) else None) or "",
        expire_in=_expire_in(report, *at) if (at := values.get("expire_in")) else "",
    )


def _expire_in(report: Report, node: Node, path: str) -> str:
    if isinstance(node, Scalar) and node.kind in ("text", "number"):
        if node.text != "never" and parse_duration(node.text) is None:
            report.add(node, path, f"{quoted(node.text)} is no duration", 'write it like "1 week", or "never"')
        return node.text
    mistyped(report, node, path, 'a duration such as "1 week"')
    return ""


def _needs(report: Report, node: Node, path: str) -> list[tuple[Need, Node]]:
    if isinstance(node, Scalar):
        mistyped(report, node, path, "a list of jobs", "put it in a list" if is_text(node) else "")
        return []
    found: list[tuple[Need, Node]] = []
    nodes: list[Node] = [node]
    while nodes:
        item = nodes.pop()
        if isinstance(item, Items):
            nodes.extend(reversed(item.items))
        elif need := _need(report, item, path):
            found.append((need, item))
    if len(found) > MAX_NEEDS:
        report.add(node, path, f"has more than {MAX_NEEDS} entries", "need fewer jobs, or order by stages")
    return found


def _need(report: Report, node: Node, path: str) -> Need | None:
    if not isinstance(node, Table):
        job = read_text(report, node, path)
        return None if job is None else Need(job=job)
    entries = read_table(report, node, path, NEED)
    if "job" not in entries:
        if "pipeline" not in node.entries:
            report.add(node, path, 'a need must have a "job"', "name the job to wait for")
        return None
    job = read_text(report, entries["job"].value, inside(path, "job"))
    flags = {
        key: read_flag(report, entries[key].value, inside(path, key))
        for key in ("artifacts", "optional")
        if key in entries
    }
    if job is None:
        return None
    return Need(job=job, artifacts=flags.get("artifacts") is not False, optional=bool(flags.get("optional")))
