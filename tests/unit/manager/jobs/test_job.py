"""A job that is dropped because its server cannot be reached is logged with the cause."""

import asyncio
from pathlib import Path
from typing import Any, cast

from tests.support.manager_values import a_row, a_runner_config

from remuda.lib.clock import VirtualClock
from remuda.manager.core.limits import Limits
from remuda.manager.core.record import Record
from remuda.manager.jobs.job import ManagedJob
from remuda.manager.jobs.job_context import JobContext
from remuda.manager.jobs.journal import Journal
from remuda.manager.jobs.links import Links
from remuda.testing.environment import FakeEnvironment
from remuda.testing.logs import capture_logs
from remuda.wire.runner_client import RunnerClient
from remuda.wire.runner_server import RunnerApiTemporaryError


class UnreachableServer:
    async def update_job(self, *_: Any, **__: Any) -> None:
        raise RunnerApiTemporaryError("no route")


async def test_a_job_that_is_dropped_because_the_server_is_unreachable_is_logged(tmp_path: Path) -> None:
    clock, journal = VirtualClock(), Journal(tmp_path / "journal.sqlite")
    environment = FakeEnvironment(tmp_path, machines=("one",))
    context = JobContext(
        links=cast("Links", None),
        journal=journal,
        clock=clock,
        system_id="s_0123456789ab",
        manager_mark="",
        limits=Limits(acknowledge=60.0),
    )
    job = ManagedJob(
        a_row(payload=b'{"id": 1, "token": "t"}'),
        Record(),
        runner=a_runner_config(),
        client=cast("RunnerClient", UnreachableServer()),
        environment=environment,
        context=context,
    )
    with capture_logs() as events:
        running = asyncio.create_task(job.run())
        while not running.done():
            await clock.advance(10)
        await running
    journal.close()
    await environment.remove()
    (event,) = [event for event in events if "without reporting a final state" in event["event"]]
    assert "given up after" in event["cause"]
    assert "no route" in event["cause"]
