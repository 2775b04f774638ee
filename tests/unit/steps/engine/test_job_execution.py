"""A job on a full disk: the files that count as its own when the clock is set, and the start of its steps."""

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remuda.lib.clock import VirtualClock, settle
from remuda.steps.engine.job_execution import Job
from remuda.steps.engine.process_execution import AgentContext, ProcessExecution
from remuda.steps.job_files.disk_usage import DiskUse, measure
from remuda.steps.job_files.journal import Journal
from remuda.steps.job_tree.outcome import Status
from remuda.steps.policy.step_limits import Enclosure
from remuda.steps.process import leftovers, shim
from remuda.steps.process.job_processes import JobProcesses
from remuda.steps.process.kernel import Changes, Pulse
from remuda.steps.process.step_files import StepFiles
from remuda.testing.agent_process import steps_text
from remuda.testing.waiting import until
from remuda.wire.proto.agent_pb2 import StartRequest

JUMP = 7200.0


class JobBench:
    """A job with a working directory, under a clock that a test sets."""

    def __init__(self, folder: Path, context: AgentContext, clock: VirtualClock) -> None:
        self.folder = folder
        self._context = context
        self.clock = clock
        for name in ("work", "jobs"):
            (folder / name).mkdir()

    def write_file(self) -> None:
        """Write a file, and wait until later files get a later time: file times are less precise than the clock."""
        path = self.folder / "work/file"
        path.write_bytes(bytes(100_000))
        later = self.folder / "later"
        later.touch()
        while later.stat().st_ctime <= path.stat().st_ctime:
            later.unlink()
            later.touch()

    def accept(self, *, steps: str = "x", policy: str = "") -> Job:
        request = StartRequest(id="1", steps=steps, work_dir=str(self.folder / "work"), policy=policy)
        return Job(Journal.create(self.folder / "jobs", request, self.clock.now()), self._context)

    async def has_file(self, job: Job) -> bool:
        return measure({"1": await job.footprint.search_disk([])}, self.folder)["1"].bytes >= 100_000


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[JobBench]:
    # The virtual clock stands still, so it starts a little ahead of the clock of file times.
    clock, pulse = VirtualClock(time.time() + 60), Pulse()
    changes = Changes(pulse)
    yield JobBench(
        tmp_path, AgentContext(clock=clock, pulse=pulse, changes=changes, base_env={}, open_files=1024), clock
    )
    changes.close()


@pytest.mark.parametrize("ahead", [0.0, JUMP, -JUMP])
async def test_files_of_a_job_count_though_the_clock_was_set_before(bench: JobBench, ahead: float) -> None:
    """File times follow the wall clock at once, the agent's clock follows it slowly."""
    bench.clock.jump(ahead)
    bench.clock.set_wall(-ahead)
    job = bench.accept()
    bench.write_file()
    assert await bench.has_file(job)


@pytest.mark.parametrize("ahead", [0.0, JUMP, -JUMP])
async def test_files_from_before_the_job_do_not_count(bench: JobBench, ahead: float) -> None:
    bench.clock.jump(ahead)
    bench.clock.set_wall(-ahead)
    bench.write_file()
    job = bench.accept()
    assert not await bench.has_file(job)


async def test_files_of_a_job_count_though_the_clock_is_set_back_meanwhile(bench: JobBench) -> None:
    # The file is older than the job, as if the job had written it after the jump.
    bench.write_file()
    job = bench.accept()
    bench.clock.jump(60)
    bench.clock.set_wall(-JUMP)
    assert await bench.has_file(job)


async def test_no_step_starts_while_its_job_is_ended_for_disk(bench: JobBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step has begun, and its folder is measured before its command starts."""
    order: list[str] = []
    is_measuring, may_continue = threading.Event(), threading.Event()

    def measure_before(enclosure: Enclosure, file: Path) -> Enclosure:
        is_measuring.set()
        assert may_continue.wait(20)
        order.append("measured")
        return replace(enclosure, disk_before=0)

    async def run(execution: ProcessExecution, prepare: object) -> None:
        order.append("started")
        await asyncio.Event().wait()

    async def end(processes: JobProcesses) -> tuple[str, ...]:
        may_continue.set()
        await until(lambda: "measured" in order)
        await settle()
        order.append("ended")
        return ()

    monkeypatch.setattr(Enclosure, "since", measure_before)
    monkeypatch.setattr(ProcessExecution, "run", run)
    monkeypatch.setattr(leftovers, "end", end)
    layer = {"author": "runner", "document": {"limits": {"disk": "1m"}}}
    policy = json.dumps({"version": 1, "layers": [layer]})
    job = bench.accept(steps=steps_text({"name": "a", "script": "true"}), policy=policy)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(job.run())
        await until(is_measuring.is_set)
        await job.stop_for_disk(DiskUse(), lambda: order.append("released"))
        await until(lambda: "started" in order)
        running.cancel()
    assert order == ["measured", "ended", "released", "started"]


async def test_a_step_without_a_written_claim_starts_again(bench: JobBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job may fill the disk between the check of the disk and the start of the step."""
    spawn, failures = shim.spawn, [1, 2]

    def spawn_on_full_disk(files: StepFiles, command: Sequence[str], **options: Any) -> int:
        if not failures:
            return spawn(files, command, **options)
        failures.pop()
        Path(files.claim).touch()
        return os.posix_spawn("/bin/sh", ["sh", "-c", f"exit {shim.LOST_CLAIM}"], {}, setsid=True)

    monkeypatch.setattr(shim, "spawn", spawn_on_full_disk)
    job = bench.accept(steps=steps_text({"name": "a", "script": "echo once >>file"}))
    async with asyncio.timeout(20):
        await job.run()
    assert job.end is not None
    assert job.end.outcome.status is Status.SUCCESS, job.end.outcome
    assert (bench.folder / "work/file").read_text() == "once\n"
