"""Follows a pipeline to its end: looks at it again and again, shows each look, and cancels it when asked.

What is shown is decided in `view`; this is the loop around it. Steps are asked for only while a job runs and once after
its end, so that a finished job costs nothing. The loop ends when the pipeline is over, or when the caller would not
wait any longer for a cancelled one.
"""

from collections.abc import Sequence

from remuda.cli.interrupts import Interrupts
from remuda.cli.screen import Screen
from remuda.cli.stepevents import fold
from remuda.cli.view import RunView, StepView, build
from remuda.lib.aio import happens
from remuda.lib.clock import Clock
from remuda.wire.user_client import JobInfo, PipelineInfo, UserApiError, UserClient

LOOK_SECONDS = 0.15
"""Between two looks: often enough for an eye, rare enough for a machine with two cores."""

CANCEL_SECONDS = 30.0
"""How long a cancelled pipeline may take to end; after_script and uploads of its jobs still run."""


class Follower:
    """One pipeline, looked at repeatedly."""

    def __init__(self, client: UserClient, pipeline: PipelineInfo, stages: Sequence[str], clock: Clock) -> None:
        self._client = client
        self._pipeline = pipeline
        self._stages = stages
        self._clock = clock
        self._steps: dict[int, tuple[StepView, ...]] = {}
        self._settled: set[int] = set()

    async def look(self) -> RunView:
        """The pipeline as it stands now."""
        # The pipeline before its jobs: when it was over, the jobs read after it are over too.
        pipeline = await self._client.pipeline(self._pipeline.project_id, self._pipeline.id)
        jobs = await self._client.pipeline_jobs(self._pipeline.project_id, self._pipeline.id)
        await self._read_steps(jobs)
        return build(pipeline, jobs, self._steps, self._stages, self._clock.now())

    async def follow(self, screen: Screen, interrupts: Interrupts) -> RunView:
        """Look until the pipeline is over, or until a cancelled one has been waited for long enough."""
        given_up_at: float | None = None
        while True:
            view = await self.look()
            screen.show(view)
            if view.is_over() or interrupts.again.is_set():
                return view
            if given_up_at is not None and self._clock.monotonic() > given_up_at:
                return view
            if interrupts.asked.is_set() and given_up_at is None:
                screen.say("canceling the pipeline; Ctrl-C again leaves at once")
                try:
                    await self._client.cancel_pipeline(self._pipeline.project_id, self._pipeline.id)
                except UserApiError as error:
                    screen.say(f"leaving without: {error}")
                    return view
                given_up_at = self._clock.monotonic() + CANCEL_SECONDS
            next_interrupt = interrupts.again if interrupts.asked.is_set() else interrupts.asked
            await happens(next_interrupt, within_seconds=LOOK_SECONDS)

    async def _read_steps(self, jobs: Sequence[JobInfo]) -> None:
        for job in jobs:
            if job.started_at is None or job.id in self._settled:
                continue
            self._steps[job.id] = fold(await self._client.steps(job.id))
            if job.finished_at is not None:
                self._settled.add(job.id)
