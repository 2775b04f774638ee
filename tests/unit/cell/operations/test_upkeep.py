"""The cell's upkeep in virtual time: archived traces, expired artifacts, orphaned blobs, deleted projects."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from remuda.cell.blobs.memory import MemoryBlobs
from remuda.cell.core.jobs.artifact_expiry import LOOK_AGAIN_SECONDS, with_expiry
from remuda.cell.core.jobs.blob_keys import lfs_key, trace_key
from remuda.cell.dispatch.handout import NoJob
from remuda.cell.errors import InvalidError
from remuda.cell.operations.retention import delete_artifacts, erase_job, keep_artifacts
from remuda.cell.operations.upkeep import ORPHAN_SECONDS, Upkeep
from remuda.cell.settings import CellSettings
from remuda.cell.values import USER_ID, Artifact, Job, Page, Pipeline, Project
from remuda.cell.values.audit_events import AuditEvent
from remuda.cell.values.deployments import Environment
from remuda.cell.values.lfs import LfsLock, LfsObject
from remuda.cell.values.sessions import SignInLink, WebSession
from remuda.lib.clock import settle
from remuda.model.job import JobId, ProjectId
from remuda.testing.builders import a_pipeline, a_spec, an_artifact
from remuda.testing.memory_cell import MemoryCell

DAY = 86_400.0


@dataclass
class Bench:
    """A cell with blobs that use its clock, and its upkeep."""

    cell: MemoryCell
    blobs: MemoryBlobs
    refs: set[str]

    def upkeep(self, **settings: object) -> Upkeep:
        async def find_ref(project: Project, name: str) -> object | None:
            return name if name in self.refs else None

        values = {"data": "unused", "artifacts_expire_in": "1 day", **settings}
        return Upkeep(
            store=self.cell.store,
            traces=self.cell.traces,
            blobs=self.blobs,
            find_ref=find_ref,
            clock=self.cell.clock,
            settings=CellSettings(**values),  # type: ignore[arg-type] # a test may pass any setting
        )

    async def add_artifact(self, job: Job, kind: str = "archive", *, in_store: bool = True) -> Artifact:
        """Add an artifact of a job to the blobs and, unless in_store is False, to the store."""
        blob, now = f"artifacts/{job.id}/{kind}-1", self.cell.clock.now()
        artifact = an_artifact(job.id, kind, size=1, blob=blob, created_at=now)
        await self.blobs.put(artifact.blob, one_piece(), limit_bytes=1)
        return await self.cell.store.jobs.put_artifact(with_expiry(artifact, "1 day")) if in_store else artifact

    async def run(self, state: str = "success") -> Job:
        """Run a pipeline with one job that has a log and an archive."""
        family = await self.cell.push(a_spec("make"))
        job, token = await self.cell.start()
        await self.cell.dispatch.runner_calls.append_trace(job, 0, b"hello")
        await self.add_artifact(job)
        await self.cell.put(token, state, reason=None if state == "success" else "script_failure")
        assert job.pipeline_id == family.pipeline.id
        return await self.cell.job(job.id)

    async def artifact_types(self, job: Job) -> list[str]:
        return [artifact.type for artifact in await self.cell.store.jobs.list_artifacts(job.id)]


async def one_piece() -> AsyncIterator[bytes]:
    yield b"x"


@pytest.fixture
async def bench() -> Bench:
    cell = await MemoryCell.open()
    return Bench(cell, MemoryBlobs(cell.clock), {"main"})


async def test_a_trace_is_archived_when_its_job_is_finished_in_two_checks(bench: Bench) -> None:
    job = await bench.run()
    await bench.cell.push(a_spec("make"))
    running, _ = await bench.cell.start()
    await bench.cell.dispatch.runner_calls.append_trace(running, 0, b"live")
    upkeep = bench.upkeep()
    assert await upkeep.archive_traces() == 0
    assert await upkeep.archive_traces() == 1
    assert await bench.cell.traces.list_unarchived() == [running.id]
    assert b"".join([piece async for piece in bench.cell.traces.read(job.id)]) == b"hello"
    assert await upkeep.archive_traces() == 0


async def test_size_and_checksum_that_a_crash_prevented_are_stored(bench: Bench) -> None:
    job = await bench.run()
    await bench.cell.store.jobs.change_job(job.id, lambda row: replace(row, trace_bytes=0, trace_checksum=None))
    await bench.cell.traces.reopen(job.id)
    upkeep = bench.upkeep()
    await upkeep.archive_traces()
    await upkeep.archive_traces()
    stored = await bench.cell.job(job.id)
    assert (stored.trace_bytes, stored.trace_checksum) == (5, "crc32:3610a686")
    assert await bench.cell.traces.list_unarchived() == []


async def test_bytes_appended_while_another_process_ends_the_job_are_kept(bench: Bench) -> None:
    job = await bench.run()
    await bench.cell.traces.reopen(job.id)
    assert (await bench.cell.traces.append(job.id, 5, b" world")).taken
    upkeep = bench.upkeep()
    await upkeep.archive_traces()
    await upkeep.archive_traces()
    stored = await bench.cell.job(job.id)
    assert (stored.trace_bytes, stored.trace_checksum) == (11, "crc32:0d4a1185")
    assert await bench.cell.traces.list_unarchived() == []


async def test_the_trace_of_an_erased_job_is_removed_after_a_crash(bench: Bench) -> None:
    job = await bench.run()
    await bench.cell.store.jobs.change_job(job.id, lambda row: replace(row, erased=True))
    upkeep = bench.upkeep()
    await upkeep.archive_traces()
    await upkeep.archive_traces()
    assert await bench.cell.traces.size(job.id) == 0


async def test_artifacts_expire_except_those_of_the_newest_success_of_a_ref(bench: Bench) -> None:
    old, newest, failed = await bench.run(), await bench.run(), await bench.run("failed")
    upkeep = bench.upkeep()
    await bench.cell.clock.advance(DAY - 1)
    assert await upkeep.remove_expired() == 0
    await bench.cell.clock.advance(2)
    assert await upkeep.remove_expired() == 3
    assert [await bench.artifact_types(job) for job in (old, newest, failed)] == [[], ["archive"], []]
    assert [await bench.blobs.size(f"artifacts/{job.id}/archive-1") for job in (old, newest)] == [None, 1]
    assert (await bench.cell.job(old.id)).artifacts_gone
    assert await upkeep.remove_expired() == 0
    await bench.run()
    await bench.cell.clock.advance(LOOK_AGAIN_SECONDS)
    assert await upkeep.remove_expired() == 1
    assert await bench.artifact_types(newest) == []


@pytest.mark.parametrize("case", ["a setting", "no ref"])
async def test_the_newest_artifacts_expire_without_the_setting_or_the_ref(bench: Bench, case: str) -> None:
    job = await bench.run()
    if case == "no ref":
        bench.refs.clear()
    await bench.cell.clock.advance(2 * DAY)
    await bench.upkeep(keep_latest_artifacts=case != "a setting").remove_expired()
    assert await bench.artifact_types(job) == []


async def test_artifacts_of_an_unfinished_pipeline_stay(bench: Bench) -> None:
    await bench.cell.push(a_spec("make"), a_spec("other"))
    job, token = await bench.cell.start()
    await bench.add_artifact(job)
    await bench.cell.put(token, "success")
    await bench.cell.clock.advance(2 * DAY)
    upkeep = bench.upkeep(keep_latest_artifacts=False)
    await upkeep.remove_expired()
    assert await bench.artifact_types(job) == ["archive"]


async def test_a_job_that_needs_expired_artifacts_fails(bench: Bench) -> None:
    family = await bench.cell.push_file(
        """
make: {stage: build, script: [make], artifacts: {paths: [out]}}
use: {stage: test, script: [use], when: manual}
"""
    )
    job, token = await bench.cell.start()
    await bench.add_artifact(job)
    await bench.cell.put(token, "success")
    await bench.cell.clock.advance(2 * DAY)
    assert await bench.upkeep(keep_latest_artifacts=False).remove_expired() == 1
    use = await bench.cell.newest(family, "use")
    await bench.cell.dispatch.user_commands.play_job(use.id)
    await settle()
    assert isinstance(await bench.cell.poll(), NoJob)
    stored = await bench.cell.job(use.id)
    assert (stored.status(), stored.failure_reason) == ("failed", "missing_dependency_failure")
    assert stored.failure_message == 'the artifacts of job "make" have expired or were deleted; run that job again'


async def test_kept_artifacts_stay_and_deleted_ones_are_removed(bench: Bench) -> None:
    first, second = await bench.run(), await bench.run()
    await keep_artifacts(bench.cell.store, first.id)
    await delete_artifacts(bench.cell.store, bench.blobs, second.id)
    await bench.cell.clock.advance(2 * DAY)
    await bench.upkeep(keep_latest_artifacts=False).remove_expired()
    assert [await bench.artifact_types(job) for job in (first, second)] == [["archive"], []]
    assert await bench.blobs.size(f"artifacts/{second.id}/archive-1") is None


async def test_an_erased_job_has_no_trace_and_no_artifacts(bench: Bench) -> None:
    job = await bench.run()
    now = bench.cell.clock.now()
    await erase_job(bench.cell.store, bench.cell.traces, bench.blobs, job.id, now=now)
    stored = await bench.cell.job(job.id)
    assert (stored.erased, stored.erased_at, stored.trace_bytes) == (True, now, 0)
    assert await bench.artifact_types(job) == []
    assert await bench.cell.traces.size(job.id) == 0
    for job_id in (job.id, JobId(99)):
        with pytest.raises(InvalidError):
            await erase_job(bench.cell.store, bench.cell.traces, bench.blobs, job_id, now=now)


async def test_old_orphaned_blobs_are_removed(bench: Bench) -> None:
    job, erased = await bench.run(), await bench.run()
    await erase_job(bench.cell.store, bench.cell.traces, bench.blobs, erased.id, now=1.0)
    orphan = await bench.add_artifact(job, "junit", in_store=False)
    for key in (trace_key(job.id), trace_key(erased.id), trace_key(JobId(77)), "artifacts/x/y", "other/thing"):
        await bench.blobs.put(key, one_piece(), limit_bytes=1)
    upkeep = bench.upkeep()
    await bench.cell.clock.advance(ORPHAN_SECONDS - 1)
    assert await upkeep.remove_orphans() == 0
    await bench.cell.clock.advance(2)
    fresh = await bench.add_artifact(erased, "archive", in_store=False)
    assert await upkeep.remove_orphans() == 4
    assert await bench.blobs.size(orphan.blob) is None
    remaining_keys = [f"artifacts/{job.id}/archive-1", trace_key(job.id), fresh.blob, "other/thing"]
    assert [await bench.blobs.size(key) for key in remaining_keys] == [1, 1, 1, 1]


async def add_lfs_object(bench: Bench, project_id: ProjectId, oid: str, *, in_store: bool = True) -> str:
    blob = lfs_key(project_id, oid, "1")
    await bench.blobs.put(blob, one_piece(), limit_bytes=1)
    if in_store:
        await bench.cell.store.lfs.add_object(
            LfsObject(project_id=project_id, oid=oid, size=1, blob=blob, created_at=0)
        )
    return blob


async def test_orphaned_lfs_objects_are_removed(bench: Bench) -> None:
    project_id = (await bench.run()).project_id
    stored = await add_lfs_object(bench, project_id, "a" * 64)
    second = lfs_key(project_id, "a" * 64, "2")
    lost = await add_lfs_object(bench, project_id, "b" * 64, in_store=False)
    for key in (second, "lfs/x/y"):
        await bench.blobs.put(key, one_piece(), limit_bytes=1)
    await bench.cell.clock.advance(ORPHAN_SECONDS + 1)
    fresh = await add_lfs_object(bench, project_id, "c" * 64, in_store=False)
    await bench.upkeep().remove_orphans()
    assert [await bench.blobs.size(key) for key in (stored, fresh)] == [1, 1]
    assert [await bench.blobs.size(key) for key in (second, lost, "lfs/x/y")] == [None, None, None]


async def test_lfs_objects_and_locks_of_a_deleted_project_are_removed(bench: Bench) -> None:
    store, project_id = bench.cell.store, (await bench.run()).project_id
    blobs = [await add_lfs_object(bench, project_id, f"{number:064x}") for number in range(250)]
    await store.lfs.add_lock(LfsLock(id=0, project_id=project_id, path="a", user_id=1, locked_at=0))
    upkeep = bench.upkeep()
    await upkeep.remove_deleted()
    assert await store.lfs.count_bytes(project_id) == 250
    await store.projects.change_project(project_id, lambda row: replace(row, removed_at=1.0))
    await upkeep.remove_deleted()
    assert await store.lfs.count_bytes(project_id) == 0
    assert await store.lfs.list_locks(project_id, limit=9) == []
    assert {await bench.blobs.size(blob) for blob in blobs} == {None}


async def test_environments_of_a_deleted_project_are_removed(bench: Bench) -> None:
    store, project_id = bench.cell.store, (await bench.run()).project_id
    new = Environment(id=0, project_id=project_id, name="a", slug="a", created_at=0, updated_at=0)
    environment = await store.deployments.add_environment(new)
    await bench.upkeep().remove_deleted()
    assert await store.deployments.load_environment(environment.id) == environment
    await store.projects.change_project(project_id, lambda row: replace(row, removed_at=1.0))
    await bench.upkeep().remove_deleted()
    assert await store.deployments.load_environment(environment.id) is None


async def test_finished_pipelines_of_a_deleted_project_are_removed(bench: Bench) -> None:
    store, job = bench.cell.store, await bench.run()
    await keep_artifacts(store, job.id)
    await bench.cell.push(a_spec("make"))
    running, token = await bench.cell.start()
    upkeep = bench.upkeep()
    assert await upkeep.remove_deleted() == 0
    await store.projects.change_project(job.project_id, lambda row: replace(row, removed_at=1.0))
    assert await upkeep.remove_deleted() == 1
    assert (await store.jobs.load_job(job.id), await store.jobs.list_artifacts(job.id)) == (None, [])
    assert await bench.blobs.size(f"artifacts/{job.id}/archive-1") is None
    assert not await bench.cell.traces.size(job.id)
    assert await store.jobs.load_job(running.id) is not None
    await bench.cell.put(token, "success")
    assert await upkeep.remove_deleted() == 1
    assert await store.jobs.load_job(running.id) is None


async def test_pipelines_that_wait_for_upstream_hide_no_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.cell.operations.upkeep._BATCH", 2)
    store = bench.cell.store
    upstream = await bench.cell.push(*(a_spec(f"go{number}") for number in range(3)))

    async def add(upstream_job_id: JobId | None) -> Pipeline:
        new = a_pipeline(status="success", upstream_job_id=upstream_job_id)
        return (await store.pipelines.add_pipeline(new, (), now=0)).pipeline

    oldest = await add(None)
    waiting = [await add(job.id) for job in upstream.jobs]
    newest = await add(None)
    await store.projects.change_project(bench.cell.project.id, lambda row: replace(row, removed_at=1.0))
    assert await bench.upkeep().remove_deleted() == 2
    assert [await store.pipelines.load_pipeline(pipeline.id) for pipeline in (oldest, newest)] == [None, None]
    assert [await store.pipelines.load_pipeline(pipeline.id) for pipeline in waiting] == waiting


async def test_the_upkeep_repeats_until_it_is_stopped(bench: Bench) -> None:
    job = await bench.run("failed")
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.upkeep(upkeep_seconds=60).watch(stop), name="upkeep")
        await settle()
        await bench.cell.clock.advance(61)
        assert await bench.cell.traces.list_unarchived() == []
        await bench.cell.clock.advance(DAY)
        assert await bench.artifact_types(job) == []
        stop.set()


async def test_old_audit_events_are_removed_by_the_setting(bench: Bench) -> None:
    store, clock = bench.cell.store, bench.cell.clock
    for number in range(250):
        await store.settings.add_audit_event(AuditEvent(created_at=clock.now() + number, action="project_created"))
    clock.jump(30 * DAY + 150)
    assert await bench.upkeep(audit_expire_in="never").remove_old_audit_events() == 0
    assert await bench.upkeep(audit_expire_in="30 days").remove_old_audit_events() == 150
    assert (await store.settings.list_audit_events(Page()))[1] == 100


async def test_expired_sessions_and_links_are_removed(bench: Bench) -> None:
    sessions, now = bench.cell.store.sessions, bench.cell.clock.wall()
    for number, expires_at in enumerate((now - 1, now + DAY)):
        session = WebSession(
            token_hash=f"h{number}",
            user_id=USER_ID,
            method="token",
            created_at=now,
            expires_at=expires_at,
            last_used_at=now,
        )
        await sessions.add_session(session)
        await sessions.add_link(
            SignInLink(code_hash=f"c{number}", user_id=USER_ID, user_token_id=1, created_at=now, expires_at=expires_at)
        )
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.upkeep(upkeep_seconds=60).watch(stop), name="upkeep")
        await settle()
        await bench.cell.clock.advance(61)
        stop.set()
    assert [await sessions.find_session(name) is not None for name in ("h0", "h1")] == [False, True]
    assert [await sessions.take_link(name) is not None for name in ("c0", "c1")] == [False, True]
