"""What people do with what a job left: keep it for ever, delete it, erase the whole job.

Decided here is the order alone: the store first, then the blobs. What dies between leaves blobs that nobody gets any
more, and `remuda.cell.upkeep` removes them. What a job has left afterwards is decided in `core.expiry`.
"""

from remuda.cell.core import expiry
from remuda.cell.errors import InvalidError
from remuda.cell.ports import Blobs, Store, Traces
from remuda.lib.killpoints import reach
from remuda.model.job import JobId


async def keep_artifacts(store: Store, job_id: JobId) -> None:
    """They do not expire any more."""
    await store.change_artifacts(job_id, expiry.kept)


async def delete_artifacts(store: Store, blobs: Blobs, job_id: JobId) -> None:
    """All of a job's."""
    for artifact in await store.change_artifacts(job_id, expiry.deleted):
        await blobs.remove(artifact.blob)


async def erase_job(store: Store, traces: Traces, blobs: Blobs, job_id: JobId, *, now: float) -> None:
    """Remove trace and artifacts; InvalidError when the job is not over or has neither."""
    job = await store.job(job_id)
    if job is None or not expiry.can_be_erased(job, has_artifacts=bool(await store.artifacts(job_id))):
        raise InvalidError("the job is not over, or there is nothing to erase")
    gone = await store.change_artifacts(job_id, lambda row, artifacts: expiry.erased(row, artifacts, now))
    reach("cell.job_erased")
    for artifact in gone:
        await blobs.remove(artifact.blob)
    await traces.remove(job_id)
