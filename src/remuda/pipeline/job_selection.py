"""Reduces a compiled pipeline to the jobs that a user names, with or without the jobs that they need.

A job that is named runs even if it is manual, delayed or `on_failure`.

Invariant: no job of the result waits for, or takes artifacts from, a job outside of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from remuda.pipeline.errors import quote
from remuda.pipeline.graph import prerequisites
from remuda.pipeline.spec import JobSpec, Pipeline


class ChoiceError(Exception):
    """The pipeline has no such job or stage. The message gives the reason or similar names."""


def choose(
    pipeline: Pipeline, *, jobs: Collection[str] = (), stages: Collection[str] = (), with_needs: bool = True
) -> Pipeline:
    """Reduce the pipeline to these jobs and stages; `with_needs`: and the jobs that they wait for. Without jobs and
    stages, return it unchanged. Raises ChoiceError for an unknown name."""
    if not jobs and not stages:
        return pipeline
    by_name = _jobs_by_name(pipeline, jobs)
    chosen = by_name | _jobs_in_stages(pipeline, stages)
    if with_needs:
        chosen = _with_needs(chosen, prerequisites(pipeline.jobs))
    rest = tuple(_detach(job, chosen, is_named=job.name in by_name) for job in pipeline.jobs if job.name in chosen)
    return msgspec.structs.replace(pipeline, jobs=rest)


def _jobs_by_name(pipeline: Pipeline, names: Iterable[str]) -> set[str]:
    """Return the jobs that `names` mean; a parallel job's name means all its parts. Raises ChoiceError for an unknown
    name."""
    by_name: dict[str, list[str]] = {}
    for job in pipeline.jobs:
        for name in {job.name, job.written_name or job.name}:
            by_name.setdefault(name, []).append(job.name)
    left_out = {each.name: each.reason for each in pipeline.left_out}
    jobs: set[str] = set()
    for name in names:
        if name not in by_name:
            if name in left_out:
                raise ChoiceError(f"the job {quote(name)} is not in this pipeline: {left_out[name]}")
            raise ChoiceError(f"there is no job {quote(name)}{_similar(name, by_name)}")
        jobs.update(by_name[name])
    return jobs


def _jobs_in_stages(pipeline: Pipeline, stages: Iterable[str]) -> set[str]:
    used = dict.fromkeys(job.stage for job in pipeline.jobs)
    for stage in stages:
        if stage not in used:
            what = "no job is in the stage" if stage in pipeline.stages else "there is no stage"
            raise ChoiceError(f"{what} {quote(stage)}{_similar(stage, used)}")
    names = set(stages)
    return {job.name for job in pipeline.jobs if job.stage in names}


def _with_needs(names: set[str], prerequisites: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Add, recursively, the jobs that these jobs wait for."""
    closure: set[str] = set()
    stack = list(names)
    # The jobs of a stage share one tuple of earlier jobs: it is walked once, not once for each job.
    walked: set[int] = set()
    while stack:
        name = stack.pop()
        if name in closure:
            continue
        closure.add(name)
        if id(prerequisites[name]) not in walked:
            walked.add(id(prerequisites[name]))
            stack.extend(prerequisites[name])
    return closure


def _detach(job: JobSpec, chosen: set[str], *, is_named: bool) -> JobSpec:
    """Return the job without needs and dependencies outside of `chosen`. `is_named`: the user named the job, so it runs
    even if it is manual or delayed."""
    if job.needs is not None:
        job = msgspec.structs.replace(job, needs=tuple(need for need in job.needs if need.job in chosen))
    if job.dependencies is not None:
        dependencies = tuple(name for name in job.dependencies if name in chosen)
        job = msgspec.structs.replace(job, dependencies=dependencies)
    if is_named and job.when != "always":
        job = msgspec.structs.replace(job, when="on_success", start_in_seconds=None)
    return job


def _similar(name: str, candidates: Iterable[str]) -> str:
    """Return the end of an error message: names similar to `name`, else the first of the candidates."""
    from difflib import get_close_matches  # imported only for a mistake

    names = list(candidates)
    near = get_close_matches(name, names, n=3) or [each for each in names if name.lower() in each.lower()][:3]
    if near:
        return f"; did you mean {' or '.join(map(quote, near))}?"
    first = ", ".join(map(quote, names[:10]))
    return f"; there are {first}{' and more' if len(names) > 10 else ''}" if names else ""
