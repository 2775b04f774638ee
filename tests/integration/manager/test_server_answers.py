"""Unusual answers of a server, and how the manager handles them."""

import asyncio
from zlib import crc32

import pytest
from aiohttp import web
from tests.support.runners.manager_harness import ManagerHarness

from remuda.testing.coordinator import Coordinator, Fault
from remuda.testing.environment import FakeEnvironment
from remuda.testing.waiting import until


def answer(status: int, **headers: str) -> web.Response:
    return web.Response(status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize("endpoint", ["POST /api/v4/jobs/request", "PUT /api", "PATCH", "POST /api/remuda"])
@pytest.mark.parametrize(
    "fault",
    [
        lambda _: answer(503, Retry_After="0"),
        lambda _: answer(429, Retry_After="0"),
        lambda _: answer(500),
        lambda _: answer(418),
        lambda _: None,
    ],
    ids=["503", "429", "500", "418", "cut"],
)
async def test_a_call_that_fails_once_is_repeated(
    harness: ManagerHarness, coordinator: Coordinator, environment: FakeEnvironment, endpoint: str, fault: Fault
) -> None:
    coordinator.fail_once(endpoint, fault)
    async with harness.manager(environment):
        job = await coordinator.enqueue("true")
        key = await environment.agent.job()
        await environment.agent.write(key, b"some bytes\n")
        await environment.agent.add_result(key, event="started", name="step_script")
        await coordinator.until(lambda: job.trace and job.results)
        await environment.agent.end(key)
        await coordinator.until_over(job)
    assert coordinator.faults == []
    assert (job.status, bytes(job.trace), job.epoch) == ("success", b"some bytes\n", 1)
    assert environment.agent.closed == [key]
    assert harness.rows() == 0


async def test_retries_of_a_call_have_one_request_id(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    for _ in range(4):
        harness.coordinator.fail_once("PUT", lambda _: answer(502))
    async with harness.manager(environment):
        job = await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        await environment.agent.end(key)
        await harness.coordinator.until_over(job)
    ids = [headers["x-request-id"] for name, headers in harness.coordinator.requests if name.startswith("PUT")]
    assert len(set(ids[:5])) == 1
    assert ids[5] != ids[0]


async def test_job_sent_to_a_cut_connection_comes_again(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    harness.write_config(concurrent=1)
    harness.coordinator.lease_seconds = 3600
    job = await harness.coordinator.enqueue("true")

    def hand_out_and_cut(request: web.Request) -> None:
        job.status, job.epoch, job.request_id = "leased", 1, request.headers["X-Request-Id"]
        job.leased_at = asyncio.get_running_loop().time()

    harness.coordinator.fail_once("POST /api/v4/jobs/request", hand_out_and_cut)
    async with harness.manager(environment):
        key = await environment.agent.job()
        await environment.agent.end(key)
        await harness.coordinator.until_over(job)
    assert (job.status, job.epoch) == ("success", 1)


async def test_refused_acknowledgement_prevents_a_start(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    async with harness.manager(environment):
        harness.coordinator.fail_once("PUT", lambda _: answer(403))
        refused = await harness.coordinator.enqueue("true")
        await harness.coordinator.until(lambda: any(name.startswith("PUT") for name, _ in harness.coordinator.requests))
        refused.status = "canceled"
        job = await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        assert key.startswith(f"{job.id}-")
        await environment.agent.end(key)
        await harness.coordinator.until_over(job)
    assert list(environment.agent.jobs) == []
    assert refused.trace == b""


async def test_final_state_waits_for_the_stored_trace(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    async with harness.manager(environment):
        job = await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        await environment.agent.write(key, b"0123456789")
        await harness.coordinator.until(lambda: job.trace)
        harness.coordinator.fail_once("PUT", lambda _: answer(202, X_GitLab_Trace_Update_Interval="1"))
        harness.coordinator.fail_once("PUT", lambda _: answer(412, X_GitLab_Trace_Update_Interval="1"))
        await environment.agent.end(key)
        await harness.coordinator.until(lambda: not harness.coordinator.faults)
        job.trace.clear()  # the server lost the trace, so it answered 412
        await harness.coordinator.until_over(job)
    assert bytes(job.trace) == b"0123456789"
    assert job.offsets == [0, 0]


async def test_server_that_lost_some_trace_gets_it_again(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    async with harness.manager(environment):
        job = await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        await environment.agent.write(key, b"0123456789")
        await harness.coordinator.until(lambda: len(job.trace) == 10)
        del job.trace[4:]
        await environment.agent.write(key, b"abc")
        await harness.coordinator.until(lambda: len(job.trace) == 13)
        await environment.agent.end(key)
        await harness.coordinator.until_over(job)
    assert bytes(job.trace) == b"0123456789abc"
    assert job.offsets == [0, 10, 4]


async def test_a_server_that_was_down_gets_the_whole_log(harness: ManagerHarness, coordinator: Coordinator) -> None:
    go, done = harness.folder / "go", harness.folder / "done"
    async with harness.manager():
        job = await coordinator.enqueue(
            "echo first",
            f"until [ -e {go} ]; do sleep 0.05; done",
            "for n in $(seq 1 2000); do echo line $n; done",
            f"touch {done}",
        )
        await coordinator.until(lambda: b"first\n" in job.output)
        await coordinator.stop()
        go.touch()
        await until(done.exists)
        await coordinator.start()
        await coordinator.until_over(job)
    assert job.status == "success"
    lines = job.output.decode().splitlines()
    assert [line for line in lines if line.startswith("line ")] == [f"line {n}" for n in range(1, 2001)]


async def test_a_refused_runner_requests_again_soon(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    for _ in range(2):
        harness.coordinator.fail_once("POST /api/v4/jobs/request", lambda _: answer(403))
    async with harness.manager(environment):
        job = await harness.coordinator.enqueue("true")
        await environment.agent.end(await environment.agent.job())
        await harness.coordinator.until_over(job)


async def test_a_silent_job_is_kept_alive_and_canceled(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    async with harness.manager(environment, keep_alive_seconds=0.2):
        job = await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        await environment.agent.write(key, b"some bytes\n")
        await harness.coordinator.until(lambda: [update["state"] for update in job.updates].count("running") >= 3)
        assert job.updates[-1]["output"] == {"checksum": "crc32:" + f"{crc32(job.trace):08x}", "bytesize": 11}
        job.status = "canceling"
        await environment.agent.until(lambda: environment.agent.jobs[key].cancels)
        await environment.agent.end(key, "cancelled", "job_canceled")
        await harness.coordinator.until_over(job)
    assert job.status == "canceled"


async def test_results_continue_at_the_servers_position(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    async with harness.manager(environment):
        job = await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        for name in ("one", "two", "three"):
            await environment.agent.add_result(key, event="started", name=name)
        await harness.coordinator.until(lambda: len(job.results) == 3)
        del job.results[1:]
        await environment.agent.add_result(key, event="started", name="four")
        await harness.coordinator.until(lambda: len(job.results) == 4)
        await environment.agent.end(key)
        await harness.coordinator.until_over(job)
    assert [result["name"] for result in job.results] == ["one", "two", "three", "four"]


async def test_a_job_that_cannot_be_compiled_fails_and_frees_its_slot(
    harness: ManagerHarness, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    harness.write_config(concurrent=1)
    async with harness.manager(environment):
        invalid = await coordinator.enqueue("true", git_info={"repo_url": "http://cell/a\0b.git", "sha": "0" * 40})
        await coordinator.until_over(invalid)
        job = await coordinator.enqueue("true")
        await environment.agent.end(await environment.agent.job())
        await coordinator.until_over(job)
    assert (invalid.status, invalid.updates[-1]["failure_reason"]) == ("failed", "runner_system_failure")
    assert b"the runner manager could not start the job: ValueError" in bytes(invalid.trace)
    assert job.status == "success"


async def test_invalid_repository_url_affects_no_others(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    async with harness.manager(environment):
        invalid = await harness.coordinator.enqueue(
            "true", git_info={"repo_url": "http://[::1/p.git", "sha": "0" * 40, "ref": "main"}
        )
        good = await harness.coordinator.enqueue("true")
        await environment.agent.until(lambda: len(environment.agent.jobs) == 2)
        for key in list(environment.agent.jobs):
            await environment.agent.end(key)
        await harness.coordinator.until(lambda: invalid.is_over and good.is_over)
    assert (invalid.status, good.status) == ("success", "success")
    assert harness.rows() == 0
