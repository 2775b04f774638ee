"""Asking for jobs: one poller per runner, whose open requests each hold a slot that a job which comes takes over.

Decided elsewhere: how many requests may be open (`core/asking.py`), how soon the next one goes out and how well the
server is (`core/pace.py`), who gets a slot (`room.py`). Here the answers are looked at, and the disk. A poller is told
to `retire` when its runner shall get no more jobs; what its open requests bring is still taken.

Invariants: nobody asks without a slot; a slot that no job took is free again, however the request ended; a request that
broke is asked again with the same id, so that a cell which had handed a job out hands out the same one.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec

from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.lib.waiting import happens_by
from remuda.manager.config.load import RunnerConfig
from remuda.manager.core.open_requests import RequestLimit
from remuda.manager.core.poll_pace import Health, Pace
from remuda.manager.core.slots import Slot
from remuda.manager.environments.port import UNKNOWN_BYTES, Environment
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError, NotStoredError
from remuda.manager.jobs.placement import folders_of
from remuda.manager.jobs.wire_mapping import refuse
from remuda.manager.polling.room import Room
from remuda.telemetry.logs import logger
from remuda.wire.runner_api import JobPayload
from remuda.wire.runner_client import JobOffer, RunnerClient
from remuda.wire.runner_server import RunnerApiTemporaryError, new_request_id

ADAPTIVE_FLAG = "FF_USE_ADAPTIVE_REQUEST_CONCURRENCY"
YOUNG_SECONDS = 2.0
"""A request that has been open for so long is being held; the answer to a younger one may bring a job."""
_USAGE_SECONDS = 60.0
_DISK_SECONDS = 10.0
"""How often is looked whether there is room again, and how long an answer about it counts while there is."""
_UNSTORED = Backoff(first_seconds=5.0, ceiling_seconds=60.0)
"""After a job that could not be stored; the first ones are shorter than a cell waits for a job to be acknowledged."""


class PollerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a poller stands; times are wall time, 0 for never."""

    health: Health
    is_blocked: bool
    """No job is asked for: there is too little disk."""
    problem: str
    """Why no job is asked for, or what was wrong with the last answer; empty when all is well."""
    asked_at: float
    answered_at: float
    last_status: int | None
    next_at: float
    open_requests: int
    adaptive_limit: int
    used_limit: int
    hard_limit: int
    disk_free_bytes: int | None


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What is told to whoever counts; each with the runner it is about."""

    opened: Callable[[RunnerConfig, int], None] = lambda _runner, _change: None
    """A request was opened (1) or answered (-1)."""
    limited: Callable[[RunnerConfig, RequestLimit], None] = lambda _runner, _limit: None
    """The number of requests that may be open is now this."""
    exceeded: Callable[[RunnerConfig], None] = lambda _runner: None
    """One more request would have been opened, but for the limit."""
    starved: Callable[[RunnerConfig, bool], None] = lambda _runner, _by_environment: None
    """There was no slot for a request: `concurrent` or `limit` leave none, or the environment has no room (True)."""
    failed: Callable[[RunnerConfig, Health], None] = lambda _runner, _health: None
    """An answer was none, or a refusal."""
    emptied: Callable[[RunnerConfig], None] = lambda _runner: None
    """A request has ended, and brought no job."""


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """What pollers share."""

    room: Room
    clock: Clock
    check_interval_seconds: float
    take: Callable[[RunnerConfig, JobOffer, Slot], Awaitable[bool]]
    """Stores a job that came and sees to it from then on; True: the slot is the job's now.

    NotStoredError: it cannot be stored.
    """
    told: Told = Told()
    unheard: Callable[[str], str] = lambda _: ""
    """What is wrong with the server by the calls of a runner's jobs, whose short token it gets; empty: nothing."""


class Poller:
    """Asks one server for jobs of one runner."""

    def __init__(
        self,
        runner: RunnerConfig,
        client: RunnerClient,
        asking: Asking,
        environment: Environment,
        *,
        ready: Callable[[], Awaitable[object]] | None = None,
        after: "Poller | None" = None,
    ) -> None:
        """`ready` returns when jobs could run: where there is one machine, when its agent can be reached. `after` has
        asked for the same runner, and is about to end: what it has not heard an answer to is asked again."""
        self.runner = runner
        self._client = client
        self._asking = asking
        self._environment = environment
        self._folders = folders_of(runner)
        self._ready = ready
        self._after = after
        self._ended = asyncio.Event()
        self._limit = RequestLimit(
            hard=max(runner.request_concurrency, 1), is_adaptive=runner.feature_flags.get(ADAPTIVE_FLAG, True)
        )
        self._pace = Pace(check_interval_seconds=asking.check_interval_seconds, strict=runner.strict_check_interval)
        self._open: dict[asyncio.Task[None], float] = {}  # since when each waits for its answer
        self._running = 0
        self._unanswered: list[str] = []
        self._not_before = 0.0
        self._changed = asyncio.Event()
        self._retired = asyncio.Event()
        self._problem = ""
        self._disk_problem = ""
        self._store_problem = ""
        self._unstored = 0  # jobs in a row that came and could not be stored
        self._disk_free_bytes: int | None = None
        self._disk_seen_at: float | None = None
        self._asked_at = self._answered_at = 0.0
        self._last_status: int | None = None
        self._log = logger("manager").bind(runner=runner.short_token)

    @property
    def status(self) -> PollerStatus:
        """How it stands."""
        clock = self._asking.clock
        wait = self._not_before - clock.monotonic()
        unheard, health = self._asking.unheard(self.runner.short_token), self._pace.health
        return PollerStatus(
            health=Health.TROUBLED if unheard and health is Health.WELL else health,
            is_blocked=bool(self._disk_problem),
            problem=self._disk_problem or self._store_problem or self._problem or unheard,
            asked_at=self._asked_at,
            answered_at=self._answered_at,
            last_status=self._last_status,
            next_at=clock.now() + wait if wait > 0 else 0.0,
            open_requests=len(self._open),
            adaptive_limit=int(self._limit.adaptive),
            used_limit=self._used(),
            hard_limit=self._limit.hard,
            disk_free_bytes=None if self._disk_free_bytes == UNKNOWN_BYTES else self._disk_free_bytes,
        )

    @property
    def capacity(self) -> int | None:
        """How many jobs its environment can have; None: no limit of its own."""
        return self._environment.capacity()

    def retire(self) -> None:
        """Ask no more; `run` returns when what is open is answered or known to bring nothing."""
        self._retired.set()
        self._changed.set()

    async def run(self) -> None:
        """Ask until retired. To be cancelled only when the process ends: a job on its way would be lost."""
        self._asking.told.limited(self.runner, self._limit)
        if self._after is not None:
            # A server gives a job that it has just answered with again to the same request, and to no other.
            await self._after._ended.wait()
            self._unanswered, self._after = self._after._unanswered, None
        try:
            await self._ask_until_retired()
        finally:
            self._ended.set()

    async def _ask_until_retired(self) -> None:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(self._keep_asking(group), name=f"poller of {self.runner.short_token}")
            watching = group.create_task(self._watch_disk(), name=f"disk of {self.runner.short_token}")
            await self._retired.wait()
            asking.cancel()
            watching.cancel()
            while self._running:
                await self._hang_up()

    async def _hang_up(self) -> None:
        """End requests that are being held; wait for the others, but not for long."""
        self._end_held()
        self._changed.clear()
        await happens_by(self._asking.clock, self._changed, within_seconds=YOUNG_SECONDS / 4, name="last answers")

    def _end_held(self) -> None:
        now = self._asking.clock.monotonic()
        for task, since in list(self._open.items()):
            if self._client.is_remuda.is_set() or now - since >= YOUNG_SECONDS:
                task.cancel()

    def _give_way(self, task: asyncio.Task[None]) -> None:
        """Another runner needs the slot of a request that is being held: end the request, unless its answer is here.

        At a server that is no cell, the answer to a young request may bring a job that would be lost.
        """
        since, clock = self._open.get(task), self._asking.clock
        if since is None:
            return
        left = 0.0 if self._client.is_remuda.is_set() else since + YOUNG_SECONDS - clock.monotonic()
        if left > 0:
            clock.call_later(left, lambda: self._give_way(task))
        else:
            task.cancel()

    async def _watch_disk(self) -> None:
        """A request may be held for a minute: it must not bring a job that has no room by then."""
        while True:
            await self._asking.clock.sleep(_DISK_SECONDS)
            if self._open and not await self._has_disk():
                self._end_held()

    async def _keep_asking(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._until_due()
            room, capacity = self._asking.room, self._environment.capacity()
            if not room.free or room.is_full(self.runner.short_token, capacity):
                by_environment = bool(room.free) and not room.is_full(self.runner.short_token, None)
                self._asking.told.starved(self.runner, by_environment)
            slot = await room.reserve(self.runner.short_token, self._environment.capacity)
            self._running += 1
            task = group.create_task(self._ask(slot), name=f"request of {self.runner.short_token}")
            # Not in the task itself: one that is cancelled before its first step would never come to it.
            task.add_done_callback(lambda task, slot=slot: self._over(task, slot))  # type: ignore[misc]

    def _over(self, task: asyncio.Task[None], slot: Slot) -> None:
        self._running -= 1
        self._open.pop(task, None)
        self._asking.room.give_back(slot)
        self._changed.set()

    def _used(self) -> int:
        """A server that is not well is asked by one request at a time."""
        return self._limit.used if self._pace.health is Health.WELL else 1

    async def _until_due(self) -> None:
        """Return when the next request may go out."""
        clock = self._asking.clock
        is_told = False
        while True:
            if self._ready is not None:
                await self._ready()
            wait = self._not_before - clock.monotonic()
            self._changed.clear()
            if self._running >= self._used():
                if wait <= 0 and not is_told and self._running >= self._limit.hard:
                    is_told = True
                    self._asking.told.exceeded(self.runner)
                await self._changed.wait()
                continue
            if wait <= 0:
                if await self._has_disk():
                    return
                wait = _DISK_SECONDS
            await happens_by(clock, self._changed, within_seconds=wait, name=f"pause of {self.runner.short_token}")

    async def _has_disk(self) -> bool:
        """Whether jobs have room where they would run; said once when they have not, and when they have again."""
        now = self._asking.clock.monotonic()
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
                    f"{least >> 20} MiB; no job is asked for until there is more"
                )
        except (EnvironmentTemporaryError, EnvironmentLostError, TimeoutError) as error:
            self._disk_free_bytes = None
            problem = f"the environment does not say how much room there is: {str(error) or 'it does not answer'}"
        self._disk_seen_at = now
        if problem and not self._disk_problem:
            self._log.error("no job is asked for", cause=problem)
        elif self._disk_problem and not problem:
            self._log.info("jobs are asked for again: there is room")
        self._disk_problem = problem
        return not problem

    async def _ask(self, slot: Slot) -> None:
        """One request, and what becomes of its answer."""
        task = asyncio.current_task()
        assert task is not None
        may_hold = self._asking.room.may_hold(self.runner.short_token)
        request_id = self._unanswered.pop() if self._unanswered else new_request_id()
        began = self._asking.clock.monotonic()
        self._asked_at = self._asking.clock.now()
        self._open[task] = began
        self._asking.told.opened(self.runner, 1)
        offer: JobOffer | None = None
        if may_hold:
            self._asking.room.hold(slot, lambda: self._give_way(task))
        try:
            offer = await self._client.request_job(request_id=request_id, may_hold=may_hold)
        except RunnerApiTemporaryError as error:
            self._say(Health.TROUBLED, "the server cannot be reached", str(error))
        finally:
            self._open.pop(task, None)
            self._asking.told.opened(self.runner, -1)
            if offer is None or offer.payload is None:
                self._asking.told.emptied(self.runner)
            if offer is None or offer.is_unanswered:
                self._unanswered.append(request_id)
        self._heard(offer, took_seconds=self._asking.clock.monotonic() - began, may_hold=may_hold)
        if offer is not None and offer.payload is not None:
            try:
                if await self._asking.take(self.runner, offer, slot):
                    self._asking.room.hand_over(slot)
            except NotStoredError as error:
                await self._leave(offer.payload, str(error), request_id=request_id if offer.is_remuda else "")
            else:
                self._store_problem, self._unstored = "", 0
        elif offer is not None:
            await self._look_at(offer)

    async def _leave(self, job: JobPayload, cause: str, *, request_id: str) -> None:
        """A job came that cannot be stored: a cell gives it again to the same request, others must hear that it failed.

        Most often the disk is full. What else is held would bring more of these, and so would asking at once.
        """
        if cause != self._store_problem:
            self._log.error("a job is not taken", job=job.id, cause=cause)
        self._store_problem = cause
        self._unstored += 1
        self._not_before = self._asking.clock.monotonic() + _UNSTORED.delay(self._unstored)
        self._disk_seen_at = None
        self._end_held()
        if request_id:
            self._unanswered.append(request_id)
        else:
            await refuse(self._client, job.id, job.token)

    def _heard(self, offer: JobOffer | None, *, took_seconds: float, may_hold: bool) -> None:
        """Learn from an answer, or from none."""
        status = offer.status if offer is not None else None
        if offer is not None and status == 201 and offer.payload is None:
            status = None  # a job that nobody can read is no sign that all is well
        clock = self._asking.clock
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
                self._log.info("the server answers again")
            self._problem = ""
        else:
            self._asking.told.failed(self.runner, self._pace.health)
        self._asking.told.limited(self.runner, self._limit)
        self._changed.set()

    async def _look_at(self, offer: JobOffer) -> None:
        """An answer without a job that we could read."""
        match offer.status:
            case 201:
                self._say(Health.TROUBLED, "a job came that cannot be read", offer.problem)
                if offer.rejected is not None:
                    await refuse(self._client, *offer.rejected)
            case 204 | 409:
                pass
            case 403:
                text = "the server refuses the runner: it was removed there, or the token is wrong"
                self._say(Health.REFUSED, text, offer.message)
            case status:
                self._say(Health.TROUBLED, f"the server answered a request for a job with {status}", offer.message)

    def _say(self, health: Health, text: str, cause: str) -> None:
        """What went wrong, once, and again when it is another problem: it may last for days."""
        problem = f"{text}: {cause}" if cause else text
        if problem != self._problem:
            self._log.warning(text, cause=cause, health=health)
        self._problem = problem
