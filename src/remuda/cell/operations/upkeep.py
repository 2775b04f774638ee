"""Periodic maintenance of a cell: archives job logs (traces) as blobs, and removes what is expired, orphaned or unused.

A row is removed before its blob, so a crash leaves at worst a blob without a row; such orphans are removed when they
are older than a day. A trace is archived in the second round of maintenance that finds it, if its job has ended. So a
request that is still writing to its file can finish.

Invariant: every part may run twice, in two processes at once, or late, without harm."""

import asyncio
import math
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from remuda.cell.blobs.port import Blobs
from remuda.cell.core.jobs import artifact_expiry
from remuda.cell.core.jobs.blob_keys import ARTIFACTS, LFS, TRACES, job_of_artifact, job_of_trace, lfs_object_of
from remuda.cell.errors import CellError
from remuda.cell.operations.retention import remove_lfs, remove_pipeline
from remuda.cell.projects.bots import remove_unused_bots
from remuda.cell.secrets.key_ring import retire
from remuda.cell.settings import CellSettings
from remuda.cell.store.ports import Store
from remuda.cell.traces.port import Traces
from remuda.cell.values import Job, Page, Pipeline, PipelineFilter, Project
from remuda.cell.values.people import ProjectFilter
from remuda.lib.clock import Clock
from remuda.lib.killpoints import reach
from remuda.model.job import FINAL, JobId
from remuda.model.progress import OVER
from remuda.pipeline.syntax.durations import parse_duration
from remuda.telemetry.logs import logger

ORPHAN_SECONDS = 24 * 3600
"""A younger blob without a row may be one whose row is about to be stored."""
_BATCH = 100
_DEPTH = 20
"""The maximum number of parents of a pipeline that are followed."""

FindRef = Callable[[Project, str], Awaitable[object | None]]
"""Returns None when the project has no such ref."""


class Upkeep:
    def __init__(
        self, *, store: Store, traces: Traces, blobs: Blobs, find_ref: FindRef, clock: Clock, settings: CellSettings
    ) -> None:
        self._store = store
        self._traces = traces
        self._blobs = blobs
        self._find_ref = find_ref
        self._clock = clock
        self._settings = settings
        self._seen: set[JobId] = set()
        self._log = logger("cell")

    async def watch(self, stop: asyncio.Event) -> None:
        """Run a round of maintenance every `upkeep_seconds` until `stop` is set, which cancels the current round."""
        async with asyncio.TaskGroup() as group:
            rounds = group.create_task(self._run(), name="cell upkeep: rounds")
            await stop.wait()
            rounds.cancel()

    async def _run(self) -> None:
        orphans_at = -math.inf
        while True:
            try:
                await self.archive_traces()
                await self.remove_expired()
                await self.remove_old_audit_events()
                await self._store.sessions.remove_expired(self._clock.wall(), limit=_BATCH)
                if retired := await retire(self._store, self._clock.now()):
                    self._log.info("removed unused signing keys of job tokens", keys=retired)
                if orphans_at <= self._clock.now():
                    await self.remove_deleted()
                    if bots := await remove_unused_bots(self._store, self._clock):
                        self._log.info("removed bots of unusable access tokens", bots=bots)
                    await self.remove_orphans()
                    orphans_at = self._clock.now() + ORPHAN_SECONDS
            except (CellError, OSError) as error:
                self._log.warning("periodic maintenance failed; trying again next round", error=str(error))
            except Exception as error:  # noqa: BLE001 - the cell serves nevertheless
                self._log.error("periodic maintenance failed unexpectedly; trying again next round", exc_info=error)
            await self._clock.sleep(self._settings.upkeep_seconds)

    # traces

    async def archive_traces(self) -> int:
        """Move logs of ended jobs that the previous call also saw to the blob storage. Returns how many."""
        moved = 0
        unarchived = set(await self._traces.list_unarchived())
        for job_id in sorted(unarchived & self._seen):
            await asyncio.sleep(0)  # a store in memory never yields to other tasks
            job = await self._store.jobs.load_job(job_id)
            if job is not None and job.state in FINAL and not job.is_trigger:
                await self._archive(job)
                moved += 1
        self._seen = unarchived
        return moved

    async def _archive(self, job: Job) -> None:
        if job.erased:
            await self._traces.remove(job.id)
            return
        if job.trace_checksum is None:
            # The process that ended the job died before it stored the checksum.
            size, checksum = await self._traces.seal(job.id)
            await self._store.jobs.change_job(
                job.id,
                lambda row: replace(row, trace_bytes=size, trace_checksum=checksum) if not row.trace_checksum else None,
            )
        elif await self._traces.size(job.id) != job.trace_bytes:
            # A late call, perhaps in another process, has added to a sealed trace, or has begun a new file although the
            # archive has the whole trace.
            size, checksum = await self._traces.seal(job.id)
            if size > job.trace_bytes:
                await self._store.jobs.change_job(
                    job.id,
                    lambda row: None if row.erased else replace(row, trace_bytes=size, trace_checksum=checksum),
                )
        reach("cell.trace_sealed")
        await self._traces.archive(job.id)
        reach("cell.trace_archived")
        row = await self._store.jobs.load_job(job.id)
        if row is not None and row.erased:
            await self._traces.remove(job.id)

    # artifacts

    async def remove_expired(self) -> int:
        """Remove expired artifacts, unless `artifact_expiry.keeps_artifacts` is true. Returns the number checked."""
        checked = 0
        now = self._clock.now()
        while due := await self._store.jobs.list_due_artifacts(now, limit=_BATCH):
            for job_id in dict.fromkeys(artifact.job_id for artifact in due):
                await self._remove_expired_of(job_id, now)
            checked += len(due)
        return checked

    async def _remove_expired_of(self, job_id: JobId, now: float) -> None:
        job = await self._store.jobs.load_job(job_id)
        is_kept = job is not None and await self._is_kept(job)
        removed = await self._store.jobs.change_artifacts(
            job_id,
            lambda row, artifacts: artifact_expiry.without_expired(
                row, artifacts, now=now, default=self._settings.artifacts_expire_in, is_kept=is_kept
            ),
        )
        if removed:
            reach("cell.artifacts_expired")
            for artifact in removed:
                await self._blobs.remove(artifact.blob)
            self._log.info("removed expired artifacts", job=job_id, types=[artifact.type for artifact in removed])

    async def _is_kept(self, job: Job) -> bool:
        pipeline = await self._top_pipeline(job)
        if pipeline is None:
            return False
        selection = PipelineFilter(ref=pipeline.ref, tag=pipeline.tag, statuses=("success",))
        newest, _ = await self._store.pipelines.list_pipelines(
            pipeline.project_id, Page(size=1, counted=False), selection
        )
        project = await self._store.projects.load_project(pipeline.project_id)
        return artifact_expiry.keeps_artifacts(
            pipeline,
            newest=newest[0] if newest else None,
            has_ref=project is not None and await self._find_ref(project, pipeline.ref) is not None,
            keep_latest=self._settings.keep_latest_artifacts and (project is None or project.keep_latest_artifact),
        )

    async def _top_pipeline(self, job: Job) -> Pipeline | None:
        """Return the pipeline of a job; if that is a child pipeline, its topmost parent."""
        pipeline = await self._store.pipelines.load_pipeline(job.pipeline_id)
        for _ in range(_DEPTH):
            if pipeline is None or not pipeline.is_child or pipeline.upstream_pipeline_id is None:
                break
            pipeline = await self._store.pipelines.load_pipeline(pipeline.upstream_pipeline_id)
        return pipeline

    async def remove_old_audit_events(self) -> int:
        """Remove audit events older than the setting `audit_expire_in`, none if it is `never`. Returns how many."""
        kept_for = parse_duration(self._settings.audit_expire_in)
        removed = 0
        while kept_for is not None:
            count = await self._store.settings.remove_audit_events(self._clock.now() - kept_for, limit=_BATCH)
            removed += count
            if count < _BATCH:
                break
        return removed

    # deleted projects

    async def remove_deleted(self) -> int:
        """Remove LFS objects and locks of deleted projects, and their ended pipelines, unless their trigger job still
        runs. Returns the number of pipelines."""
        removed, page = 0, Page(size=_BATCH, counted=False)
        while projects := (await self._store.projects.list_projects(page, ProjectFilter(removed=True)))[0]:
            for project in projects:
                await remove_lfs(self._store, self._blobs, project.id)
                await self._store.deployments.remove_of_project(project.id)
                for source in ("", "parent_pipeline"):
                    removed += await self._remove_pipelines(project, source)
            page = replace(page, number=page.number + 1)
        if removed:
            self._log.info("removed pipelines of deleted projects", pipelines=removed)
        return removed

    async def _remove_pipelines(self, project: Project, source: str) -> int:
        removed, selection = 0, PipelineFilter(source=source, statuses=tuple(sorted(OVER)))
        page = Page(size=_BATCH, ascending=True, counted=False)
        while pipelines := (await self._store.pipelines.list_pipelines(project.id, page, selection))[0]:
            for pipeline in pipelines:
                upstream_id = pipeline.upstream_job_id
                upstream = await self._store.jobs.load_job(upstream_id) if upstream_id is not None else None
                if upstream is None or upstream.state in FINAL:
                    await remove_pipeline(self._store, self._traces, self._blobs, pipeline.id)
                    removed += 1
            page = replace(page, after=pipelines[-1].id)
        return removed

    # orphans

    async def remove_orphans(self) -> int:
        """Remove blobs older than a day that no row in the database refers to. Returns how many."""
        removed = 0
        before = self._clock.now() - ORPHAN_SECONDS
        kinds = ((ARTIFACTS, self._is_artifact), (TRACES, self._is_trace), (LFS, self._is_lfs))
        for folder, is_known in kinds:
            async for blob in self._blobs.list_below(folder):
                await asyncio.sleep(0)
                if blob.modified_at < before and not await is_known(blob.key):
                    await self._blobs.remove(blob.key)
                    removed += 1
        if removed:
            self._log.info("removed blobs that no database row names", blobs=removed)
        return removed

    async def _is_artifact(self, key: str) -> bool:
        job_id = job_of_artifact(key)
        artifacts = await self._store.jobs.list_artifacts(job_id) if job_id is not None else ()
        return any(artifact.blob == key for artifact in artifacts)

    async def _is_trace(self, key: str) -> bool:
        job_id = job_of_trace(key)
        job = await self._store.jobs.load_job(job_id) if job_id is not None else None
        return job is not None and not job.erased

    async def _is_lfs(self, key: str) -> bool:
        if (found := lfs_object_of(key)) is None:
            return False
        project_id, oid = found
        stored = (await self._store.lfs.find_objects(project_id, [oid])).get(oid)
        return stored is not None and stored.blob == key
