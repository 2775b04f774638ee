"""The graph of a pipeline: which job waits for which, whose artifacts it gets, and circular needs.

All jobs of a stage that wait for the earlier stages share one tuple, so that the memory for a wide pipeline does not
grow with the square of its jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from remuda.pipeline.spec import JobSpec


def prerequisites(jobs: Sequence[JobSpec]) -> dict[str, tuple[str, ...]]:
    """Return which jobs each job waits for: its needs in the pipeline; without `needs`, all jobs of earlier stages."""
    names = {job.name for job in jobs}
    earlier = _by_stage(jobs, jobs)
    return {
        job.name: earlier[job.stage_index]
        if job.needs is None
        else tuple(need.job for need in job.needs if need.job in names)
        for job in jobs
    }


def artifact_sources(jobs: Sequence[JobSpec]) -> dict[str, tuple[str, ...]]:
    """Return the jobs whose artifacts each job gets: those of earlier stages or of `needs` (with `artifacts: true`)
    that have artifacts, reduced to `dependencies` if the job has them."""
    makers = [job for job in jobs if job.artifacts is not None]
    names = {job.name for job in makers}
    earlier = _by_stage(makers, jobs)
    sources: dict[str, tuple[str, ...]] = {}
    for job in jobs:
        before = earlier[job.stage_index]
        if job.needs is not None:
            before = tuple(need.job for need in job.needs if need.artifacts and need.job in names)
        if job.dependencies is not None:
            dependencies = set(job.dependencies)
            before = tuple(name for name in before if name in dependencies)
        sources[job.name] = before
    return sources


def circles(edges: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Yield cycles of a graph, at least one if there is any; `edges` has the names that each name points to. The search
    uses its own stack, so chains of needs may be longer than Python's recursion limit."""
    done: set[str] = set()
    for start in edges:
        if start in done:
            continue
        path: dict[str, Iterator[str]] = {start: iter(edges[start])}
        while path:
            name = next(reversed(path))
            for target in path[name]:
                if target in path:
                    trail = list(path)
                    yield tuple(trail[trail.index(target) :])
                elif target in edges and target not in done:
                    path[target] = iter(edges[target])
                    break
            else:
                done.add(name)
                del path[name]


def _by_stage(sources: Sequence[JobSpec], jobs: Sequence[JobSpec]) -> dict[int, tuple[str, ...]]:
    """Return, for the index of each stage of `jobs`, the names of those `sources` that are in earlier stages."""
    before: dict[int, list[str]] = {index: [] for index in sorted({job.stage_index for job in jobs})}
    for index, group in groupby(sorted(sources, key=_stage_index), key=_stage_index):
        before[index] = [job.name for job in group]
    earlier: dict[int, tuple[str, ...]] = {}
    seen: tuple[str, ...] = ()
    for index, names in before.items():
        earlier[index] = seen
        seen += tuple(names)
    return earlier


def _stage_index(job: JobSpec) -> int:
    return job.stage_index
