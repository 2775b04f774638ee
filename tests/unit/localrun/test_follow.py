import asyncio
import io
import threading
from typing import cast

from remuda.lib.clock import SystemClock
from remuda.localrun.follow import Follower
from remuda.localrun.interrupts import Interrupts
from remuda.localrun.local_jobs import LocalJobs
from remuda.localrun.render.screen import PlainScreen
from remuda.wire.user_api import JobProgress, PipelineProgress
from remuda.wire.user_client import NewRunner, UserClient


class EndedPipeline:
    """The calls of a client for a pipeline that is over."""

    async def progress(self, pipeline_id: int, details: str) -> PipelineProgress:
        job = JobProgress(id=1, name="build", stage="test", stage_index=1, status="success")
        return PipelineProgress(id=pipeline_id, project_id=1, status="success", jobs=(job,))


class Pipe(io.StringIO):
    """Notes which threads write."""

    def __init__(self) -> None:
        super().__init__()
        self.writers: set[int] = set()

    def write(self, text: str) -> int:
        self.writers.add(threading.get_ident())
        return super().write(text)


async def test_events_without_log_lines_are_written_in_another_thread() -> None:
    """A pipe whose reader waits (`| less`) must not block the event loop, in which the jobs' runner is."""
    out = Pipe()
    follower = Follower(
        cast("UserClient", EndedPipeline()),
        7,
        SystemClock(),
        runner=NewRunner(id=1, token="token"),
        tags=(),
        plays=lambda job: False,
        news=asyncio.Event(),
        jobs=LocalJobs(streams=True),
    )
    await follower.follow(PlainScreen(out, streams=True), Interrupts())
    assert "build" in out.getvalue()
    assert threading.get_ident() not in out.writers
