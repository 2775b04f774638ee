"""Follows a pipeline to its end: looks at it again and again, shows each look, and cancels it when asked.

What is shown is decided in `view`; this is the loop around it. With each look come the two things that a run does for
waiting jobs: its runner gets the tags that they ask for, because the pipelines that trigger jobs start have tags which
nobody knows before, and the manual jobs that the caller named are started. The loop ends when the pipeline is over, or
when the caller would not wait any longer for a cancelled one.
"""

import asyncio
from collections.abc import Callable, Collection

from remuda.cli.render.screen import Screen
from remuda.lib.clock import Clock
from remuda.lib.waiting import happens
from remuda.localrun.interrupts import Interrupts
from remuda.localrun.view import JobView, RunView, build, manual_jobs, waiting_tags
from remuda.wire.user_client import NewRunner, RefusedError, UserApiError, UserClient

LOOK_SECONDS = 0.15
"""Between two looks: often enough for an eye, rare enough for a machine with two cores."""

CANCEL_SECONDS = 30.0
"""How long a cancelled pipeline may take to end; after_script and uploads of its jobs still run."""


class Follower:
    """One pipeline, looked at repeatedly."""

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
    ) -> None:
        """`tags` are those that the runner has; `plays` says whether a manual job shall be started; `news` is set when
        something has happened, and makes it look at once."""
        self._news = news
        self._client = client
        self._pipeline_id = pipeline_id
        self._clock = clock
        self._runner = runner
        self._tags = frozenset(tags)
        self._plays = plays
        self._played: set[int] = set()

    async def look(self, details: str = "none") -> RunView:
        """The pipeline as it stands now."""
        return build(await self._client.progress(self._pipeline_id, details), self._clock.now())

    async def follow(self, screen: Screen, interrupts: Interrupts) -> RunView:
        """Look until the pipeline is over, or until a cancelled one has been waited for long enough."""
        given_up_at: float | None = None
        while True:
            self._news.clear()
            view = await self.look("running" if screen.shows_steps else "none")
            screen.show(view)
            if interrupts.again.is_set() or (given_up_at is not None and self._clock.monotonic() > given_up_at):
                break
            if interrupts.asked.is_set() and given_up_at is None:
                screen.say("canceling the pipeline; Ctrl-C again leaves at once")
                try:
                    await self._cancel(view)
                except UserApiError as error:
                    screen.say(f"leaving without: {error}")
                    return view
                given_up_at = self._clock.monotonic() + CANCEL_SECONDS
            started = given_up_at is None and await self._help(view)
            if view.is_over() and not started:
                break
            await happens(self._news, within_seconds=LOOK_SECONDS)
        return await self.look("all")

    async def _cancel(self, view: RunView) -> None:
        """The pipeline goes with its children; those of other projects must be told."""
        for pipeline in view.pipelines():
            if not pipeline.is_over() or pipeline is view:
                await self._client.cancel_pipeline(pipeline.project_id, pipeline.pipeline_id)

    async def _help(self, view: RunView) -> bool:
        """Do for waiting jobs what only the caller can; whether that has started any."""
        wanted = self._tags | waiting_tags(view)
        if wanted != self._tags:
            await self._client.tag_runner(self._runner.id, sorted(wanted))
            self._tags = wanted
        started = False
        for _, pipeline, job in manual_jobs(view):
            if job.id in self._played or not self._plays(job):
                continue
            self._played.add(job.id)
            try:
                await self._client.play(pipeline.project_id, job.id)
                started = True
            except RefusedError:
                # Its state has changed since the look.
                continue
        return started
