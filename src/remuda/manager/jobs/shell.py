"""Serves requests of a cell's users: shells in jobs, release of failed jobs kept for debugging, cancelling jobs at
once.

The manager accepts no connections, so it keeps one long poll per runner open, to Remuda cells only. A shell that an
earlier process opened ended with that process, so it is closed at the cell. A shell's input and output pass through the
cell as two streams with byte offsets, so that they continue without loss after a broken connection."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.lib.waiting import unwrap_group_error
from remuda.manager.errors import EnvironmentTemporaryError
from remuda.manager.jobs.job import ManagedJob
from remuda.manager.jobs.runners import ServedRunner
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import AgentRefusedError, AgentUnavailableError
from remuda.wire.agent_shell import AgentShell, ShellCommand, ShellData, ShellExit, ShellOpened
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
    refusal_frame,
    size_of,
)
from remuda.wire.shell_client import ShellClient

LOOK_SECONDS = 1.0
"""How often the list of configured runners is read."""
UNKNOWN_SECONDS = 600.0
"""Pause before the next request to a cell that does not have this endpoint; it may be upgraded meanwhile."""
PATIENCE_SECONDS = 60.0
"""How long the cell may be unreachable during a shell; then the shell has ended there, too."""
LAST_WORDS_SECONDS = 5.0
"""Timeout of each of the two last calls for a shell: its last output, and its end."""
BUSY_SECONDS = 0.5
"""Pause after the cell took no output, because the shell's user reads slowly."""
ENDED = "it has ended"
PIECE_BYTES = 256 * 1024
WINDOW_BYTES = 1024 * 1024
"""If more bytes wait for the cell, no more output is read from the agent."""
_T = TypeVar("_T")
_BACKOFF = Backoff(first_seconds=0.1, ceiling_seconds=30.0)


class ShellRequests:
    def __init__(
        self, clock: Clock, *, runners: Callable[[], Iterable[ServedRunner]], jobs: Mapping[str, ManagedJob]
    ) -> None:
        self._clock = clock
        self._runners = runners
        self._jobs = jobs
        self._on_hold: dict[str, ManagedJob] = {}
        self._polls: dict[tuple[str, str], _RunnerPoll] = {}

    def update_hold(self, job: ManagedJob) -> None:
        """Record whether a failed job is kept for debugging (on hold) now, and report a change to the cell at once."""
        if bool(job.hold_seconds) == (job.key in self._on_hold):
            return
        if job.hold_seconds:
            self._on_hold[job.key] = job
        else:
            del self._on_hold[job.key]
        for poll in self._polls.values():
            poll.changed.set()

    async def run(self) -> None:
        """Run one long poll for each configured runner until cancelled. May be called again after a failure."""
        self._polls.clear()
        async with asyncio.TaskGroup() as group:
            while True:
                runners = {(runner.client.url, runner.config.token): runner for runner in self._runners()}
                for key, poll in list(self._polls.items()):
                    if key not in runners or poll.is_outdated(runners[key]):
                        self._polls.pop(key).task.cancel()
                for key, runner in runners.items():
                    if key not in self._polls:
                        poll = _RunnerPoll(runner, self._clock, self._jobs, self._on_hold)
                        poll.task = group.create_task(poll.run(), name=f"shell requests of {runner.config.short_token}")
                        self._polls[key] = poll
                await self._clock.sleep(LOOK_SECONDS)


class _RunnerPoll:
    task: asyncio.Task[None]

    def __init__(
        self, runner: ServedRunner, clock: Clock, jobs: Mapping[str, ManagedJob], on_hold: Mapping[str, ManagedJob]
    ) -> None:
        self.changed = asyncio.Event()
        self._runner = runner
        self._client = ShellClient(runner.client)
        self._clock = clock
        self._jobs = jobs
        self._on_hold = on_hold
        self._shells: dict[str, asyncio.Task[None]] = {}
        self._releasing: set[int] = set()
        self._stops: tuple[WantedStop, ...] = ()
        self._log = logger("manager").bind(runner=runner.config.short_token)

    def is_outdated(self, runner: ServedRunner) -> bool:
        """True if `runner` replaced this poll's one while the poll waits to learn if the server is a cell."""
        return runner is not self._runner and not self._runner.client.is_remuda.is_set()

    async def run(self) -> None:
        await self._runner.client.is_remuda.wait()
        failures = 0
        async with asyncio.TaskGroup() as group:
            while True:
                self.changed.clear()
                answer = await self._poll()
                failures = failures + 1 if isinstance(answer, int) else 0
                match answer:
                    case Wanted():
                        self._handle(answer, group)
                    case 404 | 405:
                        await self._clock.sleep(UNKNOWN_SECONDS)
                    case int():
                        await self._clock.sleep(_BACKOFF.delay(failures, jitter=random.random()))
                    case None:
                        pass

    def _has(self, job: ManagedJob) -> bool:
        # By the server alone: the runner may have taken the job with an earlier token, and the cell checks the runner.
        return job.is_on(self._runner.client.url)

    async def _poll(self) -> Wanted | int | None:
        """Return the cell's requests, or the HTTP status of an error (0: no answer). Returns None if the call was
        cancelled because a job went on hold (kept for debugging) or was released; the next call reports that."""
        on_hold = [job for job in self._on_hold.values() if self._has(job)]
        self._releasing &= {job.job_id for job in on_hold}
        request = LookRequest(
            shells=tuple(self._shells),
            held=tuple(HeldJob(job_id=job.job_id, seconds=job.hold_seconds) for job in on_hold),
            releasing=tuple(self._releasing),
            stops=self._stops,
        )
        answer: Wanted | int | None = None

        async def call() -> None:
            nonlocal answer
            try:
                answer = await self._client.fetch_wanted(request)
            except RunnerApiTemporaryError:
                answer = 0
            self.changed.set()

        async with asyncio.TaskGroup() as group:
            calling = group.create_task(call(), name="shell poll")
            await self.changed.wait()
            calling.cancel()
        return answer

    def _handle(self, wanted: Wanted, group: asyncio.TaskGroup) -> None:
        # A stop only triggers a call of the job; the answer to that call cancels it.
        stops = {stop.job_id for stop in set(wanted.stops).difference(self._stops)}
        for job in self._jobs.values() if stops else ():
            if job.job_id in stops and self._has(job):
                job.call_server()
        self._stops = wanted.stops
        for job in self._on_hold.values():
            if job.job_id in wanted.release and self._has(job):
                self._log.info("user ended the hold of a failed job; cleaning it up", job=job.job_id)
                self._releasing.add(job.job_id)
                job.release()
        for shell in wanted.shells:
            if shell.id not in self._shells:
                task = group.create_task(self._serve(shell), name=f"shell {shell.id} of job {shell.job_id}")
                self._shells[shell.id] = task
                task.add_done_callback(partial(self._forget, shell.id))

    def _forget(self, shell: str, _: asyncio.Task[None]) -> None:
        self._shells.pop(shell, None)

    async def _serve(self, wanted: WantedShell) -> None:
        """Run a shell to its end, and tell the cell why it ended, unless the cell itself ended it. An error ends only
        this shell."""
        log = self._log.bind(job=wanted.job_id, shell=wanted.id)
        output = _Output(self._client, wanted.id, self._clock)
        reason = "the runner manager stops"
        try:
            reason = await self._run_shell(wanted, output)
        except _OverError:
            reason = ""
        except (AgentRefusedError, AgentUnavailableError, EnvironmentTemporaryError, RunnerApiTemporaryError) as error:
            reason = str(error)
        except FrameError as error:
            reason = str(error)
        except Exception as error:
            log.error("shell in a job failed; closing it", exc_info=error)
            reason = f"the runner manager failed: {type(error).__name__}"
        finally:
            log.info("shell in a job ended", reason=reason)
            if reason:
                await self._report_end(wanted, output, reason)

    async def _report_end(self, wanted: WantedShell, output: "_Output", reason: str) -> None:
        with suppress(RunnerApiTemporaryError, TimeoutError, _OverError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                # The output position of a shell of an earlier process is unknown.
                if not wanted.begun and reason != ENDED:
                    await output.finish(reason)
        with suppress(RunnerApiTemporaryError, TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._client.close(wanted.id, reason)

    async def _run_shell(self, wanted: WantedShell, output: "_Output") -> str:
        """Open a shell and pass data until it ends. Returns why it ended or could not be opened."""
        if wanted.begun:
            return "the runner manager was restarted, and the shell ended with the old process"
        job = next((job for job in self._jobs.values() if job.job_id == wanted.job_id and self._has(job)), None)
        if job is None:
            return f"the runner manager does not have job {wanted.job_id} (any more)"
        if not job.allows_shells:
            return "this runner allows no shells in its jobs (allow_shell = false)"
        command = ShellCommand(
            command=wanted.command,
            terminal=wanted.terminal,
            columns=wanted.columns,
            rows=wanted.rows,
            term=wanted.term,
        )
        self._log.info("opening a shell in a job", job=wanted.job_id, shell=wanted.id)
        async with job.shell(command) as shell, unwrap_group_error(), asyncio.TaskGroup() as tasks:
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
            await output.flush()
            sending.cancel()
        return ENDED

    async def _feed(self, shell_id: str, shell: AgentShell) -> None:
        """Pass input and terminal sizes from the cell to the shell. Raises _OverError when the shell is over."""
        offset, frames = 0, Frames(TO_COMMAND)
        while True:
            piece = await _retry(partial(self._client.input, shell_id, offset), self._clock)
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
    """The cell reports that the shell is over, so nothing more is sent."""


class _Output:
    """Buffers the output of a shell, a stream of typed frames (`remuda.wire.shell`), and sends it to the cell."""

    def __init__(self, client: ShellClient, shell: str, clock: Clock) -> None:
        self._client = client
        self._shell = shell
        self._clock = clock
        self._waiting = bytearray()
        self._offset = 0
        self._filled, self._drained = asyncio.Event(), asyncio.Event()
        self._drained.set()

    async def add(self, data: bytes) -> None:
        """Queue whole frames for the cell, after waiting while more than WINDOW_BYTES are queued."""
        while len(self._waiting) > WINDOW_BYTES:
            await self._drained.wait()
        self._waiting += data
        self._drained.clear()
        self._filled.set()

    async def flush(self) -> None:
        while self._waiting:
            await self._drained.wait()

    async def run(self) -> None:
        """Send queued output until cancelled. Raises _OverError when the cell says that the shell is over."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._waiting:
                await self._send()
            self._drained.set()

    async def finish(self, reason: str) -> None:
        self._waiting += refusal_frame(reason)
        while self._waiting:
            await self._send()

    async def _send(self) -> None:
        piece = bytes(self._waiting[:PIECE_BYTES])
        reply = await _retry(partial(self._client.output, self._shell, self._offset, piece), self._clock)
        more = reply.size - self._offset
        if reply.is_over or not 0 <= more <= len(self._waiting):
            raise _OverError
        if not more:  # the shell's user is far behind
            await self._clock.sleep(BUSY_SECONDS)
        del self._waiting[:more]
        self._offset = reply.size
        if len(self._waiting) <= WINDOW_BYTES:
            self._drained.set()
            self._drained.clear()


async def _retry(call: Callable[[], Awaitable[_T]], clock: Clock) -> _T:
    """Repeat a call to the cell until it is answered. Raises RunnerApiTemporaryError after PATIENCE_SECONDS."""
    failures, since = 0, clock.monotonic()
    while True:
        try:
            return await call()
        except RunnerApiTemporaryError:
            failures += 1
            if clock.monotonic() - since >= PATIENCE_SECONDS:
                raise
            await clock.sleep(min(_BACKOFF.delay(failures, jitter=random.random()), 5.0))
