"""Makes the final list of jobs: evaluates their rules, expands `parallel`, and resolves needs to jobs of the pipeline.

Runs after `job_checks`, which has limited the size, so that a small file cannot expand to gigabytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from remuda.pipeline.errors import Report, quote
from remuda.pipeline.keywords.job import Draft
from remuda.pipeline.keywords.needs import Needs, WrittenNeed
from remuda.pipeline.keywords.variables import Variables
from remuda.pipeline.rules.clauses import Judge
from remuda.pipeline.rules.job_rules import AllowFailure, Verdict, judge_job
from remuda.pipeline.spec import JobSpec, LeftOut, Need
from remuda.pipeline.syntax.typed_values import inside
from remuda.pipeline.syntax.variable_expansion import ExpansionError

MAX_NAME = 255

_RAISE = "need fewer jobs, order by stages, or raise the limit with REMUDA_NEEDS_LIMIT"

_MATRIX = re.compile(r"\$\[\[\s*matrix\.(\w+)\s*\]\]", re.ASCII)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the pipeline, or one part of a parallel job, before its needs are resolved."""

    draft: Draft
    spec: JobSpec
    needs: Needs | None
    matrix: Mapping[str, str] = {}
    """Its values of the matrix; empty without one."""


def select_jobs(
    report: Report, judge: Judge, drafts: Sequence[Draft], *, workflow_rules: bool
) -> tuple[list[Part], list[LeftOut]]:
    """Evaluate the rules of all jobs. Returns the jobs of the pipeline, and those that are left out with the reasons.
    `workflow_rules`: the file has `workflow:rules`."""
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
    """Return the job's own name or, for a parallel job, `name 1/N` to `name N/N` or `name: [a, b]` and so on."""
    return draft.parallel.names(draft.spec.name) if draft.parallel else (draft.spec.name,)


def _part(report: Report, judge: Judge, draft: Draft, name: str, index: int, *, workflow_rules: bool) -> Part | str:
    """Evaluate the rules of a job, or of part `index` of a parallel job. Returns the part, or why it is left out."""
    spec = draft.spec
    own = draft.variables
    if draft.parallel:
        own = Variables(values=draft.parallel.variables(index)).over(own)
    # Predefined variables of the job that its rules and tags can use.
    of_job = {"CI_JOB_NAME": name, "CI_JOB_STAGE": spec.stage, "CI_NODE_TOTAL": "1"}
    visible = own.over(Variables(values=of_job, raw=frozenset(of_job)))
    by_job = Verdict(
        when=spec.when,
        start_in_seconds=spec.start_in_seconds,
        # A manual job does not block the pipeline unless the file says so.
        allow_failure=draft.allow_failure or AllowFailure(always=spec.when == "manual"),
        variables=Variables(),
        needs=draft.needs,
        interruptible=draft.interruptible,
    )
    verdict = judge_job(judge, draft.conditions, visible, by_job, workflow_rules=workflow_rules)
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
        tags=_tags(report, judge, draft, verdict.variables.over(visible)),
        outside_needs=verdict.needs.outside if verdict.needs else (),
        rule=verdict.rule,
    )
    matrix = draft.parallel.matrix[index] if draft.parallel and draft.parallel.matrix else {}
    return Part(draft=draft, spec=spec, needs=verdict.needs, matrix=matrix)


def _tags(report: Report, judge: Judge, draft: Draft, own: Variables) -> tuple[str, ...]:
    """Expand variables in the tags, which decide which runner gets the job. `own`: variables of file and job."""
    tags = draft.spec.tags
    if not any("$" in tag for tag in tags):
        return tags
    expansion = judge.expansion(own, keep_unknown=True)
    try:
        return tuple(expansion.expand(tag) for tag in tags)
    except ExpansionError as error:
        report.add(draft.key, draft.spec.name, f"a tag {error}", "use shorter variables")
        return tags


def connect_jobs(report: Report, parts: Sequence[Part], needs_limit: int) -> tuple[JobSpec, ...]:
    """Resolve needs and dependencies to jobs of the pipeline. Raises `PipelineError` if a needed job is not in it, if a
    job needs more than `needs_limit` jobs, or if its name is too long."""
    by_draft: dict[str, list[Part]] = {}
    for part in parts:
        by_draft.setdefault(part.draft.spec.name, []).append(part)
    by_name = {part.spec.name: part for part in parts}
    jobs: list[JobSpec] = []
    for part in parts:
        spec = part.spec
        if len(spec.name) > MAX_NAME:
            message = f"the name of a job has at most {MAX_NAME} characters"
            report.add(part.draft.key, part.draft.spec.name, message, "shorten it")
        if part.needs is not None and part.needs.inside is not None:
            needs: dict[str, Need] = {}
            for written in part.needs.inside:
                # A need of a parallel job means all its parts; a part that is also named alone counts once.
                for name in _resolve_need(report, written, part, by_draft, by_name):
                    needs[name] = msgspec.structs.replace(written.need, job=name)
            spec = msgspec.structs.replace(spec, needs=tuple(needs.values()))
            if len(needs) > needs_limit:
                message = f"the job needs {len(needs)} jobs, and at most {needs_limit} are allowed"
                path = inside(part.draft.spec.name, "needs")
                report.add(part.draft.key, path, message, _RAISE)
        if spec.dependencies:
            names = [each for name in spec.dependencies for each in _jobs_named(name, by_draft, by_name)]
            spec = msgspec.structs.replace(spec, dependencies=tuple(dict.fromkeys(names)))
        jobs.append(spec)
    report.finish()
    return tuple(jobs)


def _jobs_named(name: str, by_draft: Mapping[str, list[Part]], by_name: Mapping[str, Part]) -> list[str]:
    """Return the names of the jobs that `name` means: one job, or all parts of a parallel job; empty if there is none.
    `by_draft` has the parts by the name in the file, `by_name` by their final name."""
    return [part.spec.name for part in by_draft.get(name, ())] or ([name] if name in by_name else [])


def _resolve_need(
    report: Report,
    written: WrittenNeed,
    part: Part,
    by_draft: Mapping[str, list[Part]],
    by_name: Mapping[str, Part],
) -> list[str]:
    """Return the names of the jobs that a need of `part` refers to. If there are none, reports a mistake or, if the
    need is optional, returns its name as written. `by_draft`: the parts of each job, by its name in the file.
    `by_name`: the parts by their final name."""
    need = written.need
    if need.job in by_name and need.job not in by_draft:
        return [need.job]
    targets = by_draft.get(need.job, [])
    if written.parallel is not None:
        sets = [_fill_matrix(values, part.matrix) for values in written.parallel.matrix]
        targets = [target for target in targets if any(values.items() <= target.matrix.items() for values in sets)]
    if targets:
        return [target.spec.name for target in targets]
    if need.optional:
        # Kept, so that the job shows what it would have waited for.
        return [need.job]
    path = f"{part.draft.spec.name}:needs"
    message = f"the job {quote(need.job)} is not in this pipeline: its rules leave it out"
    if written.parallel is not None and need.job in by_draft:
        message = f"no part of {quote(need.job)} has these values"
    report.add(written.at, path, message, "make the need optional, or give both jobs the same rules")
    return []


def _fill_matrix(values: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Replace `$[[ matrix.NAME ]]` in a need's matrix by the matrix values `own` of the job that has the need."""
    return {name: _MATRIX.sub(lambda match: own.get(match[1], ""), value) for name, value in values.items()}
