"""Keeps or deletes the artifacts of a job, erases a job (its log and artifacts), and removes a pipeline. Users request
this; `remuda.cell.operations.upkeep` also removes the pipelines and LFS objects of deleted projects.

For artifacts and LFS objects, rows are changed before blobs are removed. If the process dies in between, blobs without
rows remain, which `upkeep` removes."""

from msgspec.structs import replace

from remuda.cell.blobs.port import Blobs
from remuda.cell.core.jobs import artifact_expiry
from remuda.cell.errors import InvalidError
from remuda.cell.store.ports import Store
from remuda.cell.traces.port import Traces
from remuda.cell.values import JobFilter, Page
from remuda.lib.killpoints import reach
from remuda.model.job import JobId, PipelineId, ProjectId

_BATCH = 100


async def keep_artifacts(store: Store, job_id: JobId) -> None:
    """Remove the expiry time of a job's artifacts, so that they are kept for ever."""
    await store.jobs.change_artifacts(job_id, artifact_expiry.keep_for_ever)


async def delete_artifacts(store: Store, blobs: Blobs, job_id: JobId) -> None:
    for artifact in await store.jobs.change_artifacts(job_id, artifact_expiry.delete_all):
        await blobs.remove(artifact.blob)


async def erase_job(store: Store, traces: Traces, blobs: Blobs, job_id: JobId, *, now: float) -> None:
    """Remove the log and the artifacts of a job. Raises InvalidError if the job does not exist, is not finished or has
    neither log nor artifacts."""
    job = await store.jobs.load_job(job_id)
    if job is None or not artifact_expiry.can_be_erased(
        job, has_artifacts=bool(await store.jobs.list_artifacts(job_id))
    ):
        raise InvalidError("the job has not ended, or there is nothing to erase")
    removed = await store.jobs.change_artifacts(
        job_id, lambda row, artifacts: artifact_expiry.erase(row, artifacts, now)
    )
    reach("cell.job_erased")
    for artifact in removed:
        await blobs.remove(artifact.blob)
    await traces.remove(job_id)


async def remove_pipeline(store: Store, traces: Traces, blobs: Blobs, pipeline_id: PipelineId) -> None:
    """Remove a pipeline with its jobs, logs and artifacts. The rows are removed last, so that the call can be repeated
    after a crash. The caller must have checked that the pipeline has ended."""
    page = Page(size=100, ascending=True, counted=False)
    selection = JobFilter(pipeline_id=pipeline_id, with_retried=True)
    while jobs := (await store.jobs.list_jobs(page, selection))[0]:
        for job in jobs:
            await delete_artifacts(store, blobs, job.id)
            await traces.remove(job.id)
        page = replace(page, after=jobs[-1].id)
    await store.pipelines.remove_pipeline(pipeline_id)


async def remove_lfs(store: Store, blobs: Blobs, project_id: ProjectId) -> None:
    """Remove all LFS objects and locks of a project. The caller must have checked that the project is deleted."""
    while objects := await store.lfs.list_objects(project_id, limit=_BATCH):
        for stored in objects:
            if await store.lfs.remove_object(project_id, stored.oid):
                reach("cell.lfs_object_removed")
                await blobs.remove(stored.blob)
    await store.lfs.remove_locks(project_id)
