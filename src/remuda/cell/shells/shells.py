"""People who look into jobs: shells in motion between a person and a runner manager, and jobs that are held for it.

Decided here: in which jobs a shell may be opened, who is told, how long each side may be silent, and how much may be on
its way. The bytes lie in files that all processes of the cell share (`shell_files`); what this process changes wakes
whoever waits here, and where there are other processes the files are looked at, often while something moves. Called by
`http.shells` (people) and `http.looking` (managers); `remuda.cell.service` runs `watch`.

Invariant: a stream only grows, and every piece of it is where its sender put it; a shell that is over stays so.
"""

import asyncio
import secrets
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from remuda.cell.dispatch.stop_requests import StopRequests
from remuda.cell.errors import CellError, ConflictError, NotFoundError, StoreError
from remuda.cell.settings import CellSettings
from remuda.cell.shells.files import INPUT, OUTPUT, About, Held, ShellFiles
from remuda.cell.store.ports import Appended
from remuda.cell.values import LEGACY, Job
from remuda.lib.clock import Clock
from remuda.lib.waiting import happens
from remuda.model.job import FINAL, JobState
from remuda.telemetry.logs import logger
from remuda.wire.shell import HeldJob, LookRequest, Wanted, WantedShell

HOLD_SECONDS = 25.0
"""How long a call waits for bytes; proxies commonly give up after 60 s."""
GONE_SECONDS = 60.0
"""A side that has not called for so long is gone."""
CONNECTED_SECONDS = 100.0
"""A manager that has not asked for so long is not there."""
KEPT_SECONDS = 60.0
"""How long a shell that is over can be read to its end."""
SWEEP_SECONDS = 5.0
WINDOW_BYTES = 4 * 1024 * 1024
"""So much may wait for a reader; then the writer waits."""
PIECE_BYTES = 1024 * 1024
MOST_SHELLS = 100
MOST_OF_A_JOB = 10
MOST_WAITING = 8
"""Calls that wait for one stream; a further one is answered at once."""
MOST_HELD = 10_000
LONGEST_HOLD_SECONDS = 7 * 24 * 3600.0
_SOON_SECONDS, _LATER_SECONDS, _LIVELY_SECONDS = 0.01, 0.25, 5.0
"""How often files that other processes change are looked at: while something moves, and while nothing does."""

_T = TypeVar("_T")
_log = logger("cell")


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader gets."""

    data: bytes
    state: str
    """waiting, open, over: then nothing follows behind these bytes."""


class Shells:
    """All of a cell."""

    def __init__(
        self, files: ShellFiles, clock: Clock, settings: CellSettings, stops: StopRequests | None = None
    ) -> None:
        self._files = files
        self._clock = clock
        self._settings = settings
        self._waiting: dict[Hashable, set[asyncio.Event]] = {}
        self._stopping = False
        self._stops = stops or StopRequests(clock)
        self._stops.wake = lambda runner_id, system_id: self._wake(_manager(runner_id, system_id))

    # for people

    def open(self, job: Job, *, user_id: int, wish: WantedShell) -> About:
        """Ask a job's manager for a shell; ConflictError says why there can be none."""
        held = self.held(job.id)
        if job.state not in (JobState.RUNNING, JobState.CANCELING) and held is None:
            raise ConflictError(_not_there(job))
        if job.runner_id is None:
            raise ConflictError(f"job {job.id} is with no runner")
        of_job = [one for one in map(self._files.about, self._files.ids()) if one is not None and self._is_on(one)]
        if len(of_job) >= MOST_SHELLS or sum(one.job_id == job.id for one in of_job) >= MOST_OF_A_JOB:
            raise StoreError(f"there are too many open shells ({MOST_OF_A_JOB} of a job, {MOST_SHELLS} in all)")
        about = About(
            id=secrets.token_hex(16),
            job_id=job.id,
            runner_id=job.runner_id,
            system_id=job.system_id or LEGACY,
            user_id=user_id,
            created_at=self._clock.now(),
            command=wish.command,
            terminal=wish.terminal,
            columns=wish.columns,
            rows=wish.rows,
            term=wish.term,
        )
        self._files.add(about, about.created_at)
        self._wake(_manager(about.runner_id, about.system_id))
        return about

    def of_user(self, shell: str, job_id: int, user_id: int) -> About:
        """A person's own shell of a job; NotFoundError for any other."""
        about = self._files.about(shell) if _is_id(shell) else None
        if about is None or (about.job_id, about.user_id) != (job_id, user_id):
            raise NotFoundError("there is no such shell")
        return about

    def is_connected(self, job: Job) -> bool:
        """Whether the manager that has the job asks what is wanted of it."""
        seen_at = self._files.watched_at(job.runner_id or 0, job.system_id or LEGACY)
        return self._clock.now() - seen_at < CONNECTED_SECONDS

    def state(self, about: About) -> tuple[str, str]:
        """waiting, open or over; and why it is over."""
        if (over := self._files.over(about.id)) is not None:
            return "over", over[0]
        return "open" if self._files.is_begun(about.id) else "waiting", ""

    def close(self, about: About, reason: str) -> None:
        """It is not wanted any more, or cannot be had."""
        self._files.end(about.id, reason, self._clock.now())
        self._wake(about.id)

    # for managers

    def of_runner(self, shell: str, runner_id: int, system_id: str | None) -> About:
        """A shell that this manager is to attend to; NotFoundError for any other."""
        about = self._files.about(shell) if _is_id(shell) else None
        if about is None or (about.runner_id, about.system_id) != (runner_id, system_id or LEGACY):
            raise NotFoundError("there is no such shell")
        return about

    async def wanted(self, runner_id: int, asked: LookRequest, *, theirs: Collection[int]) -> Wanted:
        """What is wanted of a manager beyond what it does; waits for something unless there is.

        `theirs`: which of the jobs that it says it holds are its own.
        """
        system_id = asked.system_id or LEGACY
        self._files.note_watching(runner_id, system_id, self._clock.now())
        self._note_held(runner_id, system_id, [one for one in asked.held if one.job_id in theirs])

        known = frozenset(asked.stops or ())

        def now() -> Wanted:
            found = self._wanted(runner_id, system_id, set(asked.shells), set(asked.releasing))
            stops = () if asked.stops is None else self._stops.of_manager(runner_id, system_id)
            return msgspec.structs.replace(found, stops=stops)

        def look() -> Wanted | None:
            found = now()
            return found if found.shells or found.release or not known.issuperset(found.stops) else None

        key, hold = _manager(runner_id, system_id), self._settings.poll_hold_seconds
        return await self._until(key, look, hold) or now()

    def _wanted(self, runner_id: int, system_id: str, known: Collection[str], releasing: Collection[int]) -> Wanted:
        shells = [
            WantedShell(
                id=one.id,
                job_id=one.job_id,
                command=one.command,
                terminal=one.terminal,
                columns=one.columns,
                rows=one.rows,
                term=one.term,
                begun=self._files.is_begun(one.id),
            )
            for one in map(self._files.about, self._files.ids())
            if one is not None
            and (one.runner_id, one.system_id) == (runner_id, system_id)
            and one.id not in known
            and self._is_on(one)
        ]
        release = tuple(
            one.job_id
            for one in self._files.all_held()
            if one.release and (one.runner_id, one.system_id) == (runner_id, system_id) and one.job_id not in releasing
        )
        return Wanted(shells=tuple(shells), release=release)

    def _note_held(self, runner_id: int, system_id: str, told: Sequence[HeldJob]) -> None:
        """What a manager says that it holds is all that it holds."""
        now = self._clock.now()
        named = {one.job_id: now + min(max(one.seconds, 0.0), LONGEST_HOLD_SECONDS) for one in told[:MOST_HELD]}
        for before in list(self._files.all_held()):
            if (before.runner_id, before.system_id) != (runner_id, system_id):
                continue
            until = named.pop(before.job_id, None)
            if until is None:
                self._files.let_go(before.job_id)
            elif abs(until - before.until) > 1:
                self._files.hold(msgspec.structs.replace(before, until=until))
        for job_id, until in named.items():
            self._files.hold(Held(job_id=job_id, runner_id=runner_id, system_id=system_id, until=until))

    # held jobs

    def held(self, job_id: int) -> Held | None:
        """How long a job's environment is kept; None when it is not."""
        found = self._files.held(job_id)
        return found if found is not None and found.until > self._clock.now() else None

    def all_held(self) -> list[Held]:
        now = self._clock.now()
        return sorted((one for one in self._files.all_held() if one.until > now), key=lambda one: one.job_id)

    def release(self, job_id: int) -> None:
        """A held job is not needed any more; ConflictError when it is not held."""
        held = self.held(job_id)
        if held is None:
            raise ConflictError(f"job {job_id} is not held")
        self._files.hold(msgspec.structs.replace(held, release=True))
        self._wake(_manager(held.runner_id, held.system_id))

    # both ways

    async def append(self, about: About, stream: str, start: int, data: bytes) -> Appended:
        """Bytes at their place. Taken only while the shell is on and its reader keeps up: this waits for it."""
        if start + len(data) > self._settings.shell_limit_bytes:
            limit = self._settings.shell_limit_bytes
            self.close(about, f"a shell may carry {limit} bytes each way (shell_limit_bytes), and this one wants more")

        def look() -> bool | None:
            is_slow = self._files.size(about.id, stream) - self._files.seen(about.id, stream)[0] > WINDOW_BYTES
            return None if is_slow and self._is_on(about) else not is_slow

        has_room = await self._until((about.id, stream, "room"), look, HOLD_SECONDS, of=about)
        if not has_room or not self._is_on(about):
            return Appended(taken=False, size=self._files.size(about.id, stream))
        appended = self._files.append(about.id, stream, start, data, self._clock.now())
        self._wake((about.id, stream))
        return appended

    async def read(self, about: About, stream: str, start: int) -> Streamed:
        """The bytes from there on; waits for some unless the shell is over."""
        if stream == INPUT:
            self._files.begin(about.id)
        self._files.note_seen(about.id, stream, start, self._clock.now())
        self._wake((about.id, stream, "room"))

        def look() -> Streamed | None:
            # Its state before its bytes: what is over has all of them.
            state, _ = self.state(about)
            data = self._files.read(about.id, stream, start, PIECE_BYTES)
            is_told = bool(data) or state == "over"
            return Streamed(data=data, state=state) if is_told else None

        key = (about.id, stream)
        is_crowded = len(self._waiting.get(key, ())) >= MOST_WAITING
        found = await self._until(key, look, 0.0 if is_crowded else HOLD_SECONDS, of=about)
        self._files.note_seen(about.id, stream, start, self._clock.now())
        return found or Streamed(data=b"", state=self.state(about)[0])

    # time

    async def watch(self, stop: asyncio.Event) -> None:
        """Until told to stop: end what nobody attends to, remove what is over, notice what other processes begin."""
        swept_at, seen = self._clock.monotonic(), 0
        while not await happens(stop, within_seconds=_LATER_SECONDS if self._settings.is_shared else SWEEP_SECONDS):
            try:
                if (changed := self._files.changed_at()) != seen:
                    seen = changed
                    self._wake("manager")
                if self._clock.monotonic() - swept_at >= SWEEP_SECONDS:
                    swept_at = self._clock.monotonic()
                    self.sweep()
            except (CellError, OSError) as error:
                _log.warning("shells could not be looked after", error=str(error))

    def stop(self) -> None:
        """Nobody waits any longer: the process stops."""
        self._stopping = True
        for key in list(self._waiting):
            self._wake(key)

    def sweep(self) -> None:
        """Once."""
        now = self._clock.now()
        for about in filter(None, map(self._files.about, self._files.ids())):
            over = self._files.over(about.id)
            if over is None and (reason := self._too_long(about, now)):
                self.close(about, reason)
            elif over is not None and now - over[1] > KEPT_SECONDS:
                self._files.remove(about.id)
        for held in list(self._files.all_held()):
            if held.until + KEPT_SECONDS < now:
                self._files.let_go(held.job_id)
        self._files.forget_watching(now - 24 * 3600)

    def _too_long(self, about: About, now: float) -> str:
        """Why a shell ends that nobody has ended."""
        person, manager = (self._files.seen(about.id, stream)[1] for stream in (OUTPUT, INPUT))
        idle = self._settings.shell_idle_seconds
        if now - max(person, about.created_at) > GONE_SECONDS:
            return "whoever opened it is gone"
        if now - max(manager, about.created_at) > GONE_SECONDS:
            return "the runner manager is gone" if self._files.is_begun(about.id) else "no runner manager came for it"
        if now - max(self._files.moved_at(about.id), about.created_at) > idle:
            return f"nothing was typed or printed for {idle:g} seconds (shell_idle_seconds)"
        return ""

    # waiting

    def _is_on(self, about: About) -> bool:
        return self._files.over(about.id) is None

    def _moves(self, about: About) -> bool:
        return self._clock.now() - self._files.moved_at(about.id) < _LIVELY_SECONDS

    def _wake(self, key: Hashable) -> None:
        """Whoever waits for this looks again; the id of a shell means everything about it."""
        for known, events in self._waiting.items():
            if known == key or (isinstance(known, tuple) and known[0] == key):
                for event in events:
                    event.set()

    async def _until(
        self, key: Hashable, look: Callable[[], _T | None], seconds: float, *, of: About | None = None
    ) -> _T | None:
        """What a look brings, as soon as it brings something; None when it never does. `of` a shell, the files of which
        another process may change."""
        deadline = self._clock.monotonic() + seconds
        with self._listening(key) as event:
            while (found := look()) is None and not self._stopping:
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    break
                event.clear()
                if of is not None and self._settings.is_shared:
                    left = min(left, _SOON_SECONDS if self._moves(of) else _LATER_SECONDS)
                await happens(event, within_seconds=left)
        return found

    @contextmanager
    def _listening(self, key: Hashable) -> Iterator[asyncio.Event]:
        event = asyncio.Event()
        self._waiting.setdefault(key, set()).add(event)
        try:
            yield event
        finally:
            events = self._waiting[key]
            events.discard(event)
            if not events:
                del self._waiting[key]


def _manager(runner_id: int, system_id: str) -> tuple[str, int, str]:
    return "manager", runner_id, system_id


def _is_id(text: str) -> bool:
    return len(text) == 32 and all(character in "0123456789abcdef" for character in text)


def _not_there(job: Job) -> str:
    if job.state in FINAL:
        return (
            f"job {job.id} is over ({job.status()}) and its environment is gone; a runner with hold_failed keeps that "
            "of a failed job"
        )
    return f"job {job.id} does not run yet: it is {job.status()}"
