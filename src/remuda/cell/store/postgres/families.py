"""Changes several pipelines with their jobs (families) in one PostgreSQL transaction. A function, the decision, gets a
family with the changes of earlier decisions and returns what to store. One that adds jobs, that changes an environment,
or whose jobs have resource groups, which all pipelines of a project share, needs its own transaction. Invariant:
pipelines are locked in the order of their ids, so that transactions cannot deadlock. A job is stored only if its row
still equals what was read."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from remuda.cell.core.jobs.environments import ends_use
from remuda.cell.errors import NotFoundError
from remuda.cell.store.postgres import job_statements
from remuda.cell.store.postgres.database import groups_by_column
from remuda.cell.store.postgres.pool import Connection
from remuda.cell.store.row_bodies import decode, decode_job
from remuda.cell.values import Family, Job, Pipeline
from remuda.cell.values.changes import Applied, Changes
from remuda.model.job import JobId, PipelineId

FAMILIES = (
    "SELECT pipeline_id, body FROM (SELECT id AS pipeline_id, 0 AS id, body FROM pipelines WHERE id = ANY($1::bigint[])"
    " UNION ALL SELECT pipeline_id, id, body FROM jobs WHERE pipeline_id = ANY($1::bigint[]) AND retried = 0)"
    " AS families ORDER BY pipeline_id, id"
)
"""One statement, so that a family is read at one moment."""


class FamilyDecision(msgspec.Struct, frozen=True):
    """A change of one pipeline: `decide` gets the stored pipeline with its jobs and returns the changes to store."""

    pipeline_id: PipelineId
    decide: Callable[[Family], Changes]


class FamilyChange(msgspec.Struct, frozen=True):
    """The result of a `FamilyDecision`: the family before it, and what was stored or the exception that it raised."""

    before: Family | None
    applied: Applied
    error: Exception | None = None


def lock_statement(pipeline_ids: Iterable[PipelineId]) -> str:
    ids = ", ".join(str(int(pipeline_id)) for pipeline_id in sorted(set(pipeline_ids)))
    return (
        f"SELECT FROM pipelines WHERE id IN ({ids}) ORDER BY id FOR NO KEY UPDATE;"
        f" SELECT pg_advisory_xact_lock({job_statements.PIPELINES_LOCK}, hash)"
        f" FROM (SELECT DISTINCT hashint8(id) AS hash FROM unnest('{{{ids}}}'::bigint[]) AS id ORDER BY 1) AS hashes"
    )


async def change_families(db: Connection, decisions: Sequence[FamilyDecision]) -> Sequence[FamilyChange | None]:
    """Call each decision with its stored pipeline and jobs, and store what it returns. The caller must have locked the
    pipelines. Returns the result of each decision; None if it was not stored, because it needs its own transaction."""
    fetched = await db.fetch(FAMILIES, sorted({decision.pipeline_id for decision in decisions}))
    families, bodies = read_families(fetched)
    changes, jobs, pipelines = apply_decisions(decisions, families)
    await job_statements.update_jobs(db, jobs, bodies)
    await job_statements.update_pipelines(db, pipelines)
    return changes


def read_families(rows: Iterable[Any]) -> tuple[dict[PipelineId, Family], Mapping[JobId, bytes]]:
    families: dict[PipelineId, tuple[Pipeline, list[Job]]] = {}
    bodies = {}
    for pipeline_id, body in rows:
        if pipeline_id not in families:
            families[pipeline_id] = decode(Pipeline, body), []
        else:
            job = decode_job(body)
            families[pipeline_id][1].append(job)
            bodies[job.id] = body
    return {
        pipeline_id: Family(pipeline=pipeline, jobs=tuple(jobs)) for pipeline_id, (pipeline, jobs) in families.items()
    }, bodies


def apply_decisions(
    decisions: Sequence[FamilyDecision], families: dict[PipelineId, Family]
) -> tuple[Sequence[FamilyChange | None], Sequence[Job], Sequence[Pipeline]]:
    """Call the decisions in order and update `families`, without storing. Returns the result of each (None: it needs
    its own transaction), and all changed jobs and pipelines."""
    results: list[FamilyChange | None] = []
    jobs: dict[JobId, Job] = {}
    pipelines: dict[PipelineId, Pipeline] = {}
    for decision in decisions:
        family = families.get(decision.pipeline_id)
        if family is None:
            error = NotFoundError(f"there is no pipeline {decision.pipeline_id}")
            results.append(FamilyChange(None, Applied(), error))
            continue
        if groups_by_column(family.jobs):
            results.append(None)
            continue
        try:
            changes = decision.decide(family)
        except Exception as error:  # noqa: BLE001 - raised again for the caller
            results.append(FamilyChange(family, Applied(), error))
            continue
        if changes.retries or any(map(ends_use, changes.jobs)):
            results.append(None)
            continue
        changed = {job.id: job for job in changes.jobs}
        jobs |= changed
        if changes.pipeline:
            pipelines[decision.pipeline_id] = changes.pipeline
        results.append(FamilyChange(family, Applied(jobs=changes.jobs, pipeline=changes.pipeline)))
        families[decision.pipeline_id] = replace(
            family,
            pipeline=changes.pipeline or family.pipeline,
            jobs=tuple(changed.get(job.id, job) for job in family.jobs),
        )
    return results, list(jobs.values()), list(pipelines.values())
