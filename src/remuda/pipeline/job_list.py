"""From drafted jobs to the final list: who is in the pipeline, needs checked against the others, `parallel` unfolded.

Decided here: what a need may name, what a job becomes once its conditions are judged, and how large a pipeline may
become. Called by `compile` after every job has been read on its own.

Invariant: nothing is unfolded before its size is known to be within bounds, so that a small file cannot ask
for gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from remuda.pipeline.errors import Report, quote
from remuda.pipeline.keywords.job import Draft
from remuda.pipeline.keywords.needs import Needs, Wanted
from remuda.pipeline.keywords.variables import Variables
from remuda.pipeline.rules.clauses import Judge
from remuda.pipeline.rules.job_rules import AllowFailure, Verdict, judge_job
from remuda.pipeline.spec import JobSpec, LeftOut, Need
from remuda.pipeline.syntax.variable_expansion import ExpansionError

_MATRIX = re.compile(r"\$\[\[\s*matrix\.(\w+)\s*\]\]", re.ASCII)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is in the pipeline, before its needs are final."""

    draft: Draft
    spec: JobSpec
    needs: Needs | None
    # Which set of the matrix it is; empty for all other jobs.
    matrix: Mapping[str, str] = {}


def judged(
    report: Report, judge: Judge, drafts: Sequence[Draft], *, workflow_rules: bool
) -> tuple[list[Part], list[LeftOut]]:
    """The jobs that are in the pipeline, parallel ones in their parts, and those that are not."""
    parts: list[Part] = []
    left_out: list[LeftOut] = []
    for draft in drafts:
        names = part_names(draft)
        reasons: dict[str, str] = {}
        for index, name in enumerate(names):
            part = _part(report, judge, draft, name, index, workflow_rules=workflow_rules)
            if isinstance(part, Part):
                parts.append(part)
            else:
                reasons[name] = part
        if len(reasons) == len(names) and len(set(reasons.values())) == 1:
            reasons = {draft.spec.name: reasons[names[0]]}
        key = draft.key
        left_out += (LeftOut(name=n, reason=why, line=key.line, file=key.file) for n, why in reasons.items())
    return parts, left_out


def part_names(draft: Draft) -> tuple[str, ...]:
    """What the job is called once unfolded: itself, or `name 1/N` to `name N/N`, or `name: [a, b]` and so on."""
    return draft.parallel.names(draft.spec.name) if draft.parallel else (draft.spec.name,)


def _part(report: Report, judge: Judge, draft: Draft, name: str, index: int, *, workflow_rules: bool) -> Part | str:
    """A job, or a part of one, or why it is not in the pipeline."""
    spec = draft.spec
    own = draft.variables
    if draft.parallel:
        own = Variables(values=draft.parallel.variables(index)).over(own)
    # What is known of the job before it is made; only rules and tags need to see it.
    of_job = {"CI_JOB_NAME": name, "CI_JOB_STAGE": spec.stage, "CI_NODE_TOTAL": "1"}
    seen = own.over(Variables(values=of_job, raw=frozenset(of_job)))
    by_job = Verdict(
        when=spec.when,
        start_in_seconds=spec.start_in_seconds,
        # A manual job that nobody starts must not hold up the pipeline, unless the file says so.
        allow_failure=draft.allow_failure or AllowFailure(always=spec.when == "manual"),
        variables=Variables(),
        needs=draft.needs,
        interruptible=draft.interruptible,
    )
    explicit = draft.allow_failure is not None
    verdict = judge_job(judge, draft.conditions, seen, by_job, explicit=explicit, workflow_rules=workflow_rules)
    if isinstance(verdict, str):
        return verdict
    own = verdict.variables.over(own)
    spec = msgspec.structs.replace(
        spec,
        name=name,
        written_name=draft.spec.name if name != draft.spec.name else "",
        variables=own.values,
        raw_variables=tuple(sorted(own.raw)),
        when=verdict.when,
        start_in_seconds=verdict.start_in_seconds if verdict.when == "delayed" else None,
        allow_failure=verdict.allow_failure.always,
        allow_failure_exit_codes=verdict.allow_failure.exit_codes,
        interruptible=bool(verdict.interruptible),
        tags=_tags(report, judge, draft, verdict.variables.over(seen)),
        outside_needs=verdict.needs.outside if verdict.needs else (),
        rule=verdict.rule,
    )
    matrix = draft.parallel.matrix[index] if draft.parallel and draft.parallel.matrix else {}
    return Part(draft=draft, spec=spec, needs=verdict.needs, matrix=matrix)


def _tags(report: Report, judge: Judge, draft: Draft, own: Variables) -> tuple[str, ...]:
    """Tags are the one thing of a job that a runner cannot expand: it does not have the job yet."""
    tags = draft.spec.tags
    if not any("$" in tag for tag in tags):
        return tags
    expansion = judge.expansion(own, keep_unknown=True)
    try:
        return tuple(expansion.expand(tag) for tag in tags)
    except ExpansionError as error:
        report.add(draft.key, draft.spec.name, f"a tag {error}", "use shorter variables")
        return tags


def connected(report: Report, parts: Sequence[Part]) -> tuple[JobSpec, ...]:
    """The jobs with their needs and dependencies as names of jobs that are there."""
    there: dict[str, list[Part]] = {}
    for part in parts:
        there.setdefault(part.draft.spec.name, []).append(part)
    by_name = {part.spec.name: part for part in parts}
    jobs: list[JobSpec] = []
    for part in parts:
        spec = part.spec
        if part.needs is not None and part.needs.inside is not None:
            needs: dict[str, Need] = {}
            for wanted in part.needs.inside:
                # A need of a parallel job means all its parts; one that is also named alone counts once.
                for name in _meant(report, wanted, part, there, by_name):
                    given = wanted.need
                    needs[name] = Need(job=name, artifacts=given.artifacts, optional=given.optional)
            spec = msgspec.structs.replace(spec, needs=tuple(needs.values()))
        if spec.dependencies:
            found = [each for name in spec.dependencies for each in _present(name, there, by_name)]
            spec = msgspec.structs.replace(spec, dependencies=tuple(dict.fromkeys(found)))
        jobs.append(spec)
    report.finish()
    return tuple(jobs)


def _present(name: str, there: Mapping[str, list[Part]], by_name: Mapping[str, Part]) -> list[str]:
    """The jobs of the pipeline that a name stands for."""
    return [part.spec.name for part in there.get(name, ())] or ([name] if name in by_name else [])


def _meant(
    report: Report,
    wanted: Wanted,
    part: Part,
    there: Mapping[str, list[Part]],
    by_name: Mapping[str, Part],
) -> list[str]:
    """The names of the jobs a need stands for."""
    need = wanted.need
    if need.job in by_name and need.job not in there:
        return [need.job]
    targets = there.get(need.job, [])
    if wanted.parallel is not None:
        sets = [_filled(chosen, part.matrix) for chosen in wanted.parallel.matrix]
        targets = [target for target in targets if any(chosen.items() <= target.matrix.items() for chosen in sets)]
    if targets:
        return [target.spec.name for target in targets]
    if need.optional:
        # Kept as written: whoever looks at the job sees what it would have waited for.
        return [need.job]
    path = f"{part.draft.spec.name}:needs"
    message = f"the job {quote(need.job)} is not in this pipeline: its rules leave it out"
    if wanted.parallel is not None and need.job in there:
        message = f"no part of {quote(need.job)} has these values"
    report.add(wanted.at, path, message, "make the need optional, or give both jobs the same rules")
    return []


def _filled(chosen: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The values of a need's matrix, `$[[ matrix.NAME ]]` replaced by the needing job's own."""
    return {name: _MATRIX.sub(lambda found: own.get(found[1], ""), value) for name, value in chosen.items()}
