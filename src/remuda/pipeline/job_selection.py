"""Some jobs of a pipeline instead of all: those that a person names, with or without what they wait for.

Decided here: what a name may be, which jobs come along, and what becomes of the rest's place in the order. A job that
is named itself runs even if it were to wait for a person, a delay or a failure: it was asked for. Pure; the cell
applies it to the pipelines it starts, `remuda run` to the list it shows.

Invariant: what is left is a pipeline by itself: no job waits for, or takes artifacts from, one that is not there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from remuda.pipeline.errors import quote
from remuda.pipeline.graph import prerequisites
from remuda.pipeline.spec import JobSpec, Pipeline


class ChoiceError(Exception):
    """There is no such job or stage; the text names those that may have been meant."""


def choose(
    pipeline: Pipeline, *, jobs: Collection[str] = (), stages: Collection[str] = (), with_needs: bool = True
) -> Pipeline:
    """The pipeline with the jobs of these names and stages, and what they wait for; nothing chosen means all."""
    if not jobs and not stages:
        return pipeline
    named = _named(pipeline, jobs)
    wanted = named | _in_stages(pipeline, stages)
    if with_needs:
        wanted = _with_needs(wanted, prerequisites(pipeline.jobs))
    left = tuple(_alone(job, wanted, is_named=job.name in named) for job in pipeline.jobs if job.name in wanted)
    return msgspec.structs.replace(pipeline, jobs=left)


def _named(pipeline: Pipeline, names: Iterable[str]) -> set[str]:
    """The jobs of these names; a name from before `parallel` unfolded it means all its parts."""
    by_name: dict[str, list[str]] = {}
    for job in pipeline.jobs:
        for name in {job.name, job.written_name or job.name}:
            by_name.setdefault(name, []).append(job.name)
    left_out = {each.name: each.reason for each in pipeline.left_out}
    found: set[str] = set()
    for name in names:
        if name not in by_name:
            if name in left_out:
                raise ChoiceError(f"the job {quote(name)} is not in this pipeline: {left_out[name]}")
            raise ChoiceError(f"there is no job {quote(name)}{_near(name, by_name)}")
        found.update(by_name[name])
    return found


def _in_stages(pipeline: Pipeline, stages: Iterable[str]) -> set[str]:
    there = dict.fromkeys(job.stage for job in pipeline.jobs)
    for stage in stages:
        if stage not in there:
            what = "no job is in the stage" if stage in pipeline.stages else "there is no stage"
            raise ChoiceError(f"{what} {quote(stage)}{_near(stage, there)}")
    wanted = set(stages)
    return {job.name for job in pipeline.jobs if job.stage in wanted}


def _with_needs(wanted: set[str], waits: Mapping[str, tuple[str, ...]]) -> set[str]:
    found: set[str] = set()
    waiting = list(wanted)
    # The jobs of a stage share one tuple of those before them: it is walked once, not once for each.
    walked: set[int] = set()
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        if id(waits[name]) not in walked:
            walked.add(id(waits[name]))
            waiting.extend(waits[name])
    return found


def _alone(job: JobSpec, wanted: set[str], *, is_named: bool) -> JobSpec:
    """A job without what it would have of those that are not there."""
    if job.needs is not None:
        job = msgspec.structs.replace(job, needs=tuple(need for need in job.needs if need.job in wanted))
    if job.dependencies is not None:
        kept = tuple(name for name in job.dependencies if name in wanted)
        job = msgspec.structs.replace(job, dependencies=kept)
    if is_named and job.when != "always":
        job = msgspec.structs.replace(job, when="on_success", start_in_seconds=None)
    return job


def _near(name: str, there: Iterable[str]) -> str:
    from difflib import get_close_matches  # only a mistake pays for it

    names = list(there)
    near = get_close_matches(name, names, n=3) or [each for each in names if name.lower() in each.lower()][:3]
    if near:
        return f"; did you mean {' or '.join(map(quote, near))}?"
    shown = ", ".join(map(quote, names[:10]))
    return f"; there are {shown}{' and more' if len(names) > 10 else ''}" if names else ""
