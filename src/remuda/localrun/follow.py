"""Polls a pipeline until it is over, shows every state on the screen, and cancels the pipeline when the user asks.
Every poll also helps jobs to start: the runner gets the tags of waiting jobs, because those of downstream pipelines are
not known in advance, and manual jobs that the user named are started. The loop ends when the pipeline is over, when the
user interrupts twice, or when a cancelled pipeline takes longer than `CANCEL_SECONDS`."""

import asyncio
from collections.abc import Callable, Collection

from remuda.lib.clock import Clock
from remuda.lib.waiting import wait_for_event
from remuda.localrun.interrupts import Interrupts
from remuda.localrun.local_jobs import LocalJobs
from remuda.localrun.render.screen import Screen
from remuda.localrun.view import JobView, RunView, build, manual_jobs, unfinished_tags
from remuda.wire.user_client import NewRunner, RefusedError, UserApiError, UserClient

LOOK_SECONDS = 0.15
"""Seconds between two polls: short enough for a live display, long enough for a machine with two cores."""

CANCEL_SECONDS = 30.0
"""How long a cancelled pipeline may take to end; after_script and uploads of its jobs still run."""


class Follower:
    def __init__(
        self,
        client: UserClient,
        pipeline_id: int,
        clock: Clock,
        *,
        runner: NewRunner,
        tags: Collection[str],
        plays: Callable[[JobView], bool],
        news: asyncio.Event,
        jobs: LocalJobs,
    ) -> None:
        """`runner`: the cell's only runner. `tags`: the tags that the runner has now. `plays`: returns True for a
        manual job that is to be started. `news`: an event that others set to make the next poll happen at once.
        `jobs`: what the manager has reported about jobs."""
        self._jobs = jobs
        self._news = news
        self._client = client
        self._pipeline_id = pipeline_id
        self._clock = clock
        self._runner = runner
        self._tags = frozenset(tags)
        self._plays = plays
        self._played: set[int] = set()

    async def look(self, details: str = "none") -> RunView:
        """Poll the pipeline once. `details`: the jobs whose steps are included (none, running, all)."""
        return build(await self._client.progress(self._pipeline_id, details), self._clock.now(), self._jobs)

    async def follow(self, screen: Screen, interrupts: Interrupts) -> RunView:
        """Show every state until the pipeline is over, or a cancelled one has taken too long, and return the last
        state. The first interrupt cancels the pipeline, the second one ends the waiting."""
        deadline: float | None = None
        while True:
            self._news.clear()
            view = await self.look("running" if screen.shows_steps else "none")
            await self._show(screen, view)
            if interrupts.again.is_set() or (deadline is not None and self._clock.monotonic() > deadline):
                break
            if interrupts.asked.is_set() and deadline is None:
                screen.say("canceling the pipeline; press Ctrl-C again to exit at once")
                try:
                    await self._cancel(view)
                except UserApiError as error:
                    screen.say(f"could not cancel the pipeline: {error}; ending the run anyway")
                    return view
                deadline = self._clock.monotonic() + CANCEL_SECONDS
            started = deadline is None and await self._help_jobs_to_start(view)
            if view.is_over() and not started:
                break
            await wait_for_event(self._news, within_seconds=LOOK_SECONDS)
        return await self.look("all")

    async def _show(self, screen: Screen, view: RunView) -> None:
        """Show the state, and new lines of logs if the screen streams them; then in a thread, because a pipe whose
        reader waits (`| less`) blocks the writer, and the jobs must go on."""
        if screen.streams:
            ended = {job.id for _, _, job in view.all_jobs() if job.is_over()}
            await asyncio.to_thread(screen.show, view, self._jobs.take(ended))
        else:
            screen.show(view, {})

    async def _cancel(self, view: RunView) -> None:
        """Cancel the pipeline and all downstream ones. The cell by itself cancels only child pipelines, not those of
        other projects."""
        for pipeline in view.pipelines():
            if not pipeline.is_over() or pipeline is view:
                await self._client.cancel_pipeline(pipeline.project_id, pipeline.pipeline_id)

    async def _help_jobs_to_start(self, view: RunView) -> bool:
        """Add the tags of unfinished jobs to the runner, so that it can take them, and start the waiting manual jobs
        that the user named. Returns True if a manual job was started."""
        tags = self._tags | unfinished_tags(view)
        if tags != self._tags:
            await self._client.tag_runner(self._runner.id, sorted(tags))
            self._tags = tags
        started = False
        for _, pipeline, job in manual_jobs(view):
            if job.id in self._played or not self._plays(job):
                continue
            self._played.add(job.id)
            try:
                await self._client.play(pipeline.project_id, job.id)
                started = True
            except RefusedError:
                # Its status has changed since the poll.
                continue
        return started
