"""From drafted jobs to the final list: needs checked against the other jobs, `parallel` unfolded.

Decided here: what a need may name, what a parallel job's parts are called and get, and how large a pipeline may
become. Called by `compile` after every job has been read on its own.

Invariant: nothing is unfolded before its size is known to be within bounds, so that a small file cannot ask
for gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from remuda.pipeline.errors import Report, printable, quoted
from remuda.pipeline.graph import circles
from remuda.pipeline.job import Draft
from remuda.pipeline.keywords import nearest
from remuda.pipeline.reading import inside
from remuda.pipeline.spec import JobSpec, Need

MAX_JOBS = 10_000
MAX_CHARACTERS = 64 * 1024 * 1024
MAX_NAME = 255

# What a job or a list entry costs beside its characters, so that very many empty ones count too.
_OVERHEAD = 32


class Budget:
    """How large the pipeline has become. Asked after each job is read: inherited lines and variables multiply."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._jobs = 0
        self._characters = 0

    def take(self, draft: Draft) -> None:
        """Count a job with all its parts."""
        spec, parts = draft.spec, draft.parallel or 1
        self._jobs += parts
        if self._jobs > MAX_JOBS:
            self._stop(draft, f"the pipeline has more than {MAX_JOBS} jobs", "use fewer jobs")
        texts = [*spec.script, *spec.after_script, *spec.tags, *spec.variables, *spec.variables.values()]
        if spec.artifacts is not None:
            texts += [*spec.artifacts.paths, *spec.artifacts.exclude]
        self._spend(draft, (sum(map(len, texts)) + _OVERHEAD * len(texts)) * parts)

    def take_needs(self, draft: Draft, names: Mapping[str, Draft]) -> None:
        """Count a job's needs, each with all the parts it stands for."""
        for need in draft.spec.needs or ():
            target = names.get(need.job)
            times = target.parallel or 1 if target else 1
            self._spend(draft, (len(need.job) + _OVERHEAD) * times * (draft.parallel or 1))

    def _spend(self, draft: Draft, characters: int) -> None:
        self._characters += characters
        if self._characters > MAX_CHARACTERS:
            message = f"the jobs have more than {MAX_CHARACTERS} characters together"
            self._stop(draft, message, "use shorter scripts and variables, or fewer jobs and needs")

    def _stop(self, draft: Draft, message: str, suggestion: str) -> None:
        self._report.stop(draft.key, draft.spec.name, message, suggestion)


def unfold(report: Report, drafts: Sequence[Draft], budget: Budget) -> tuple[JobSpec, ...]:
    """The jobs of the pipeline in the order of the file."""
    names = _check_names(report, drafts)
    _check_needs(report, drafts, names)
    for draft in drafts:
        budget.take_needs(draft, names)
    report.finish()
    parts = {draft.spec.name: part_names(draft) for draft in drafts}
    return tuple(job for draft in drafts for job in _parts(draft, parts))


def part_names(draft: Draft) -> tuple[str, ...]:
    """What the job is called once unfolded: itself, or `name 1/N` to `name N/N`."""
    if draft.parallel is None:
        return (draft.spec.name,)
    return tuple(f"{draft.spec.name} {part}/{draft.parallel}" for part in range(1, draft.parallel + 1))


def _parts(draft: Draft, parts: dict[str, tuple[str, ...]]) -> Iterator[JobSpec]:
    spec = draft.spec
    if spec.needs is not None:
        # A need of a parallel job means all its parts; one that is also named alone counts once.
        wanted = {name: need for need in spec.needs for name in parts.get(need.job, (need.job,))}
        needs = tuple(Need(job=name, artifacts=need.artifacts, optional=need.optional) for name, need in wanted.items())
        spec = msgspec.structs.replace(spec, needs=needs)
    if draft.parallel is None:
        yield spec
        return
    for index, name in enumerate(parts[spec.name], start=1):
        node = {"CI_NODE_INDEX": str(index), "CI_NODE_TOTAL": str(draft.parallel)}
        yield msgspec.structs.replace(spec, name=name, variables={**spec.variables, **node})


def _check_names(report: Report, drafts: Sequence[Draft]) -> dict[str, Draft]:
    """Every name a need may use, of a job as written and of its parts, with the job it belongs to."""
    names: dict[str, Draft] = {draft.spec.name: draft for draft in drafts}
    for draft in drafts:
        name = draft.spec.name
        if len(part_names(draft)[-1]) > MAX_NAME:
            report.add(draft.key, name, f"the name of a job has at most {MAX_NAME} characters", "shorten it")
        if draft.parallel is None:
            continue
        for part in part_names(draft):
            if part in names:
                message = f"has the name of a part of the parallel job on line {draft.key.line}"
                report.add(names[part].key, part, message, "rename it")
            names[part] = draft
    return names


def _check_needs(report: Report, drafts: Sequence[Draft], names: dict[str, Draft]) -> None:
    edges: dict[str, list[str]] = {}
    for draft in drafts:
        spec, path = draft.spec, inside(draft.spec.name, "needs")
        targets = edges.setdefault(spec.name, [])
        seen: set[str] = set()
        for need, place in zip(spec.needs or (), draft.need_places, strict=True):
            shown, target = quoted(need.job), names.get(need.job)
            if need.job in seen:
                report.add(place, path, f"needs {shown} twice", "keep one")
            elif target is draft:
                report.add(place, path, f"the job {shown} needs itself", "remove it")
            elif target is None:
                if not need.optional:
                    suggestion = nearest(need.job, names) or "name a job of this file, or make it optional"
                    report.add(place, path, f"unknown job {shown}", suggestion)
            elif 0 <= spec.stage_index < target.spec.stage_index:
                later = f"{shown} is in the later stage {quoted(target.spec.stage)}"
                report.add(place, path, later, "need jobs of the same or an earlier stage")
            else:
                targets.append(target.spec.name)
            seen.add(need.job)
    written = {draft.spec.name: draft for draft in drafts}
    for circle in circles(edges):
        draft = written[circle[-1]]
        place = next(
            place
            for need, place in zip(draft.spec.needs or (), draft.need_places, strict=True)
            if names.get(need.job) is written[circle[0]]
        )
        names_shown = (*circle[:10], "...") if len(circle) > 10 else (*circle, circle[0])
        trail = " -> ".join(map(printable, names_shown))
        report.add(place, inside(circle[-1], "needs"), f"needs run in a circle: {trail}", "remove one of them")
