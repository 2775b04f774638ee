"""A compiled pipeline for people: a table by stage, one job in full, and why others are not there. Pure.

Decided here: what of a job is worth a column, and in which words. `remuda pipeline show` is the caller; `remuda run`
may list a pipeline's jobs with it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from remuda.cli.exits import BadInputError
from remuda.cli.render.columns import laid_out
from remuda.localrun.report import counted
from remuda.pipeline import JobSpec, LeftOut, Pipeline
from remuda.pipeline.errors import printable
from remuda.pipeline.syntax.known_keys import nearest

SHOWN_NAMES = 3
"""How many needs or tags fit into a cell."""

_LONG = 500


def headline(pipeline: Pipeline) -> str:
    """How much there is, in one line."""
    if pipeline.skipped is not None:
        return f"no pipeline: {pipeline.skipped}"
    stages = len({job.stage for job in pipeline.jobs})
    text = f"{counted(len(pipeline.jobs), 'job')} in {counted(stages, 'stage')}"
    return f"{text}, {len(pipeline.left_out)} left out by rules" if pipeline.left_out else text


def table(pipeline: Pipeline, file: str) -> list[str]:
    """The jobs stage by stage, a line each, and below them those that are left out. `file`: what the file is called."""
    jobs = sorted(pipeline.jobs, key=lambda job: job.stage_index)
    groups = {job.name: job.written_name for job in jobs}
    columns = {
        "job": [f"  {printable(job.name, _LONG)}" for job in jobs],
        "when": [when(job) for job in jobs],
        "needs": [_needs(job, groups) for job in jobs],
        "tags": [_some(job.tags) for job in jobs],
        "rule": [job.rule for job in jobs],
        "environment": [printable(job.environment.name) if job.environment else "" for job in jobs],
        "notes": [", ".join(_notes(job)) for job in jobs],
    }
    used = {name: cells for name, cells in columns.items() if any(cells)}
    head, *rows = laid_out([tuple(used), *zip(*used.values(), strict=True)]) if jobs else [""]
    lines: list[str] = [head] if jobs else []
    number = 0
    for stage, group in groupby(jobs, key=lambda job: job.stage):
        lines.append(printable(stage, _LONG))
        for _ in group:
            lines.append(rows[number])
            number += 1
    if pipeline.left_out:
        rest = [
            (f"  {printable(left.name, _LONG)}", printable(left.reason, _LONG), place(left, file))
            for left in pipeline.left_out
        ]
        lines += ["", "left out", *laid_out(rest)]
    return lines


def place(job: JobSpec | LeftOut, file: str) -> str:
    """Where a job stands."""
    return f"{printable(job.file or file, _LONG)}:{job.line}"


def when(job: JobSpec) -> str:
    """When a job starts, and whether it may fail."""
    words = f"{job.when} {job.start_in_seconds}s" if job.when == "delayed" else job.when
    return f"{words}, may fail" if job.allow_failure else words


def _needs(job: JobSpec, groups: Mapping[str, str]) -> str:
    """What a job waits for; the parts of a parallel job under its one name."""
    outside = [need.project or need.pipeline for need in job.outside_needs]
    if job.needs is None:
        return _some(outside)
    parts = Counter(groups.get(need.job) or need.job for need in job.needs)
    names = [f"{name} ×{count}" if count > 1 else name for name, count in parts.items()]
    return _some([*names, *outside]) or "nothing"


def _notes(job: JobSpec) -> Iterator[str]:
    if job.trigger is not None:
        yield f"triggers {printable(job.trigger.project)}" if job.trigger.project else "triggers a child pipeline"
    if job.image is not None:
        yield f"image {printable(str(job.image.get('name', '')))}"
    if job.resource_group:
        yield f"one at a time in {printable(job.resource_group)}"
    if job.retry_max:
        yield f"retry {job.retry_max}"
    if job.interruptible:
        yield "interruptible"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(map(printable, names[:SHOWN_NAMES])) + more


def find(pipeline: Pipeline, name: str) -> tuple[JobSpec, ...] | LeftOut:
    """The job of that name, or all parts of a parallel one, or what keeps it out of the pipeline."""
    jobs = tuple(job for job in pipeline.jobs if name in (job.name, job.written_name))
    if jobs:
        return jobs
    for left in pipeline.left_out:
        if left.name == name:
            return left
    if pipeline.skipped is not None:
        raise BadInputError(f"--job {name}: there is no pipeline: {pipeline.skipped}")
    names = [*(job.written_name or job.name for job in pipeline.jobs), *(left.name for left in pipeline.left_out)]
    raise BadInputError(f"--job {name}: the file has no such job; {nearest(name, names) or 'leave it out to see all'}")


def details(found: tuple[JobSpec, ...] | LeftOut, file: str) -> list[str]:
    """One job in full: every value that is not the default. Of a parallel job the first part, and the others' names."""
    if isinstance(found, LeftOut):
        return [f"{printable(found.name, _LONG)} ({place(found, file)}) is left out: {printable(found.reason, _LONG)}"]
    job = found[0]
    lines = [f"{printable(job.name, _LONG)} ({place(job, file)})"]
    skipped = {"version", "name", "line", "file", "stage_index", "written_name"}
    defaults = {each.name: each.default for each in msgspec.structs.fields(job)}
    for name in job.__struct_fields__:
        value = getattr(job, name)
        if name not in skipped and (value != defaults[name] or name == "when") and value not in ((), {}):
            lines += _field(name, value)
    if len(found) > 1:
        lines.append(f"  parts: {len(found)}")
        lines += (f"    {printable(part.name, _LONG)}" for part in found)
    return lines


def _field(name: str, value: Any) -> list[str]:
    plain = msgspec.to_builtins(value)
    match plain:
        case list() | tuple():
            shown = [line for each in plain for line in _shown(each).split("\n")]
        case dict():
            shown = [f"{key}: {_shown(each)}" for key, each in plain.items()]
        case _:
            return [f"  {name}: {printable(_shown(plain), _LONG)}"]
    return [f"  {name}:", *(f"    {printable(line, _LONG)}" for line in shown)]


def _shown(value: object) -> str:
    return value.rstrip("\n") if isinstance(value, str) else msgspec.json.encode(value).decode()
