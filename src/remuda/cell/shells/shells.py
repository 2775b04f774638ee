"""Interactive shells in running jobs, and in jobs on hold (failed jobs whose environment is kept for debugging).

Passes bytes between a user and the runner manager of the job. Decides in which jobs a shell may be opened, after how
much silence of the user or the manager it ends, and how many bytes may be stored that their reader has not fetched yet.
Everything is stored in a `ShellStore` that all processes of the cell share: a change by this process wakes waiting
calls, changes by others are found by polling. Invariant: a stream only grows, and each byte is at the offset that its
sender gave; a shell that is over stays so."""

import asyncio
import secrets
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from remuda.cell.dispatch.stop_requests import StopRequests
from remuda.cell.errors import CellError, ConflictError, NotFoundError, StoreError
from remuda.cell.settings import CellSettings
from remuda.cell.shells.port import INPUT, OUTPUT, About, JobHold, RunnerSession, ShellStore
from remuda.cell.values import LEGACY, Job
from remuda.lib.append_only import Appended
from remuda.lib.clock import Clock
from remuda.lib.waiting import wait_for_event
from remuda.model.job import FINAL, JobState
from remuda.telemetry.logs import logger
from remuda.wire.shell import HeldJob, LookRequest, Wanted, WantedShell

HOLD_SECONDS = 25.0
"""How long a call waits for bytes; proxies commonly give up after 60 s."""
GONE_SECONDS = 60.0
"""Time without a call after which a user or manager counts as gone."""
CONNECTED_SECONDS = 100.0
"""Time without a request after which a manager counts as not connected."""
KEPT_SECONDS = 60.0
"""How long a shell that is over can be read to its end."""
SWEEP_SECONDS = 5.0
WINDOW_BYTES = 4 * 1024 * 1024
"""More than this may not wait for a reader: the writer waits then."""
PIECE_BYTES = 1024 * 1024
MOST_SHELLS = 100
MOST_OF_A_JOB = 10
MOST_WAITING = 8
"""Calls that may wait for one stream; another one is answered at once."""
MOST_HELD = 10_000
LONGEST_SESSION = 16 * 1024
LONGEST_HOLD_SECONDS = 7 * 24 * 3600.0
_SOON_SECONDS, _LATER_SECONDS, _LIVELY_SECONDS = 0.01, 0.25, 5.0
"""How often changes by other processes are looked for: while bytes move, while none do, and for how long bytes count as
moving."""

_T = TypeVar("_T")
_log = logger("cell")


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the input or output of a shell, with the state of the shell."""

    data: bytes
    state: str
    """waiting, open or over; over: these are the last bytes."""


class Shells:
    def __init__(
        self, store: ShellStore, clock: Clock, settings: CellSettings, stops: StopRequests | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._waiting: dict[Hashable, set[asyncio.Event]] = {}
        self._stopping = False
        self.in_sessions: asyncio.Queue[tuple[About, RunnerSession]] = asyncio.Queue()
        """Shells to open at the session server of a gitlab-runner (`RunnerSessions`)."""
        self._stops = stops or StopRequests(clock)
        self._stops.wake = lambda runner_id, system_id: self._wake(_manager(runner_id, system_id))

    # for people

    def open(self, job: Job, *, user_id: int, wish: WantedShell) -> About:
        """Request a shell in a job (`wish`: command and terminal); its runner manager is told when it polls. Raises
        ConflictError if the job has no environment to open it in, StoreError if too many shells are open."""
        if job.state not in (JobState.RUNNING, JobState.CANCELING) and self.hold_of(job.id) is None:
            raise ConflictError(_no_environment(job))
        if job.runner_id is None:
            raise ConflictError(f"job {job.id} has no runner")
        shells = [shell for shell in self._shells() if self._is_on(shell)]
        if len(shells) >= MOST_SHELLS or sum(shell.job_id == job.id for shell in shells) >= MOST_OF_A_JOB:
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
        self._store.add(about, about.created_at)
        if (session := self._session_of(job)) is not None:
            self.in_sessions.put_nowait((about, session))
        self._wake(_manager(about.runner_id, about.system_id))
        return about

    def of_user(self, shell: str, job_id: int, user_id: int) -> About:
        """Return the shell with this id, if this user has opened it in this job. Raises NotFoundError otherwise."""
        about = self._store.about(shell) if _is_id(shell) else None
        if about is None or (about.job_id, about.user_id) != (job_id, user_id):
            raise NotFoundError("there is no such shell")
        return about

    def is_connected(self, job: Job) -> bool:
        """True if the runner manager of the job has polled for requests within the last CONNECTED_SECONDS, or it is a
        gitlab-runner with a session server."""
        if self._session_of(job) is not None:
            return True
        seen_at = self._store.manager_seen_at(job.runner_id or 0, job.system_id or LEGACY)
        return self._clock.now() - seen_at < CONNECTED_SECONDS

    def state(self, about: About) -> tuple[str, str]:
        """Return a shell's state (`waiting` for its manager, `open` or `over`), and why it is over (else empty)."""
        if (end := self._store.end_of(about.id)) is not None:
            return "over", end[0]
        return "open" if self._store.is_begun(about.id) else "waiting", ""

    def close(self, about: About, reason: str) -> None:
        """End a shell with a reason that its user sees. If it has ended already, the first reason stays."""
        self._store.end(about.id, reason, self._clock.now())
        self._wake(about.id)

    # for managers

    def of_runner(self, shell: str, runner_id: int, system_id: str | None) -> About:
        """Return the shell with this id, if it is in a job of this runner manager. Raises NotFoundError otherwise."""
        about = self._store.about(shell) if _is_id(shell) else None
        if about is None or (about.runner_id, about.system_id) != (runner_id, system_id or LEGACY):
            raise NotFoundError("there is no such shell")
        return about

    async def poll(self, runner_id: int, request: LookRequest, *, own_job_ids: Collection[int]) -> Wanted:
        """Wait, at most `poll_hold_seconds`, for new requests to a runner manager: shells to open, jobs on hold to
        remove, jobs to stop. `request`: what the manager already handles, and which failed jobs it keeps (`held`).
        `own_job_ids`: those in `held` that it was handed; others are ignored."""
        system_id = request.system_id or LEGACY
        self._store.note_manager(runner_id, system_id, self._clock.now())
        self._store_holds(runner_id, system_id, [job for job in request.held if job.job_id in own_job_ids])
        handled_stops = frozenset(request.stops or ())

        def collect() -> Wanted:
            requests = self._requests(runner_id, system_id, set(request.shells), set(request.releasing))
            stops = () if request.stops is None else self._stops.of_manager(runner_id, system_id)
            return msgspec.structs.replace(requests, stops=stops)

        def look() -> Wanted | None:
            requests = collect()
            is_new = requests.shells or requests.release or not handled_stops.issuperset(requests.stops)
            return requests if is_new else None

        key, hold = _manager(runner_id, system_id), self._settings.poll_hold_seconds
        return await self._wait_until(key, look, hold) or collect()

    def _requests(self, runner_id: int, system_id: str, handled: Collection[str], releasing: Collection[int]) -> Wanted:
        shells = [
            WantedShell(
                id=shell.id,
                job_id=shell.job_id,
                command=shell.command,
                terminal=shell.terminal,
                columns=shell.columns,
                rows=shell.rows,
                term=shell.term,
                begun=self._store.is_begun(shell.id),
            )
            for shell in self._shells()
            if (shell.runner_id, shell.system_id) == (runner_id, system_id)
            and shell.id not in handled
            and self._is_on(shell)
        ]
        release = tuple(
            hold.job_id
            for hold in self._store.holds()
            if hold.release
            and (hold.runner_id, hold.system_id) == (runner_id, system_id)
            and hold.job_id not in releasing
        )
        return Wanted(shells=tuple(shells), release=release)

    def _store_holds(self, runner_id: int, system_id: str, jobs: Sequence[HeldJob]) -> None:
        """Store the failed jobs that a manager keeps on hold, and remove those that it does not report any more."""
        now = self._clock.now()
        ends = {job.job_id: now + min(max(job.seconds, 0.0), LONGEST_HOLD_SECONDS) for job in jobs[:MOST_HELD]}
        for hold in list(self._store.holds()):
            if (hold.runner_id, hold.system_id) != (runner_id, system_id):
                continue
            until = ends.pop(hold.job_id, None)
            if until is None:
                self._store.remove_hold(hold.job_id)
            elif abs(until - hold.until) > 1:
                self._store.put_hold(msgspec.structs.replace(hold, until=until))
        for job_id, until in ends.items():
            self._store.put_hold(JobHold(job_id=job_id, runner_id=runner_id, system_id=system_id, until=until))

    def store_session(self, job: Job, session: Mapping[str, Any]) -> None:
        """Store the session server that a gitlab-runner offered when it requested the job. An invalid one is ignored,
        as GitLab does: the job runs without a terminal."""
        texts = [session.get(name) or "" for name in ("url", "certificate", "authorization")]
        if not all(isinstance(text, str) and len(text) <= LONGEST_SESSION for text in texts):
            return
        url, certificate, authorization = texts
        if is_session_url(url):
            stored = RunnerSession(
                job_id=job.id,
                runner_id=job.runner_id or 0,
                system_id=job.system_id or LEGACY,
                url=url,
                certificate=certificate,
                authorization=authorization,
            )
            self._store.put_session(stored, self._clock.now())

    def _session_of(self, job: Job) -> RunnerSession | None:
        """Return the session server of the runner manager that has the job now. None if there is none; one that an
        earlier runner offered, which gave the job back, does not count: it must not get what users type."""
        session = self._store.session_of(job.id)
        if session is None or (session.runner_id, session.system_id) != (job.runner_id, job.system_id or LEGACY):
            return None
        return session

    # jobs on hold

    def hold_of(self, job_id: int) -> JobHold | None:
        """Return until when and by which manager a failed job is kept for debugging; None if it is not (any more)."""
        hold = self._store.hold_of(job_id)
        return hold if hold is not None and hold.until > self._clock.now() else None

    def holds(self) -> list[JobHold]:
        now = self._clock.now()
        return sorted((hold for hold in self._store.holds() if hold.until > now), key=lambda hold: hold.job_id)

    def release(self, job_id: int) -> None:
        """Ask the runner manager to remove the environment of a job. Raises ConflictError if the job is not on hold."""
        hold = self.hold_of(job_id)
        if hold is None:
            raise ConflictError(f"job {job_id} is not on hold")
        self._store.put_hold(msgspec.structs.replace(hold, release=True))
        self._wake(_manager(hold.runner_id, hold.system_id))

    # both ways

    async def append(self, about: About, stream: str, start: int, data: bytes) -> Appended:
        """Add bytes at the offset `start` of a stream, after waiting for a slow reader. They are refused (`taken` is
        False) if bytes before `start` are missing, stored ones differ, the shell is over, or the wait is too long. A
        stream that would get longer than `shell_limit_bytes` ends the shell."""
        if start + len(data) > self._settings.shell_limit_bytes:
            limit = self._settings.shell_limit_bytes
            self.close(about, f"it has reached the limit of {limit} bytes in one direction (shell_limit_bytes)")

        def look() -> bool | None:
            is_slow = self._store.size(about.id, stream) - self._store.reader(about.id, stream)[0] > WINDOW_BYTES
            return None if is_slow and self._is_on(about) else not is_slow

        has_room = await self._wait_until((about.id, stream, "room"), look, HOLD_SECONDS, of=about)
        if not has_room or not self._is_on(about):
            return Appended(taken=False, size=self._store.size(about.id, stream))
        appended = self._store.append(about.id, stream, start, data, self._clock.now())
        self._wake((about.id, stream))
        return appended

    async def read(self, about: About, stream: str, start: int) -> Streamed:
        """Return up to PIECE_BYTES of a stream from `start` on, which confirms receipt of those before. If there are
        none yet, wait up to HOLD_SECONDS, unless the shell is over; `data` is empty if none come."""
        if stream == INPUT:
            self._store.begin(about.id)
        self._store.note_reader(about.id, stream, start, self._clock.now())
        self._wake((about.id, stream, "room"))

        def look() -> Streamed | None:
            # The state before the bytes: a shell that is over has all its bytes.
            state, _ = self.state(about)
            data = self._store.read(about.id, stream, start, PIECE_BYTES)
            return Streamed(data=data, state=state) if data or state == "over" else None

        key = (about.id, stream)
        is_crowded = len(self._waiting.get(key, ())) >= MOST_WAITING
        piece = await self._wait_until(key, look, 0.0 if is_crowded else HOLD_SECONDS, of=about)
        self._store.note_reader(about.id, stream, start, self._clock.now())
        return piece or Streamed(data=b"", state=self.state(about)[0])

    # time

    async def watch(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, end abandoned shells, remove old ones, and notice requests stored by other processes."""
        swept_at, seen = self._clock.monotonic(), 0
        while not await wait_for_event(
            stop, within_seconds=_LATER_SECONDS if self._settings.is_shared else SWEEP_SECONDS
        ):
            try:
                if (version := self._store.version()) != seen:
                    seen = version
                    self._wake("manager")
                if self._clock.monotonic() - swept_at >= SWEEP_SECONDS:
                    swept_at = self._clock.monotonic()
                    self.sweep()
            except (CellError, OSError) as error:
                _log.warning(
                    "cannot check interactive shells of jobs for new requests and timeouts; trying again",
                    error=str(error),
                )

    def stop(self) -> None:
        """Make all calls that wait return at once, because the process stops."""
        self._stopping = True
        for key in list(self._waiting):
            self._wake(key)

    def sweep(self) -> None:
        """End shells whose user or manager is gone or that are idle; remove shells and holds that ended a while ago."""
        now = self._clock.now()
        for shell in self._shells():
            end = self._store.end_of(shell.id)
            if end is None and (reason := self._timeout_reason(shell, now)):
                self.close(shell, reason)
            elif end is not None and now - end[1] > KEPT_SECONDS:
                self._store.remove(shell.id)
        for hold in list(self._store.holds()):
            if hold.until + KEPT_SECONDS < now:
                self._store.remove_hold(hold.job_id)
        self._store.forget_managers(now - 24 * 3600)
        self._store.forget_sessions(now - LONGEST_HOLD_SECONDS)

    def _timeout_reason(self, about: About, now: float) -> str:
        """Return why a shell must end: user or manager polls no more, or no bytes came for long; else empty."""
        person, manager = (self._store.reader(about.id, stream)[1] for stream in (OUTPUT, INPUT))
        idle = self._settings.shell_idle_seconds
        if now - max(person, about.created_at) > GONE_SECONDS:
            return "its user has disconnected"
        if now - max(manager, about.created_at) > GONE_SECONDS:
            return "its runner manager is gone" if self._store.is_begun(about.id) else "no runner manager picked it up"
        if now - max(self._store.last_append_at(about.id), about.created_at) > idle:
            return f"nothing was typed or printed for {idle:g} seconds (shell_idle_seconds)"
        return ""

    # waiting

    def _shells(self) -> Iterator[About]:
        return filter(None, map(self._store.about, self._store.ids()))

    def _is_on(self, about: About) -> bool:
        return self._store.end_of(about.id) is None

    def _is_lively(self, about: About) -> bool:
        return self._clock.now() - self._store.last_append_at(about.id) < _LIVELY_SECONDS

    def _wake(self, key: Hashable) -> None:
        """Make calls that wait for `key` check again; the id of a shell stands for all calls about that shell."""
        for waiting, events in self._waiting.items():
            if waiting == key or (isinstance(waiting, tuple) and waiting[0] == key):
                for event in events:
                    event.set()

    async def _wait_until(
        self, key: Hashable, look: Callable[[], _T | None], seconds: float, *, of: About | None = None
    ) -> _T | None:
        """Call `look` now, and again whenever `_wake` is called for `key`, until it returns a value, and return that;
        None after `seconds`. `of`: the shell for which the caller waits. If several processes share the store, `look`
        is then also called at short intervals, because `_wake` does not reach other processes."""
        deadline = self._clock.monotonic() + seconds
        with self._register(key) as event:
            while (result := look()) is None and not self._stopping:
                seconds = deadline - self._clock.monotonic()
                if seconds <= 0:
                    break
                event.clear()
                if of is not None and self._settings.is_shared:
                    seconds = min(seconds, _SOON_SECONDS if self._is_lively(of) else _LATER_SECONDS)
                await wait_for_event(event, within_seconds=seconds)
        return result

    @contextmanager
    def _register(self, key: Hashable) -> Iterator[asyncio.Event]:
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


def is_session_url(url: str) -> bool:
    """True for an https address with a host and without user name, as GitLab accepts it."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        return False


def _is_id(text: str) -> bool:
    return len(text) == 32 and all(character in "0123456789abcdef" for character in text)


def _no_environment(job: Job) -> str:
    if job.state in FINAL:
        return (
            f"job {job.id} is over ({job.status()}) and its environment is gone; a runner with hold_failed keeps that "
            "of a failed job"
        )
    return f"job {job.id} does not run yet: it is {job.status()}"
