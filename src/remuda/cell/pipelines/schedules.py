"""Starts the pipelines of schedules that are due, each once.

Invariant: a pipeline is stored in the same transaction as its schedule's next due time, so a crash neither loses a due
run nor starts it twice. If several runs were missed while the cell did not run, one run replaces them."""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from remuda.cell.core.pipelines.schedules import next_time, without_pipeline
from remuda.cell.errors import ConflictError, InvalidError, NotFoundError, StoreError
from remuda.cell.pipelines.creation import Starter
from remuda.cell.projects.refs import Commits, find_ref
from remuda.cell.store.ports import Store
from remuda.cell.values import Pipeline, Schedule
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.lib.clock import Clock
from remuda.lib.waiting import wait_for_any_event
from remuda.telemetry.logs import logger

AT_ONCE = 32
LOOK_SECONDS = 60.0
"""The longest pause between two looks: the machine's clock may jump, and a machine may sleep."""

_log = logger("cell")


class Schedules:
    def __init__(self, *, store: Store, repos: Commits, starter: Starter, clock: Clock) -> None:
        self._store = store
        self._repos = repos
        self._starter = starter
        self._clock = clock
        self._changed = asyncio.Event()

    def look_again(self) -> None:
        """Make `watch` look for due schedules now. Call this when a schedule was created or changed."""
        self._changed.set()

    async def watch(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, wait for schedules to become due, and start their pipelines."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wake_at(stop), name="schedules: stop")
            while not stop.is_set():
                self._changed.clear()
                try:
                    pause = await self._start_due(stop)
                except StoreError as error:
                    _log.warning("cannot read or start due schedules; trying again", error=str(error))
                    pause = float(error.retry_after_seconds)
                await wait_for_any_event(self._clock, self._changed, within_seconds=pause, name="schedules")

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._changed.set()

    async def _start_due(self, stop: asyncio.Event) -> float:
        """Start the pipelines of due schedules. Returns how many seconds to wait before the next call."""
        now = self._clock.wall()
        soon = await self._store.schedules.list_due_schedules(now + LOOK_SECONDS)
        due = [schedule for schedule in soon if (schedule.next_run_at or now) <= now]
        if due:
            await self._start_all(due, now, stop)
            # Starting them took time, so these or others may be due again.
            return 0.0
        first = min((schedule.next_run_at or now for schedule in soon), default=None)
        return LOOK_SECONDS if first is None else max(first - self._clock.wall(), 0.0)

    async def _start_all(self, due: Sequence[Schedule], now: float, stop: asyncio.Event) -> None:
        """Start the pipelines of `due`, several at the same time, so that a slow one does not delay the others. Raises
        StoreError if the store became unavailable; the remaining schedules then stay due."""
        turns, failures = asyncio.Semaphore(AT_ONCE), list[StoreError]()

        async def start(schedule: Schedule) -> None:
            async with turns:
                if failures or stop.is_set():
                    return
                try:
                    await self._start(schedule, now)
                except StoreError as error:
                    failures.append(error)

        async with asyncio.TaskGroup() as group:
            for schedule in due:
                group.create_task(start(schedule), name=f"schedule {schedule.id}")
        if failures:
            raise failures[0]

    async def _start(self, due: Schedule, now: float) -> None:
        next_at = None
        project = await self._store.projects.load_project(due.project_id)
        if project is None or project.removed_at is not None:
            await self._store.schedules.remove_schedule(due.id)
            return
        try:
            next_at = next_time(due.cron, due.timezone, now)
            await self.run(replace(due, next_run_at=next_at), due_at=due.next_run_at)
            return
        except StoreError:
            raise
        except ConflictError:
            return  # another process of the cell has run it, or a person gave it another time
        except InvalidError as error:
            reason = str(error)
            _log.warning(
                "schedule started no pipeline; trying again at its next run time",
                schedule=due.id,
                project=due.project_id,
                reason=reason,
            )
        except Exception as error:  # noqa: BLE001 - one schedule must not stop the others
            reason = f"the cell could not start it ({type(error).__name__}); the log of the cell has the error"
            _log.error(
                "unexpected error in the start of a schedule; trying again at its next run time",
                schedule=due.id,
                project=due.project_id,
                exc_info=error,
            )
        await self._store.schedules.change_schedule(
            due.id, lambda row: without_pipeline(row, due, next_at=next_at, reason=reason)
        )

    async def run(self, schedule: Schedule, *, due_at: float | None = None) -> Pipeline:
        """Start the schedule's pipeline and, in the same transaction, store `schedule`, in which the caller has set the
        next run time. `due_at` is the run time that is due; None if a user starts the schedule. Raises InvalidError if
        the pipeline cannot be created, ConflictError if the schedule is not due at `due_at` any more (another process
        has run it, or a user has changed it), NotFoundError if its project does not exist."""
        project = await self._store.projects.load_project(schedule.project_id)
        if project is None:
            raise NotFoundError(f"the project of schedule {schedule.id} does not exist any more")
        ref = await find_ref(self._repos, project, schedule.ref)
        if ref is None:
            raise InvalidError(f"there is no branch or tag {schedule.ref!r}; push it, or give the schedule another ref")
        return await self._starter.start(
            PipelineRequest(
                project=project,
                source="schedule",
                ref=ref[0],
                sha=ref[1],
                variables=schedule.variables,
                file_variables=frozenset(schedule.file_variables),
                inputs=schedule.inputs,
                predefined={"CI_PIPELINE_SCHEDULE_DESCRIPTION": schedule.description},
                schedule=schedule,
                due_at=due_at,
                user_id=schedule.user_id,
            )
        )
