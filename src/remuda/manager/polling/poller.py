"""Requests jobs for one runner. Each open request has reserved a job slot, which the received job then uses.

Invariants: no request without a slot; a slot is free again if its request ends without a job; a request that failed is
repeated with the same request id, for which a cell returns the same job again; `retire` loses no job."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec

from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.lib.waiting import wait_for_any_event
from remuda.manager.config.values import RunnerConfig
from remuda.manager.core.open_requests import RequestLimit
from remuda.manager.core.poll_pace import Health, Pace
from remuda.manager.core.slots import Slot
from remuda.manager.environments.port import UNKNOWN_BYTES, Environment
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError, NotStoredError
from remuda.manager.polling.obstacles import Obstacles
from remuda.manager.polling.refusal import refuse_job
from remuda.manager.polling.room import Room
from remuda.telemetry.logs import logger
from remuda.wire.runner_api import JobPayload
from remuda.wire.runner_client import JobOffer, RunnerClient
from remuda.wire.runner_server import RunnerApiTemporaryError, new_request_id

ADAPTIVE_FLAG = "FF_USE_ADAPTIVE_REQUEST_CONCURRENCY"
YOUNG_SECONDS = 2.0
"""A request open for this long is held by the server; the answer to a younger one may be on its way with a job."""
_USAGE_SECONDS = 60.0
_DISK_SECONDS = 10.0
"""Interval between looks at a full disk, and how long a good answer is valid."""
_UNSTORED = Backoff(first_seconds=5.0, ceiling_seconds=60.0)
"""Pause after a job that could not be stored. The first pauses are shorter than a cell's acknowledgement timeout."""


class PollerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a poller, which requests jobs for one runner. Times are wall time, 0 for never."""

    health: Health
    is_blocked: bool
    """No jobs are requested, because too little disk space is free, or the free space is unknown."""
    problem: str
    """Why no jobs are requested, what was wrong with the last answer, or why calls of jobs fail; empty: nothing."""
    asked_at: float
    answered_at: float
    last_status: int | None
    next_at: float
    open_requests: int
    adaptive_limit: int
    used_limit: int
    hard_limit: int
    disk_free_bytes: int | None


class PollerEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Callbacks with which a poller reports to the metrics. The first argument is the runner."""

    opened: Callable[[RunnerConfig, int], None] = lambda _runner, _change: None
    """A request was opened (1) or has ended (-1)."""
    limited: Callable[[RunnerConfig, RequestLimit], None] = lambda _runner, _limit: None
    """The limit of open requests, at the start and after each request."""
    exceeded: Callable[[RunnerConfig], None] = lambda _runner: None
    """A request that was due had to wait, because `request_concurrency` requests are open."""
    starved: Callable[[RunnerConfig, bool], None] = lambda _runner, _by_environment: None
    """A request waits for a slot: because of `concurrent` or `limit` (False), or because the environment is full
    (True)."""
    failed: Callable[[RunnerConfig, Health], None] = lambda _runner, _health: None
    """A request got no valid answer, or a refusal."""
    emptied: Callable[[RunnerConfig], None] = lambda _runner: None
    """A request ended without a job."""


class PollerContext(msgspec.Struct, frozen=True, kw_only=True):
    room: Room
    clock: Clock
    check_interval_seconds: float
    take: Callable[[RunnerConfig, JobOffer, Slot], Awaitable[bool]]
    """Stores a received job and starts it. True: the job now has the slot. NotStoredError: it cannot be stored."""
    events: PollerEvents = PollerEvents()
    job_problem: Callable[[str], str] = lambda _: ""
    """Takes a runner's short token and returns why calls of its jobs fail; empty: they do not."""


class Poller:
    """Requests jobs for one runner, and passes received jobs to `PollerContext.take`, which stores and starts them."""

    def __init__(
        self,
        runner: RunnerConfig,
        client: RunnerClient,
        context: PollerContext,
        environment: Environment,
        *,
        ready: Callable[[], Awaitable[object]] | None = None,
        find_obstacle: Callable[[], Awaitable[str]] | None = None,
        after: "Poller | None" = None,
    ) -> None:
        """`ready` is awaited before each request and returns when the agent of a fixed machine answers. `find_obstacle`
        returns why no job can run. `after` is the former poller of the same runner: this poller starts when the former
        has ended, and repeats requests of it that got no answer."""
        self.runner = runner
        self._client = client
        self._context = context
        self._environment = environment
        self._folders = runner.job_folders
        self._ready = ready
        self._after = after
        self._ended = asyncio.Event()
        self._limit = RequestLimit(
            hard=max(runner.request_concurrency, 1), is_adaptive=runner.feature_flags.get(ADAPTIVE_FLAG, True)
        )
        self._pace = Pace(check_interval_seconds=context.check_interval_seconds, strict=runner.strict_check_interval)
        self._open: dict[asyncio.Task[None], float] = {}  # open requests, with their start on the monotonic clock
        self._running = 0
        self._unanswered: list[str] = []
        self._not_before = 0.0
        self._changed = asyncio.Event()
        self._retired = asyncio.Event()
        self._problem = ""
        self._disk_problem = ""
        self._store_problem = ""
        self._unstored = 0  # received jobs in a row that could not be stored
        self._disk_free_bytes: int | None = None
        self._disk_seen_at: float | None = None
        self._requested_at = self._answered_at = 0.0
        self._last_status: int | None = None
        self._log = logger("manager").bind(runner=runner.short_token)
        self._obstacles = Obstacles(find_obstacle, client, context.clock, self._log)

    @property
    def status(self) -> PollerStatus:
        clock = self._context.clock
        wait = self._not_before - clock.monotonic()
        job_problem, health = self._context.job_problem(self.runner.short_token), self._pace.health
        return PollerStatus(
            health=Health.TROUBLED if job_problem and health is Health.WELL else health,
            is_blocked=bool(self._disk_problem or self._obstacles.problem),
            problem=self._obstacles.problem
            or self._disk_problem
            or self._store_problem
            or self._problem
            or job_problem,
            asked_at=self._requested_at,
            answered_at=self._answered_at,
            last_status=self._last_status,
            next_at=clock.now() + wait if wait > 0 else 0.0,
            open_requests=len(self._open),
            adaptive_limit=int(self._limit.adaptive),
            used_limit=self._request_limit(),
            hard_limit=self._limit.hard,
            disk_free_bytes=None if self._disk_free_bytes == UNKNOWN_BYTES else self._disk_free_bytes,
        )

    @property
    def capacity(self) -> int | None:
        """Number of jobs that the runner's environment can run at the same time; None: no limit."""
        return self._environment.capacity()

    def retire(self) -> None:
        """Send no more requests. `run` returns when all open requests are answered or ended."""
        self._retired.set()
        self._changed.set()

    async def run(self) -> None:
        """Send requests until `retire` is called and all open requests have ended. Callers must not cancel this before
        the process ends: a job whose answer is on its way would be lost."""
        self._context.events.limited(self.runner, self._limit)
        if self._after is not None:
            # A cell repeats a handed-out job only for a request with the same id.
            await self._after._ended.wait()
            self._unanswered, self._after = self._after._unanswered, None
        try:
            await self._request_until_retired()
        finally:
            self._ended.set()

    async def _request_until_retired(self) -> None:
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(self._send_requests(group), name=f"poller of {self.runner.short_token}")
            watching = group.create_task(self._watch_machine(), name=f"machine of {self.runner.short_token}")
            await self._retired.wait()
            sending.cancel()
            watching.cancel()
            while self._running:
                await self._hang_up()

    async def _hang_up(self) -> None:
        """Cancel open requests, and wait a moment for answers. If the server is not a cell, requests younger than
        YOUNG_SECONDS are not cancelled: their answer may be on its way, and the job in it would be lost."""
        self._end_held()
        self._changed.clear()
        await wait_for_any_event(
            self._context.clock, self._changed, within_seconds=YOUNG_SECONDS / 4, name="last answers"
        )

    def _end_held(self) -> None:
        now = self._context.clock.monotonic()
        for task, since in list(self._open.items()):
            if self._client.is_remuda.is_set() or now - since >= YOUNG_SECONDS:
                task.cancel()

    def _give_way(self, task: asyncio.Task[None]) -> None:
        """End a request that the server holds open (long polling), because another runner needs its slot. Without a
        cell, a request younger than YOUNG_SECONDS is ended later: a job in an answer on its way would be lost."""
        since, clock = self._open.get(task), self._context.clock
        if since is None:
            return
        pause = 0.0 if self._client.is_remuda.is_set() else since + YOUNG_SECONDS - clock.monotonic()
        if pause > 0:
            clock.call_later(pause, lambda: self._give_way(task))
        else:
            task.cancel()

    async def _watch_machine(self) -> None:
        """Check while requests are open whether jobs can run, and cancel them if not; without a cell only those older
        than YOUNG_SECONDS, because a job may be on its way to others."""
        while True:
            await self._context.clock.sleep(_DISK_SECONDS)
            if self._open and not await self._can_run_jobs():
                self._end_held()

    async def _send_requests(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._until_due()
            room, capacity = self._context.room, self._environment.capacity()
            if not room.free or room.is_full(self.runner.short_token, capacity):
                by_environment = bool(room.free) and not room.is_full(self.runner.short_token, None)
                self._context.events.starved(self.runner, by_environment)
            slot = await room.reserve(self.runner.short_token, self._environment.capacity)
            self._running += 1
            task = group.create_task(self._request(slot), name=f"request of {self.runner.short_token}")
            # Not in the task itself, which may be cancelled before its first step.
            task.add_done_callback(lambda task, slot=slot: self._finish_request(task, slot))  # type: ignore[misc]

    def _finish_request(self, task: asyncio.Task[None], slot: Slot) -> None:
        self._running -= 1
        self._open.pop(task, None)
        self._context.room.give_back(slot)
        self._changed.set()

    def _request_limit(self) -> int:
        """Return how many requests may be open now: only one while the server fails or refuses."""
        return self._limit.used if self._pace.health is Health.WELL else 1

    async def _until_due(self) -> None:
        """Wait until the next request may be sent: jobs can run, no pause, few enough open requests, enough disk."""
        clock = self._context.clock
        is_counted = False
        while True:
            if self._ready is not None:
                await self._ready()
            wait = self._not_before - clock.monotonic()
            self._changed.clear()
            if self._running >= self._request_limit():
                if wait <= 0 and not is_counted and self._running >= self._limit.hard:
                    is_counted = True
                    self._context.events.exceeded(self.runner)
                await self._changed.wait()
                continue
            if wait <= 0:
                if await self._can_run_jobs():
                    return
                wait = _DISK_SECONDS
            await wait_for_any_event(
                clock, self._changed, within_seconds=wait, name=f"pause of {self.runner.short_token}"
            )

    async def _can_run_jobs(self) -> bool:
        return await self._has_disk() and await self._obstacles.are_gone()

    async def _has_disk(self) -> bool:
        """True if enough disk is free where jobs run; False if not, or if the free space is unknown. True is reused for
        _DISK_SECONDS."""
        now = self._context.clock.monotonic()
        if self._disk_seen_at is not None and not self._disk_problem and now - self._disk_seen_at < _DISK_SECONDS:
            return True
        least = self.runner.remuda.least_disk_bytes
        problem = ""
        try:
            async with asyncio.timeout(_USAGE_SECONDS):
                self._disk_free_bytes = (await self._environment.usage(self._folders)).disk_free_bytes
            if self._disk_free_bytes < least:
                problem = (
                    f"{self._disk_free_bytes >> 20} MiB are free where jobs run, and least_disk asks for "
                    f"{least >> 20} MiB; no jobs are requested until there is more"
                )
        except (EnvironmentTemporaryError, EnvironmentLostError, TimeoutError) as error:
            self._disk_free_bytes = None
            problem = f"the free disk space is unknown: {str(error) or 'the environment does not answer'}"
        self._disk_seen_at = now
        if problem and not self._disk_problem:
            self._log.error(
                "too little or unknown free disk space; requesting no jobs until enough is free", cause=problem
            )
        elif self._disk_problem and not problem:
            self._log.info("requesting jobs again: enough disk is free")
        self._disk_problem = problem
        return not problem

    async def _request(self, slot: Slot) -> None:
        task = asyncio.current_task()
        assert task is not None
        has_room = self._context.room.may_hold(self.runner.short_token)
        # After a failure an answer at once tells that the server is back; a held request would not for a minute.
        may_hold = has_room and self._pace.health is Health.WELL
        request_id = self._unanswered.pop() if self._unanswered else new_request_id()
        began = self._context.clock.monotonic()
        self._requested_at = self._context.clock.now()
        self._open[task] = began
        self._context.events.opened(self.runner, 1)
        offer: JobOffer | None = None
        if may_hold:
            self._context.room.hold(slot, lambda: self._give_way(task))
        try:
            offer = await self._client.request_job(request_id=request_id, may_hold=may_hold)
        except RunnerApiTemporaryError as error:
            self._log_problem(
                Health.TROUBLED, "the server cannot be reached for job requests; trying again", str(error)
            )
        finally:
            self._open.pop(task, None)
            self._context.events.opened(self.runner, -1)
            if offer is None or offer.payload is None:
                self._context.events.emptied(self.runner)
            if offer is None or offer.is_unanswered:
                self._unanswered.append(request_id)
        self._learn(offer, took_seconds=self._context.clock.monotonic() - began, may_hold=has_room)
        if offer is not None and offer.payload is not None:
            try:
                if await self._context.take(self.runner, offer, slot):
                    self._context.room.hand_over(slot)
            except NotStoredError as error:
                await self._decline(offer.payload, str(error), request_id=request_id if offer.is_remuda else "")
            else:
                self._store_problem, self._unstored = "", 0
        elif offer is not None:
            await self._handle_empty(offer)

    async def _decline(self, job: JobPayload, cause: str, *, request_id: str) -> None:
        """Handle a received job that cannot be stored in the journal. A cell returns it again to a request with the
        same `request_id`; to other servers (empty id) it is reported as failed. Open requests are cancelled."""
        if cause != self._store_problem:
            self._log.error(
                "cannot store a received job; pausing requests for a while",
                job=job.id,
                then="the cell sends it again with the repeated request" if request_id else "reporting it as failed",
                cause=cause,
            )
        self._store_problem = cause
        self._unstored += 1
        self._not_before = self._context.clock.monotonic() + _UNSTORED.delay(self._unstored)
        self._disk_seen_at = None
        self._end_held()
        if request_id:
            self._unanswered.append(request_id)
        else:
            await refuse_job(self._client, job.id, job.token)

    def _learn(self, offer: JobOffer | None, *, took_seconds: float, may_hold: bool) -> None:
        """Update pause, limit of open requests and server health after a request. `offer` is the answer (None: none),
        `took_seconds` the duration, `may_hold` whether the server might hold the request open until it has a job."""
        status = offer.status if offer is not None else None
        if offer is not None and status == 201 and offer.payload is None:
            status = None  # an unreadable job counts as a failed answer
        clock = self._context.clock
        self._pace, wait = self._pace.after(
            status,
            took_seconds=took_seconds,
            may_hold=may_hold,
            asked_seconds=offer.retry_after_seconds if offer is not None else None,
            jitter=random.random(),
        )
        self._not_before = clock.monotonic() + wait
        self._limit = self._limit.after(status)
        self._last_status = offer.status if offer is not None else None
        if offer is not None:
            self._answered_at = clock.now()
        if self._pace.health is Health.WELL:
            if self._problem:
                self._log.info("server answers job requests again")
            self._problem = ""
        else:
            self._context.events.failed(self.runner, self._pace.health)
        self._context.events.limited(self.runner, self._limit)
        self._changed.set()

    async def _handle_empty(self, offer: JobOffer) -> None:
        """Handle an answer without a usable job. A job that cannot be decoded is reported as failed if it has an id."""
        match offer.status:
            case 201:
                self._log_problem(
                    Health.TROUBLED,
                    "received a job that cannot be read; reporting it as failed if its id can be read",
                    offer.problem,
                )
                if offer.rejected is not None:
                    await refuse_job(self._client, *offer.rejected)
            case 204 | 409:
                pass
            case 403:
                text = "the server refuses the runner, which was removed there or has a wrong token; trying again"
                self._log_problem(Health.REFUSED, text, offer.message)
            case status:
                cause = f"status {status}: {offer.message}" if offer.message else f"status {status}"
                self._log_problem(
                    Health.TROUBLED, "the server answered a job request with an error; trying again", cause
                )

    def _log_problem(self, health: Health, text: str, cause: str) -> None:
        """Log a problem with the server, unless it is the same as the last one, and keep it for the status."""
        problem = f"{text}: {cause}" if cause else text
        if problem != self._problem:
            self._log.warning(text, cause=cause, health=health)
        self._problem = problem
