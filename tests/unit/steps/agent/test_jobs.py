"""The jobs of an agent share a disk: its reserve, and stopping a job when the disk is full."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from remuda.lib.clock import VirtualClock
from remuda.steps.agent.jobs import Jobs
from remuda.steps.engine.job_execution import Job
from remuda.steps.engine.process_execution import AgentContext
from remuda.steps.job_files.disk import RESERVE, DiskSpace
from remuda.steps.job_files.disk_usage import DiskSearch, DiskUse
from remuda.steps.process.kernel import Changes, Pulse

CreateJobs = Callable[[Sequence[bool]], Jobs]


@pytest.fixture
async def create_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CreateJobs]:
    """Return a function that creates the jobs of an agent. `is_full`: the results of successive checks of the disk."""
    monkeypatch.setattr("remuda.steps.agent.jobs.become_subreaper", lambda: None)
    pulse = Pulse()
    changes = Changes(pulse)
    async with asyncio.TaskGroup() as tasks:

        def create(is_full: Sequence[bool]) -> Jobs:
            results = iter(is_full)
            context = AgentContext(
                clock=VirtualClock(),
                pulse=pulse,
                changes=changes,
                base_env={},
                open_files=1024,
                disk_space=DiskSpace(lambda _: not next(results)),
            )
            (tmp_path / "jobs").mkdir()
            jobs = Jobs(tmp_path / "jobs", context, tasks)
            jobs.adopt()
            assert (tmp_path / RESERVE).exists()
            return jobs

        yield create
    changes.close()


@pytest.mark.parametrize(
    ("is_full", "exists"),
    [
        pytest.param([True, False, False], True, id="emptied while it was measured"),
        pytest.param([True, True, True], False, id="full all the time"),
    ],
)
async def test_the_reserve_is_kept_while_the_disk_has_space(
    tmp_path: Path, create_jobs: CreateJobs, is_full: Sequence[bool], *, exists: bool
) -> None:
    """Without the reserve, a job that is stopped later could not run the steps that free space."""
    context = create_jobs(is_full).context
    await context.disk_space.look(tmp_path, context.clock)
    assert (tmp_path / RESERVE).exists() is exists


async def test_empty_file_remeasured(tmp_path: Path, create_jobs: CreateJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, stopped = create_jobs([True, False]), []
    sizes = iter([0, 2**60])

    def measure(searches: Mapping[str, DiskSearch], _disk: Path, _seconds: float) -> dict[str, DiskUse]:
        size = next(sizes)
        return {name: DiskUse(bytes=size) for name in searches}

    async def search_disk(_processes: object) -> DiskSearch:
        return DiskSearch(paths=(), since=0.0)

    async def stop_for_disk(use: DiskUse, release: Callable[[], object]) -> None:
        stopped.append(use.bytes)
        release()

    monkeypatch.setattr("remuda.steps.agent.jobs.measure", measure)
    job = SimpleNamespace(
        id="1",
        can_be_stopped_for_disk=True,
        journal=SimpleNamespace(key="k"),
        footprint=SimpleNamespace(uid=None, search_disk=search_disk),
        stop_for_disk=stop_for_disk,
    )
    jobs._jobs["1"] = cast(Job, job)
    await jobs.context.disk_space.look(tmp_path, jobs.context.clock)
    assert stopped == [2**60]
    assert not (tmp_path / RESERVE).exists()
