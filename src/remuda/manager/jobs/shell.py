"""People who look into jobs or stop them: the manager asks its cells what is wanted, opens shells, lets held jobs go.

One held request per runner, only to Remuda cells, whatever the number of jobs: the manager connects out, and nobody to
it. Each request says what this process does already, so nothing need be remembered; an answer names what is wanted
besides. A shell of an earlier process is gone with it and is closed. What a shell may do is the agent's to say, who may
open one the cell's; here is decided that a runner can forbid it (`allow_shell`).

Bytes go between the cell's two streams and the agent at exact offsets; a connection that breaks goes on at its byte.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.lib.waiting import one_error
from remuda.manager.errors import EnvironmentTemporaryError
from remuda.manager.jobs.job import ManagedJob
from remuda.manager.process.runners import ServedRunner
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import AgentRefusedError, AgentUnavailableError
from remuda.wire.agent_shell import AgentShell, ShellData, ShellExit, ShellOpened, ShellWish
from remuda.wire.runner_server import RunnerApiTemporaryError
from remuda.wire.shell import (
    DATA,
    END,
    ERRORS,
    OPENED,
    SIZE,
    TO_COMMAND,
    FrameError,
    Frames,
    HeldJob,
    LookRequest,
    Wanted,
    WantedShell,
    WantedStop,
    exit_frame,
    frame,
    refused_frame,
    size_of,
)
from remuda.wire.shell_client import LookingClient

LOOK_SECONDS = 1.0
"""How often is looked which runners there are."""
UNKNOWN_SECONDS = 600.0
"""After so long a cell that knows nothing of this is asked again: it may be a newer one then."""
PATIENCE_SECONDS = 60.0
"""How long the cell may be out of reach in the middle of a shell; then that is over there, too."""
LAST_WORDS_SECONDS = 5.0
BUSY_SECONDS = 0.5
ENDED = "it has ended"
PIECE_BYTES = 256 * 1024
WINDOW_BYTES = 1024 * 1024
"""What may wait for the cell; then the agent waits."""
_T = TypeVar("_T")
_BACKOFF = Backoff(first_seconds=0.1, ceiling_seconds=30.0)


class Looking:
    """Of one manager."""

    def __init__(
        self, clock: Clock, *, runners: Callable[[], Iterable[ServedRunner]], jobs: Mapping[str, ManagedJob]
    ) -> None:
        self._clock = clock
        self._runners = runners
        self._jobs = jobs
        self._held: dict[str, ManagedJob] = {}
        self._watches: dict[tuple[str, str], _Watch] = {}

    def note(self, job: ManagedJob) -> None:
        """A job is held from now on, or not any more."""
        if bool(job.held_seconds) == (job.key in self._held):
            return  # as of nearly all jobs
        if job.held_seconds:
            self._held[job.key] = job
        else:
            del self._held[job.key]
        for watch in self._watches.values():
            watch.changed.set()

    async def run(self) -> None:
        """One watch for each runner there is, until cancelled; begun anew after a failure."""
        self._watches.clear()
        async with asyncio.TaskGroup() as group:
            while True:
                found = {(one.client.url, one.config.token): one for one in self._runners()}
                for key, watch in list(self._watches.items()):
                    if key not in found or watch.is_deaf_to(found[key]):
                        self._watches.pop(key).task.cancel()
                for key, served in found.items():
                    if key not in self._watches:
                        watch = _Watch(served, self._clock, self._jobs, self._held)
                        watch.task = group.create_task(watch.run(), name=f"looking of {served.config.short_token}")
                        self._watches[key] = watch
                await self._clock.sleep(LOOK_SECONDS)


class _Watch:
    """What is wanted of one runner's jobs."""

    task: asyncio.Task[None]

    def __init__(
        self, served: ServedRunner, clock: Clock, jobs: Mapping[str, ManagedJob], held: Mapping[str, ManagedJob]
    ) -> None:
        self.changed = asyncio.Event()
        self._served = served
        self._client = LookingClient(served.client)
        self._clock = clock
        self._jobs = jobs
        self._held = held
        self._shells: dict[str, asyncio.Task[None]] = {}
        self._releasing: set[int] = set()
        self._stops: tuple[WantedStop, ...] = ()
        self._log = logger("manager").bind(runner=served.config.short_token)

    def is_deaf_to(self, served: ServedRunner) -> bool:
        """Whether it waits for a word that only this one will hear: the runner was configured anew before."""
        return served is not self._served and not self._served.client.is_remuda.is_set()

    async def run(self) -> None:
        await self._served.client.is_remuda.wait()
        failures = 0
        async with asyncio.TaskGroup() as group:
            while True:
                self.changed.clear()
                found = await self._ask()
                failures = failures + 1 if isinstance(found, int) else 0
                match found:
                    case Wanted():
                        self._take_up(found, group)
                    case 404 | 405:
                        await self._clock.sleep(UNKNOWN_SECONDS)
                    case int():
                        await self._clock.sleep(_BACKOFF.delay(failures, jitter=random.random()))
                    case None:
                        pass

    def _has(self, job: ManagedJob) -> bool:
        # The cell knows which are the runner's; it may have taken them with a token that it does not have any more.
        return job.is_on(self._served.client.url)

    async def _ask(self) -> Wanted | int | None:
        """What is wanted; a status, or 0, when the cell does not say; None when there is something to tell it."""
        held = [job for job in self._held.values() if self._has(job)]
        self._releasing &= {job.job_id for job in held}
        asked = LookRequest(
            shells=tuple(self._shells),
            held=tuple(HeldJob(job_id=job.job_id, seconds=job.held_seconds) for job in held),
            releasing=tuple(self._releasing),
            stops=self._stops,
        )
        found: Wanted | int | None = None

        async def call() -> None:
            nonlocal found
            try:
                found = await self._client.wanted(asked)
            except RunnerApiTemporaryError:
                found = 0
            self.changed.set()

        async with asyncio.TaskGroup() as group:
            calling = group.create_task(call(), name="what is wanted")
            await self.changed.wait()
            calling.cancel()
        return found

    def _take_up(self, wanted: Wanted, group: asyncio.TaskGroup) -> None:
        # That a job is to stop is only a reason to ask: the answer to its own call says what becomes of it.
        stops = {one.job_id for one in set(wanted.stops).difference(self._stops)}
        for job in self._jobs.values() if stops else ():
            if job.job_id in stops and self._has(job):
                job.call_server()
        self._stops = wanted.stops
        for job in self._held.values():
            if job.job_id in wanted.release and self._has(job):
                self._log.info("the job is let go", job=job.job_id)
                self._releasing.add(job.job_id)
                job.release()
        for one in wanted.shells:
            if one.id not in self._shells:
                task = group.create_task(self._attend(one), name=f"shell {one.id} of job {one.job_id}")
                self._shells[one.id] = task
                task.add_done_callback(partial(self._forget, one.id))

    def _forget(self, shell: str, _: asyncio.Task[None]) -> None:
        self._shells.pop(shell, None)

    async def _attend(self, wanted: WantedShell) -> None:
        """A shell from its beginning to its end; nothing that goes wrong with it touches another."""
        log = self._log.bind(job=wanted.job_id, shell=wanted.id)
        output = _Output(self._client, wanted.id, self._clock)
        reason = "the runner manager stops"
        try:
            reason = await self._carried(wanted, output)
        except _OverError:
            reason = ""
        except (AgentRefusedError, AgentUnavailableError, EnvironmentTemporaryError, RunnerApiTemporaryError) as error:
            reason = str(error)
        except FrameError as error:
            reason = str(error)
        except Exception as error:
            log.error("a shell failed", exc_info=error)
            reason = f"the runner manager failed: {type(error).__name__}"
        finally:
            log.info("a shell ended", reason=reason)
            if reason:
                await self._say_last(wanted, output, reason)

    async def _say_last(self, wanted: WantedShell, output: "_Output", reason: str) -> None:
        with suppress(RunnerApiTemporaryError, TimeoutError, _OverError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                # Of one that was begun before nobody knows where its output stands.
                if not wanted.begun and reason != ENDED:
                    await output.finish(reason)
        with suppress(RunnerApiTemporaryError, TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._client.close(wanted.id, reason)

    async def _carried(self, wanted: WantedShell, output: "_Output") -> str:
        """Why it is over."""
        if wanted.begun:
            return "the runner manager was started anew, and the shell ended with the old one"
        job = next((job for job in self._jobs.values() if job.job_id == wanted.job_id and self._has(job)), None)
        if job is None:
            return f"the runner manager does not have job {wanted.job_id} (any more)"
        if not job.allows_shells:
            return "this runner allows no shells in its jobs (allow_shell = false)"
        wish = ShellWish(
            command=wanted.command,
            terminal=wanted.terminal,
            columns=wanted.columns,
            rows=wanted.rows,
            term=wanted.term,
        )
        self._log.info("a shell is opened", job=wanted.job_id, shell=wanted.id)
        async with job.shell(wish) as shell, one_error(), asyncio.TaskGroup() as tasks:
            feeding = tasks.create_task(self._feed(wanted.id, shell), name="shell input")
            sending = tasks.create_task(output.run(), name="shell output")
            async for event in shell:
                match event:
                    case ShellOpened():
                        await output.add(frame(OPENED))
                    case ShellData(data, is_error):
                        await output.add(frame(ERRORS if is_error else DATA, data))
                    case ShellExit(code):
                        await output.add(exit_frame(code))
            feeding.cancel()
            await output.sent()
            sending.cancel()
        return ENDED

    async def _feed(self, shell_id: str, shell: AgentShell) -> None:
        """What is typed, to the agent."""
        offset, frames = 0, Frames(TO_COMMAND)
        while True:
            piece = await _patiently(partial(self._client.input, shell_id, offset), self._clock)
            if piece.is_over:
                raise _OverError
            offset += len(piece.data)
            for kind, data in frames.feed(piece.data):
                if kind == DATA:
                    await shell.write(data)
                elif kind == SIZE:
                    await shell.resize(*size_of(data))
                elif kind == END:
                    await shell.end_input()


class _OverError(Exception):
    """The cell says that the shell is over."""


class _Output:
    """Frames on their way to the cell: as they come, as many together as there are."""

    def __init__(self, client: LookingClient, shell: str, clock: Clock) -> None:
        self._client = client
        self._shell = shell
        self._clock = clock
        self._waiting = bytearray()
        self._place = 0
        self._filled, self._drained = asyncio.Event(), asyncio.Event()
        self._drained.set()

    async def add(self, data: bytes) -> None:
        """Send this; waits while much is on its way."""
        while len(self._waiting) > WINDOW_BYTES:
            await self._drained.wait()
        self._waiting += data
        self._drained.clear()
        self._filled.set()

    async def sent(self) -> None:
        """The cell has everything."""
        while self._waiting:
            await self._drained.wait()

    async def run(self) -> None:
        """Send for ever."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._waiting:
                await self._send()
            self._drained.set()

    async def finish(self, reason: str) -> None:
        """Send what is left, and why there is no more."""
        self._waiting += refused_frame(reason)
        while self._waiting:
            await self._send()

    async def _send(self) -> None:
        piece = bytes(self._waiting[:PIECE_BYTES])
        taken = await _patiently(partial(self._client.output, self._shell, self._place, piece), self._clock)
        more = taken.size - self._place
        if taken.is_over or not 0 <= more <= len(self._waiting):
            raise _OverError
        if not more:  # whoever reads is far behind
            await self._clock.sleep(BUSY_SECONDS)
        del self._waiting[:more]
        self._place = taken.size
        if len(self._waiting) <= WINDOW_BYTES:
            self._drained.set()
            self._drained.clear()


async def _patiently(call: Callable[[], Awaitable[_T]], clock: Clock) -> _T:
    """Make a call until it gets through; given up when the shell is surely over."""
    failures, since = 0, clock.monotonic()
    while True:
        try:
            return await call()
        except RunnerApiTemporaryError:
            failures += 1
            if clock.monotonic() - since >= PATIENCE_SECONDS:
                raise
            await clock.sleep(min(_BACKOFF.delay(failures, jitter=random.random()), 5.0))
