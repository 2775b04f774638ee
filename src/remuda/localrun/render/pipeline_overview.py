"""Formats a compiled pipeline as text: a table of jobs by stage, one job in full, and why jobs are left out. Pure. Used
by `remuda pipeline show` and `remuda run --list`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from remuda.lib.exits import BadInputError
from remuda.localrun.render.columns import align
from remuda.localrun.render.words import plural
from remuda.pipeline import JobSpec, LeftOut, Pipeline
from remuda.pipeline.errors import printable
from remuda.pipeline.syntax.known_keys import nearest

SHOWN_NAMES = 3
"""How many needs or tags of a job the table shows."""

_LONG = 500


def headline(pipeline: Pipeline) -> str:
    """Return one line with the number of jobs and stages, or the reason why there is no pipeline."""
    if pipeline.skipped is not None:
        return f"no pipeline: {pipeline.skipped}"
    stages = len({job.stage for job in pipeline.jobs})
    text = f"{plural(len(pipeline.jobs), 'job')} in {plural(stages, 'stage')}"
    return f"{text}, {len(pipeline.left_out)} left out by rules" if pipeline.left_out else text


def table(pipeline: Pipeline, file: str) -> list[str]:
    """Return a line per job, stage by stage, then left out jobs with the reason. `file`: name of the pipeline file."""
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
    head, *rows = align([tuple(used), *zip(*used.values(), strict=True)]) if jobs else [""]
    lines: list[str] = [head] if jobs else []
    number = 0
    for stage, group in groupby(jobs, key=lambda job: job.stage):
        lines.append(printable(stage, _LONG))
        for _ in group:
            lines.append(rows[number])
            number += 1
    if pipeline.left_out:
        rest = [
            (f"  {printable(entry.name, _LONG)}", printable(entry.reason, _LONG), place(entry, file))
            for entry in pipeline.left_out
        ]
        lines += ["", "left out", *align(rest)]
    return lines


def place(job: JobSpec | LeftOut, file: str) -> str:
    """Return `FILE:LINE` of a job's definition. `file`: the pipeline file, for jobs that no included file defines."""
    return f"{printable(job.file or file, _LONG)}:{job.line}"


def when(job: JobSpec) -> str:
    """Return when a job starts, and whether it is allowed to fail, in words: `manual, may fail`."""
    words = f"{job.when} {job.start_in_seconds}s" if job.when == "delayed" else job.when
    return f"{words}, may fail" if job.allow_failure else words


def _needs(job: JobSpec, groups: Mapping[str, str]) -> str:
    """Return the names of the jobs that a job needs; several parts of a parallel job are shown as `NAME ×COUNT`.
    `groups`: by job name, the parallel job that the job is a part of, or ''."""
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
    """Return the job with this name, all parts of a parallel job, or the entry that says why the job is left out.
    Raises BadInputError if the file has no such job or there is no pipeline."""
    jobs = tuple(job for job in pipeline.jobs if name in (job.name, job.written_name))
    if jobs:
        return jobs
    for entry in pipeline.left_out:
        if entry.name == name:
            return entry
    if pipeline.skipped is not None:
        raise BadInputError(f"--job {name}: there is no pipeline: {pipeline.skipped}")
    names = [*(job.written_name or job.name for job in pipeline.jobs), *(entry.name for entry in pipeline.left_out)]
    raise BadInputError(f"--job {name}: the file has no such job; {nearest(name, names) or 'leave it out to see all'}")


def details(parts: tuple[JobSpec, ...] | LeftOut, file: str) -> list[str]:
    """Return lines with every value of a job that is not the default; of a parallel job, its first part's values and
    the names of all parts. For a job that is left out, one line with the reason."""
    if isinstance(parts, LeftOut):
        return [f"{printable(parts.name, _LONG)} ({place(parts, file)}) is left out: {printable(parts.reason, _LONG)}"]
    job = parts[0]
    lines = [f"{printable(job.name, _LONG)} ({place(job, file)})"]
    skipped = {"version", "name", "line", "file", "stage_index", "written_name"}
    defaults = {each.name: each.default for each in msgspec.structs.fields(job)}
    for name in job.__struct_fields__:
        value = getattr(job, name)
        if name not in skipped and (value != defaults[name] or name == "when") and value not in ((), {}):
            lines += _field(name, value)
    if len(parts) > 1:
        lines.append(f"  parts: {len(parts)}")
        lines += (f"    {printable(part.name, _LONG)}" for part in parts)
    return lines


def _field(name: str, value: Any) -> list[str]:
    plain = msgspec.to_builtins(value)
    match plain:
        case list() | tuple():
            lines = [line for each in plain for line in _value_text(each).split("\n")]
        case dict():
            lines = [f"{key}: {_value_text(each)}" for key, each in plain.items()]
        case _:
            return [f"  {name}: {printable(_value_text(plain), _LONG)}"]
    return [f"  {name}:", *(f"    {printable(line, _LONG)}" for line in lines)]


def _value_text(value: object) -> str:
    return value.rstrip("\n") if isinstance(value, str) else msgspec.json.encode(value).decode()
