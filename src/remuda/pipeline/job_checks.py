"""Checks the jobs of a file against each other: names, needs, dependencies, and the size of the pipeline.

These mistakes do not depend on the facts (ref, event, variables)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from remuda.pipeline.errors import Report, printable, quote
from remuda.pipeline.graph import circles
from remuda.pipeline.job_list import part_names
from remuda.pipeline.keywords.job import Draft
from remuda.pipeline.keywords.needs import Needs, WrittenNeed
from remuda.pipeline.syntax.known_keys import nearest
from remuda.pipeline.syntax.typed_values import inside

MAX_JOBS = 10_000
MAX_CHARACTERS = 64 * 1024 * 1024

_OVERHEAD = 32
"""Added for each job and list entry, so that very many empty ones count, too."""


class Budget:
    """Stops the compilation of a pipeline that is too large: inherited scripts and variables multiply its size."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._jobs = 0
        self._characters = 0

    def take(self, draft: Draft) -> None:
        """Add a job, with all parts of a parallel job, to the pipeline's size; stops the compilation if too large."""
        spec = draft.spec
        self._jobs += draft.parts
        if self._jobs > MAX_JOBS:
            self._stop(draft, f"the pipeline has more than {MAX_JOBS} jobs", "use fewer jobs")
        texts = [*spec.script, *spec.after_script, *spec.tags, *spec.variables, *spec.variables.values()]
        data = (spec.image, spec.services, spec.cache, spec.hooks, spec.run, spec.secrets, spec.id_tokens, spec.pages)
        more = (spec.release, spec.artifacts, spec.environment, spec.trigger, spec.manual_confirmation, spec.inputs)
        size = sum(map(len, texts)) + _OVERHEAD * len(texts) + _measure(data) + _measure(more)
        self._spend(draft, size * draft.parts)

    def take_needs(self, draft: Draft, names: Mapping[str, Draft]) -> None:
        """Add a job's needs to the pipeline's size, each once for every part of the job and of the needed job; stops
        the compilation if too large. `names`: the jobs by every name that a need can use."""
        for needs in _all_needs(draft):
            self._spend(draft, _measure(needs.outside) * draft.parts)
            for written in needs.inside or ():
                target = names.get(written.need.job)
                times = target.parts if target else 1
                if written.parallel is not None:
                    times *= written.parallel.count
                self._spend(draft, (len(written.need.job) + _OVERHEAD) * times * draft.parts)

    def _spend(self, draft: Draft, characters: int) -> None:
        self._characters += characters
        if self._characters > MAX_CHARACTERS:
            message = f"the jobs have more than {MAX_CHARACTERS} characters together"
            self._stop(draft, message, "use shorter scripts and variables, or fewer jobs and needs")

    def _stop(self, draft: Draft, message: str, suggestion: str) -> None:
        self._report.stop(draft.key, draft.spec.name, message, suggestion)


def _measure(data: object) -> int:
    """Estimate how many characters structs and JSON-like data would have as text. Does not make the text, because with
    aliases a short file can give gigabytes of it."""
    if isinstance(data, str):
        return len(data) + 4
    if isinstance(data, dict):
        return 4 + sum(_measure(key) + _measure(value) for key, value in data.items())
    if isinstance(data, (list, tuple)):
        return 4 + sum(map(_measure, data))
    return _measure(msgspec.structs.astuple(data)) if isinstance(data, msgspec.Struct) else 4


def check_jobs(report: Report, drafts: Sequence[Draft], budget: Budget) -> None:
    """Report mistakes in names, needs, dependencies and `environment:on_stop`; add the size of needs to `budget`."""
    names = _check_names(report, drafts)
    _check_needs(report, drafts, names)
    _check_dependencies(report, drafts, names)
    _check_environments(report, drafts, names)
    for draft in drafts:
        budget.take_needs(draft, names)


def _check_names(report: Report, drafts: Sequence[Draft]) -> dict[str, Draft]:
    """Report names that are used twice. Returns the jobs by their own and their parallel parts' names."""
    names: dict[str, Draft] = {draft.spec.name: draft for draft in drafts}
    for draft in drafts:
        name = draft.spec.name
        parts = part_names(draft)
        if draft.parallel is None:
            continue
        own: set[str] = set()
        for part in parts:
            if part in own:
                report.add(draft.key, inside(name, "parallel"), f"two parts are called {quote(part)}", "remove one")
            elif part in names:
                message = f"has the name of a part of the parallel job on line {draft.key.line}"
                report.add(names[part].key, part, message, "rename it")
            own.add(part)
            names[part] = draft
    return names


def _all_needs(draft: Draft) -> Iterator[Needs]:
    if draft.needs is not None:
        yield draft.needs
    for rule in draft.conditions.rules or ():
        if rule.needs is not None:
            yield rule.needs


def _check_needs(report: Report, drafts: Sequence[Draft], names: dict[str, Draft]) -> None:
    edges: dict[str, list[str]] = {}
    for draft in drafts:
        spec, path = draft.spec, inside(draft.spec.name, "needs")
        targets = edges.setdefault(spec.name, [])
        for needs in _all_needs(draft):
            seen: set[str] = set()
            for written in needs.inside or ():
                need, place = written.need, written.at
                name, target = quote(need.job), names.get(need.job)
                if need.job in seen and written.parallel is None:
                    report.add(place, path, f"needs {name} twice", "keep one")
                elif target is draft:
                    report.add(place, path, f"the job {name} needs itself", "remove it")
                elif target is None:
                    if not need.optional:
                        suggestion = nearest(need.job, names) or "name a job of this file, or make it optional"
                        report.add(place, path, f"unknown job {name}", suggestion)
                elif 0 <= spec.stage_index < target.spec.stage_index:
                    later = f"{name} is in the later stage {quote(target.spec.stage)}"
                    report.add(place, path, later, "need jobs of the same or an earlier stage")
                else:
                    _check_matrix(report, written, target, path)
                    targets.append(target.spec.name)
                seen.add(need.job)
    _check_circles(report, drafts, names, edges)


def _check_matrix(report: Report, written: WrittenNeed, target: Draft, path: str) -> None:
    if written.parallel is not None and not (target.parallel and target.parallel.matrix):
        message = f"{quote(written.need.job)} has no parallel:matrix"
        report.add(written.at, inside(path, "parallel"), message, "remove the matrix from the need")


def _check_circles(
    report: Report, drafts: Sequence[Draft], names: Mapping[str, Draft], edges: Mapping[str, Sequence[str]]
) -> None:
    by_name = {draft.spec.name: draft for draft in drafts}
    for circle in circles(edges):
        draft = by_name[circle[-1]]
        place = next(
            written.at
            for needs in _all_needs(draft)
            for written in needs.inside or ()
            if names.get(written.need.job) is by_name[circle[0]]
        )
        trail_names = (*circle[:10], "...") if len(circle) > 10 else (*circle, circle[0])
        trail = " -> ".join(map(printable, trail_names))
        report.add(place, inside(circle[-1], "needs"), f"needs run in a circle: {trail}", "remove one of them")


def _check_dependencies(report: Report, drafts: Sequence[Draft], names: Mapping[str, Draft]) -> None:
    for draft in drafts:
        spec = draft.spec
        needed = {written.need.job for written in draft.needs.inside or ()} if draft.needs else None
        for name in spec.dependencies or ():
            at, path = draft.entries["dependencies"].value, inside(spec.name, "dependencies")
            target = names.get(name)
            if target is None:
                suggestion = nearest(name, names) or "name a job of an earlier stage"
                report.add(at, path, f"unknown job {quote(name)}", suggestion)
            elif needed is not None and draft.needs and draft.needs.inside is not None:
                if name not in needed and target.spec.name not in needed:
                    report.add(at, path, f"{quote(name)} is not among the needs", "need it too")
            elif 0 <= spec.stage_index < target.spec.stage_index:
                message = f"{quote(name)} is in the later stage {quote(target.spec.stage)}"
                report.add(at, path, message, "artifacts come from jobs that are done before this one starts")
            elif spec.stage_index == target.spec.stage_index:
                message = f"{quote(name)} is in the same stage, so its artifacts are not downloaded"
                report.warn(at, path, message, "need the job, too, or move it to an earlier stage")


def _check_environments(report: Report, drafts: Sequence[Draft], names: Mapping[str, Draft]) -> None:
    """Report `on_stop` if the job does not exist, or does not stop the same environment."""
    for draft in drafts:
        environment = draft.spec.environment
        if environment is None or not environment.on_stop:
            continue
        at, path = draft.entries["environment"].value, inside(draft.spec.name, "environment:on_stop")
        name, target = quote(environment.on_stop), names.get(environment.on_stop)
        stopped = target.spec.environment if target is not None else None
        if target is None:
            suggestion = nearest(environment.on_stop, names) or "name the job that stops the environment"
            report.add(at, path, f"unknown job {name}", suggestion)
        elif stopped is None:
            report.add(at, path, f"the job {name} has no environment", 'give it the same one, with "action: stop"')
        elif stopped.name != environment.name:
            report.add(at, path, f"the job {name} has another environment", "give it the same one")
        elif stopped.action != "stop":
            report.add(at, path, f'the job {name} must have "action: stop"', "set it in its environment")
