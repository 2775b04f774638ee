"""Decisions about several pipelines, or several about one, in one transaction of the PostgreSQL store.

Decided here: which of them can be stored together. Each is made on what those before it came to. One that raises
concerns only its caller. One that makes new jobs, or is about jobs with resource groups (which pipelines of a project
take from each other), is left to be made alone. `postgres` is the caller.

Invariant: pipelines are locked in the order of their ids, so that no two transactions wait for each other; a job is
stored only if it is still what was read.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace as replaced

from remuda.cell.errors import NotFoundError
from remuda.cell.store.ports import Applied, Changes
from remuda.cell.store.postgres import rows
from remuda.cell.store.postgres.database import groups_by_column
from remuda.cell.store.postgres.pool import Connection
from remuda.cell.store.row_bodies import decode, decode_job
from remuda.cell.values import Family, Job, Pipeline
from remuda.model.job import JobId, PipelineId

FAMILIES = (
    "SELECT pipeline_id, body FROM (SELECT id AS pipeline_id, 0 AS id, body FROM pipelines WHERE id = ANY($1::bigint[])"
    " UNION ALL SELECT pipeline_id, id, body FROM jobs WHERE pipeline_id = ANY($1::bigint[]) AND retried = 0)"
    " AS families ORDER BY pipeline_id, id"
)
"""In one statement, so that all of a family is of the same moment."""


class Wanted(msgspec.Struct, frozen=True):
    """A decision that somebody wants to have made about a pipeline."""

    pipeline_id: PipelineId
    decide: Callable[[Family], Changes]


class Made(msgspec.Struct, frozen=True):
    """What it was made on, and what it came to; or why it was not made."""

    before: Family | None
    applied: Applied
    error: Exception | None = None


def lock(pipeline_ids: Iterable[PipelineId]) -> str:
    """The statement that keeps others from deciding about these."""
    ids = ", ".join(str(int(one)) for one in sorted(set(pipeline_ids)))
    return (
        f"SELECT FROM pipelines WHERE id IN ({ids}) ORDER BY id FOR NO KEY UPDATE;"
        f" SELECT pg_advisory_xact_lock({rows.PIPELINES_LOCK}, hash) FROM (SELECT DISTINCT hashint8(id) AS hash"
        f" FROM unnest('{{{ids}}}'::bigint[]) AS id ORDER BY 1) AS hashes"
    )


async def change_families(db: Connection, wanted: Sequence[Wanted]) -> Sequence[Made | None]:
    """Make decisions about pipelines that are locked: what each came to; None: it has to be made alone."""
    found = await db.fetch(FAMILIES, sorted({one.pipeline_id for one in wanted}))
    families, bodies = read_families(found)
    made, jobs, pipelines = decided(wanted, families)
    await rows.update_jobs(db, jobs, bodies)
    await rows.update_pipelines(db, pipelines)
    return made


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


def decided(
    wanted: Sequence[Wanted], families: dict[PipelineId, Family]
) -> tuple[Sequence[Made | None], Sequence[Job], Sequence[Pipeline]]:
    """What each decision comes to after those before it, and all jobs and pipelines that are another then."""
    made: list[Made | None] = []
    jobs: dict[JobId, Job] = {}
    pipelines: dict[PipelineId, Pipeline] = {}
    for one in wanted:
        family = families.get(one.pipeline_id)
        if family is None:
            error = NotFoundError(f"there is no pipeline {one.pipeline_id}")
            made.append(Made(None, Applied(), error))
            continue
        if groups_by_column(family.jobs):
            made.append(None)
            continue
        try:
            changes = one.decide(family)
        except Exception as error:  # noqa: BLE001 - it is the caller's, who gets it
            made.append(Made(family, Applied(), error))
            continue
        if changes.retries:
            made.append(None)
            continue
        changed = {job.id: job for job in changes.jobs}
        jobs |= changed
        if changes.pipeline:
            pipelines[one.pipeline_id] = changes.pipeline
        made.append(Made(family, Applied(jobs=changes.jobs, pipeline=changes.pipeline)))
        families[one.pipeline_id] = replaced(
            family,
            pipeline=changes.pipeline or family.pipeline,
            jobs=tuple(changed.get(job.id, job) for job in family.jobs),
        )
    return made, list(jobs.values()), list(pipelines.values())
