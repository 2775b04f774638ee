"""Our manager runs jobs of a coordinator that others wrote: the Rust crate gitlab-runner-mock.

The mock panics on an invalid system id or version and on a PATCH without a content type, and it refuses a
Content-Range that does not match the body. `make interop` builds it if cargo is installed.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.runners.manager_harness import ManagerHarness

from remuda.manager.polling.features import runner_info
from remuda.testing.coordinator import Coordinator

PROGRAM = Path(__file__).parents[2] / "build" / "interop" / "runner-mock"
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="gitlab-runner-mock is not built: cargo is not installed")


class Mock:
    """The Rust program. It executes one order for each line of its stdin."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, token: str) -> None:
        self._process = process
        self.url = url
        self.token = token

    async def order(self, order: str, **values: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"order": order} | values).encode() + b"\n")
        return json.loads(await self._process.stdout.readline())

    async def add_job(self, *script: str, **values: object) -> int:
        """Enqueue a job with this script. Returns its id."""
        added = await self.order("add", script=list(script), **values)
        return int(added["id"])

    async def wait_for_job(
        self, job_id: int, condition: Callable[[dict[str, Any]], bool], seconds: float = 60.0
    ) -> dict[str, Any]:
        """Read a job repeatedly until it satisfies the condition. Returns the job."""
        async with asyncio.timeout(seconds):
            while not condition(job := await self.order("look", id=job_id)):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        return dict(job)


def is_successful(job: dict[str, Any]) -> bool:
    return bool(job["state"] == "success")


@pytest.fixture
async def mock() -> AsyncIterator[Mock]:
    process = await asyncio.create_subprocess_exec(
        PROGRAM, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 24
    )
    assert process.stdout is not None
    assert process.stdin is not None
    address = json.loads(await process.stdout.readline())
    mock = Mock(process, address["url"], address["token"])
    info = runner_info(executor="shell")
    await mock.order("expect", version=info.version, platform=info.platform, architecture=info.architecture)
    await mock.order("interval", seconds=1)
    yield mock
    process.stdin.close()
    await process.wait()


@pytest.fixture
async def harness(tmp_path: Path, mock: Mock) -> AsyncIterator[ManagerHarness]:
    harness = ManagerHarness(tmp_path, Coordinator())
    harness.config.write_text(
        f'concurrent = 4\ncheck_interval = 0.2\n[[runners]]\nname = "mock"\nexecutor = "shell"\n'
        f'url = "{mock.url}"\ntoken = "{mock.token}"\n'
    )
    yield harness
    await harness.close()


async def test_jobs_succeed_and_fail_with_their_logs(mock: Mock, harness: ManagerHarness) -> None:
    async with harness.manager():
        good_id = await mock.add_job("echo hello", "echo $SECRET", secret="very-secret-value")
        bad_id = await mock.add_job("echo before", "exit 3", after_script=["echo afterwards"])
        succeeded = await mock.wait_for_job(good_id, is_successful)
        failed = await mock.wait_for_job(bad_id, lambda job: job["state"] == "failed")
    assert "hello" in succeeded["log"]
    assert "[MASKED]" in succeeded["log"]
    assert "very-secret-value" not in succeeded["log"]
    assert "before" in failed["log"]
    assert "afterwards" in failed["log"]


async def test_a_log_in_pieces_is_whole(mock: Mock, harness: ManagerHarness) -> None:
    async with harness.manager():
        job_id = await mock.add_job("for n in 1 2 3 4; do echo line $n; sleep 1; done", "seq 1 20000")
        job = await mock.wait_for_job(job_id, is_successful)
    assert job["patches"] >= 3
    lines = [line[32:] if line[:2] == "20" else line for line in job["log"].splitlines()]
    assert [line for line in lines if line.isdigit()] == [str(number) for number in range(1, 20001)]


async def test_a_canceled_job_is_stopped_by_the_manager(mock: Mock, harness: ManagerHarness) -> None:
    marker = harness.folder / "went on"
    async with harness.manager():
        job_id = await mock.add_job("echo begun; sleep 1; echo more; sleep 60", f"touch {marker}")
        await mock.wait_for_job(job_id, lambda job: "begun" in job["log"])
        await mock.order("cancel", id=job_id)
    assert (await mock.order("look", id=job_id))["state"] == "canceled"
    assert not marker.exists()
    assert harness.rows() == 0


async def test_artifacts_arrive(mock: Mock, harness: ManagerHarness) -> None:
    async with harness.manager():
        job_id = await mock.add_job("echo content > file", artifacts=["file"])
        job = await mock.wait_for_job(job_id, is_successful)
    assert [file["filename"] for file in job["artifacts"]] == ["artifacts.zip"]
    assert job["artifacts"][0]["bytes"] > 0


async def test_many_jobs_at_a_time(mock: Mock, harness: ManagerHarness) -> None:
    async with harness.manager():
        job_ids = [await mock.add_job(f"echo number {number}") for number in range(12)]
        jobs = [await mock.wait_for_job(job_id, is_successful) for job_id in job_ids]
    assert all(f"number {number}" in job["log"] for number, job in enumerate(jobs))
