"""Our manager against a coordinator that others wrote: the Rust crate gitlab-runner-mock, strict in its own way.

It panics on a system id or a version that is not as it should be, and on a PATCH without a content type, and it refuses
a range that does not end where its bytes do. `make interop` builds it where there is cargo.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.runners.manager_bench import ManagerBench

from remuda.manager.polling.features import runner_info
from remuda.testing.coordinator import Coordinator

PROGRAM = Path(__file__).parents[2] / "build" / "interop" / "runner-mock"
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="there is no cargo to build gitlab-runner-mock with")


class Mock:
    """The Rust program, order by order."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, token: str) -> None:
        self._process = process
        self.url = url
        self.token = token

    async def order(self, order: str, **values: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"order": order} | values).encode() + b"\n")
        return json.loads(await self._process.stdout.readline())

    async def until(self, job: int, true: Callable[[dict[str, Any]], bool], seconds: float = 60.0) -> dict[str, Any]:
        """Look at a job until it is as wanted."""
        async with asyncio.timeout(seconds):
            while not true(found := await self.order("look", id=job)):  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.05)
        return dict(found)


@pytest.fixture
async def mock() -> AsyncIterator[Mock]:
    process = await asyncio.create_subprocess_exec(
        PROGRAM, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 24
    )
    assert process.stdout is not None
    assert process.stdin is not None
    about = json.loads(await process.stdout.readline())
    made = Mock(process, about["url"], about["token"])
    own = runner_info(executor="shell")
    await made.order("expect", version=own.version, platform=own.platform, architecture=own.architecture)
    await made.order("interval", seconds=1)
    yield made
    process.stdin.close()
    await process.wait()


@pytest.fixture
async def bench(tmp_path: Path, mock: Mock) -> AsyncIterator[ManagerBench]:
    bench = ManagerBench(tmp_path, Coordinator())
    bench.config.write_text(
        f'concurrent = 4\ncheck_interval = 0.2\n[[runners]]\nname = "mock"\nexecutor = "shell"\n'
        f'url = "{mock.url}"\ntoken = "{mock.token}"\n'
    )
    yield bench
    await bench.close()


async def test_jobs_succeed_and_fail_with_their_logs(mock: Mock, bench: ManagerBench) -> None:
    async with bench.manager():
        good = (await mock.order("add", script=["echo hello", "echo $SECRET"], secret="very-secret-value"))["id"]
        bad = (await mock.order("add", script=["echo before", "exit 3"], after_script=["echo afterwards"]))["id"]
        succeeded = await mock.until(good, lambda job: job["state"] == "success")
        failed = await mock.until(bad, lambda job: job["state"] == "failed")
    assert "hello" in succeeded["log"]
    assert "[MASKED]" in succeeded["log"]
    assert "very-secret-value" not in succeeded["log"]
    assert "before" in failed["log"]
    assert "afterwards" in failed["log"]


async def test_a_log_in_pieces_is_whole(mock: Mock, bench: ManagerBench) -> None:
    async with bench.manager():
        job = (await mock.order("add", script=["for n in 1 2 3 4; do echo line $n; sleep 1; done", "seq 1 20000"]))[
            "id"
        ]
        ended = await mock.until(job, lambda job: job["state"] == "success")
    assert ended["patches"] >= 3
    lines = [line[32:] if line[:2] == "20" else line for line in ended["log"].splitlines()]
    assert [line for line in lines if line.isdigit()] == [str(number) for number in range(1, 20001)]


async def test_a_job_that_is_canceled_is_ended_here(mock: Mock, bench: ManagerBench) -> None:
    marker = bench.folder / "went on"
    async with bench.manager():
        job = (await mock.order("add", script=["echo begun; sleep 1; echo more; sleep 60", f"touch {marker}"]))["id"]
        await mock.until(job, lambda job: "begun" in job["log"])
        await mock.order("cancel", id=job)
    assert (await mock.order("look", id=job))["state"] == "canceled"
    assert not marker.exists()
    assert bench.rows() == 0


async def test_artifacts_arrive(mock: Mock, bench: ManagerBench) -> None:
    async with bench.manager():
        job = (await mock.order("add", script=["echo content > file"], artifacts=["file"]))["id"]
        ended = await mock.until(job, lambda job: job["state"] == "success")
    assert [file["filename"] for file in ended["artifacts"]] == ["artifacts.zip"]
    assert ended["artifacts"][0]["bytes"] > 0


async def test_many_jobs_at_a_time(mock: Mock, bench: ManagerBench) -> None:
    async with bench.manager():
        jobs = [(await mock.order("add", script=[f"echo number {number}"]))["id"] for number in range(12)]
        ended = [await mock.until(job, lambda job: job["state"] == "success") for job in jobs]
    assert all(f"number {number}" in job["log"] for number, job in enumerate(ended))
