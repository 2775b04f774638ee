"""What a cell tidies up by itself: it archives traces, removes artifacts that have expired, what deleted projects ran,
blobs nobody knows of, and keys that no token needs any more.

Decided here: when to look, and in which order things go. A row goes before its blob and a blob stays until nothing
leads to it, so a crash leaves at worst a blob too many; such orphans are found a day later. A trace goes to the archive
when its job is over, and not before it was seen twice, so that a call which is still under way finds its file. How long
artifacts are kept is decided in `core.expiry`. `remuda.cell.service` runs `watch`.

Invariant: everything here may be done twice, by two processes at once, or not for a while.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from remuda.cell.blobs.port import Blobs
from remuda.cell.core.jobs import artifact_expiry
from remuda.cell.core.jobs.blob_keys import ARTIFACTS, TRACES, job_of_artifact, job_of_trace
from remuda.cell.errors import CellError
from remuda.cell.operations.retention import remove_pipeline
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
"""A blob that nothing leads to may be one whose row is about to be stored; after so long it is not."""
_BATCH = 100
_DEPTH = 20
"""How far up a pipeline's parents are looked for."""

FindRef = Callable[[Project, str], Awaitable[object | None]]
"""Whether a project has a ref: something, or None."""


class Upkeep:
    """A cell's housekeeping."""

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
        """Until told to stop: look again and again. A look may take long, so it is cut off: it may end anywhere."""
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._run(), name="cell upkeep: look")
            await stop.wait()
            looking.cancel()

    async def _run(self) -> None:
        orphans_at = -math.inf
        while True:
            try:
                await self.archive_traces()
                await self.remove_expired()
                await self.remove_old_audit_events()
                if retired := await retire(self._store, self._clock.now()):
                    self._log.info("keys of job tokens that are over were removed", keys=retired)
                if orphans_at <= self._clock.now():
                    await self.remove_deleted()
                    await self.remove_orphans()
                    orphans_at = self._clock.now() + ORPHAN_SECONDS
            except (CellError, OSError) as error:
                self._log.warning("the cell could not tidy up; it tries again", error=str(error))
            except Exception as error:  # noqa: BLE001 - a cell that cannot tidy up serves nevertheless
                self._log.error("the cell failed to tidy up", exc_info=error)
            await self._clock.sleep(self._settings.upkeep_seconds)

    # traces

    async def archive_traces(self) -> int:
        """Move the traces of jobs that are over; how many were moved."""
        moved = 0
        here = set(await self._traces.list_unarchived())
        for job_id in sorted(here & self._seen):
            await asyncio.sleep(0)  # rows may be read without a pause for anybody else
            job = await self._store.jobs.load_job(job_id)
            if job is not None and job.state in FINAL and not job.is_trigger:
                await self._archive(job)
                moved += 1
        self._seen = here
        return moved

    async def _archive(self, job: Job) -> None:
        if job.erased:
            await self._traces.remove(job.id)
            return
        if job.trace_checksum is None:
            # The process that ended the job died before this was stored.
            size, checksum = await self._traces.seal(job.id)
            await self._store.jobs.change_job(
                job.id,
                lambda row: replace(row, trace_bytes=size, trace_checksum=checksum) if not row.trace_checksum else None,
            )
        elif await self._traces.size(job.id) != job.trace_bytes:
            # A call that was under way for long, in another process perhaps, added to a sealed trace, or began a new
            # one beside the archive, which has the whole trace then.
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
        """Remove the artifacts whose time is over and that nothing keeps; how many were looked at."""
        looked = 0
        now = self._clock.now()
        while due := await self._store.jobs.list_due_artifacts(now, limit=_BATCH):
            for job_id in dict.fromkeys(artifact.job_id for artifact in due):
                await self._remove_expired_of(job_id, now)
            looked += len(due)
        return looked

    async def _remove_expired_of(self, job_id: JobId, now: float) -> None:
        job = await self._store.jobs.load_job(job_id)
        is_kept = job is not None and await self._is_kept(job)
        gone = await self._store.jobs.change_artifacts(
            job_id,
            lambda row, artifacts: artifact_expiry.without_expired(
                row, artifacts, now=now, default=self._settings.artifacts_expire_in, is_kept=is_kept
            ),
        )
        if gone:
            reach("cell.artifacts_expired")
            for artifact in gone:
                await self._blobs.remove(artifact.blob)
            self._log.info("artifacts expired", job=job_id, types=[artifact.type for artifact in gone])

    async def _is_kept(self, job: Job) -> bool:
        pipeline = await self._top_pipeline(job)
        if pipeline is None:
            return False
        wanted = PipelineFilter(ref=pipeline.ref, tag=pipeline.tag, statuses=("success",))
        newest, _ = await self._store.pipelines.list_pipelines(pipeline.project_id, Page(size=1, counted=False), wanted)
        project = await self._store.projects.load_project(pipeline.project_id)
        return artifact_expiry.keeps_artifacts(
            pipeline,
            newest=newest[0] if newest else None,
            has_ref=project is not None and await self._find_ref(project, pipeline.ref) is not None,
            keep_latest=self._settings.keep_latest_artifacts,
        )

    async def _top_pipeline(self, job: Job) -> Pipeline | None:
        """The pipeline that people see: a child belongs to its parent."""
        pipeline = await self._store.pipelines.load_pipeline(job.pipeline_id)
        for _ in range(_DEPTH):
            if pipeline is None or not pipeline.is_child or pipeline.upstream_pipeline_id is None:
                break
            pipeline = await self._store.pipelines.load_pipeline(pipeline.upstream_pipeline_id)
        return pipeline

    async def remove_old_audit_events(self) -> int:
        """Remove what has been in the audit log for long enough; how many events that were."""
        kept_for = parse_duration(self._settings.audit_expire_in)
        removed = 0
        while kept_for is not None:
            gone = await self._store.settings.remove_audit_events(self._clock.now() - kept_for, limit=_BATCH)
            removed += gone
            if gone < _BATCH:
                break
        return removed

    # deleted projects

    async def remove_deleted(self) -> int:
        """Remove the pipelines of deleted projects, with jobs, logs and artifacts, as they are over; how many."""
        removed, page = 0, Page(size=_BATCH, counted=False)
        while projects := (await self._store.projects.list_projects(page, ProjectFilter(removed=True)))[0]:
            for project in projects:
                for source in ("", "parent_pipeline"):
                    removed += await self._remove_pipelines(project, source)
            page = replace(page, number=page.number + 1)
        if removed:
            self._log.info("pipelines of deleted projects removed", pipelines=removed)
        return removed

    async def _remove_pipelines(self, project: Project, source: str) -> int:
        wanted, removed, page = PipelineFilter(source=source, statuses=tuple(sorted(OVER))), 0, Page(size=_BATCH)
        while True:
            before = removed
            for pipeline in (await self._store.pipelines.list_pipelines(project.id, page, wanted))[0]:
                waits = pipeline.upstream_job_id
                upstream = await self._store.jobs.load_job(waits) if waits is not None else None
                if upstream is None or upstream.state in FINAL:
                    await remove_pipeline(self._store, self._traces, self._blobs, pipeline.id)
                    removed += 1
            if removed == before:
                return removed

    # orphans

    async def remove_orphans(self) -> int:
        """Remove old blobs that nothing leads to; how many there were."""
        removed = 0
        before = self._clock.now() - ORPHAN_SECONDS
        for folder, is_known in ((ARTIFACTS, self._is_artifact), (TRACES, self._is_trace)):
            async for blob in self._blobs.list_below(folder):
                await asyncio.sleep(0)
                if blob.modified_at < before and not await is_known(blob.key):
                    await self._blobs.remove(blob.key)
                    removed += 1
        if removed:
            self._log.info("blobs removed that nothing leads to", blobs=removed)
        return removed

    async def _is_artifact(self, key: str) -> bool:
        job_id = job_of_artifact(key)
        known = await self._store.jobs.list_artifacts(job_id) if job_id is not None else ()
        return any(artifact.blob == key for artifact in known)

    async def _is_trace(self, key: str) -> bool:
        job_id = job_of_trace(key)
        job = await self._store.jobs.load_job(job_id) if job_id is not None else None
        return job is not None and not job.erased
