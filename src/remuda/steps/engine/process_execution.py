"""Runs the process of one step and reads its output, from start (or takeover from an earlier agent) to the end.

A single loop checks everything: new output, an unfinished line that has waited too long, a reason to end the step, and
whether the process lives. The kernel or the next deadline wakes it, perhaps needlessly. When the shim (the command's
parent) reports the end, exactly what is in the pipe is read; later output of background processes is dropped."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from remuda.lib.clock import Clock
from remuda.lib.killpoints import reach
from remuda.lib.waiting import LightEvent, wait_for_event
from remuda.steps.engine.loading import Resolver
from remuda.steps.engine.output_files import MOST_MASK_BYTES, MOST_MASKS, read_masks
from remuda.steps.job_files.disk import DiskSpace
from remuda.steps.job_files.log import READ_BYTES, Output
from remuda.steps.process import leftovers, shim
from remuda.steps.process.fork_server import ForkServer, Worker, build_request
from remuda.steps.process.kernel import POLL_SECONDS, Changes, Pulse, Watch
from remuda.steps.process.launch import Launch
from remuda.steps.process.pipes import Drains, Pipe
from remuda.steps.process.step_files import StepFiles
from remuda.steps.process.step_process import StepProcess, Usage
from remuda.steps.process.worker_pool import WorkerPool

T = TypeVar("T")

BATCH_SECONDS = 0.01
"""Pause between two reads of output, so that a step that prints often costs little. No pause after a full read."""
CLAIM_SECONDS = 2.0
"""How long a shim that has claimed a step may take to write down its process id."""
MOST_STARTS = 4
"""How often a step is started whose shim cannot write its process id because the disk is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """What all jobs of an agent share, such as clock, fork server and the resolver of step packages."""

    clock: Clock
    pulse: Pulse
    changes: Changes
    base_env: Mapping[str, str]
    open_files: int
    """The limit of open files for steps."""
    fork_server: ForkServer | None = None
    """Starts standard steps faster than a new Python does."""
    drains: Drains = field(default_factory=Drains)
    disk_space: DiskSpace = field(default_factory=DiskSpace)
    resolver: Resolver | None = None
    """Finds packages; None: `Jobs` makes one for the data folder."""


class Write(Protocol):
    """Function that calls `act`, which writes to the disk, and returns its result. If the disk is full, it waits for
    space and calls `act` again; `meanwhile` is called periodically during the wait."""

    def __call__(self, act: Callable[[], T], meanwhile: Callable[[], object] = ...) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCallbacks:
    has_cause: Callable[[], bool]
    """True if there is a reason to end the step. The first reason is stored before this returns."""
    is_stopped: Callable[[], bool]
    """True if a reason to end the step is stored."""
    next_deadline: Callable[[], float | None]
    mask: Callable[[list[str]], None]
    look: Callable[[], None]
    """Called when the step has printed something."""
    warn: Callable[[str], None]
    """Writes a warning into the log."""
    grace_seconds: float
    """Between SIGTERM and SIGKILL."""
    holds_back: Callable[[], bool]
    """True while the log takes no more output."""
    notify: Callable[[], None]
    """Tells clients that there is more to fetch."""
    wait_for_space: Callable[[Callable[[], object]], Awaitable[None]]
    """Waits while the disk is full, and calls its argument periodically meanwhile."""
    write: Write


class ProcessExecution:
    def __init__(
        self,
        files: StepFiles,
        output: Output,
        job: JobCallbacks,
        context: AgentContext,
        *,
        is_new: bool = False,
        workers: WorkerPool,
    ) -> None:
        """`is_new`: no earlier agent can have started the step. `workers`: processes that can run built-in steps."""
        self._is_new = is_new
        self._workers = workers
        self._again: Callable[[], StepProcess | None] | None = None
        """Starts the step in a new worker, if the waiting worker that got it may have died before it took it."""
        self._launch: Launch | None = None
        self._starts_left = MOST_STARTS
        self._files = files
        self._output = output
        self._job = job
        self._context = context
        self._wake = LightEvent()
        self._process: StepProcess | None = None
        self._masks_file, self._masks_read = files.shared_path(".masks"), 0
        self._terminated_at: float | None = None
        self._killed_at: float | None = None
        self._abandoned = False
        self._pipe: Pipe | None = None
        self._watch: Watch | None = None
        """Watches a file if no line (`step_process`) reports the end of the command."""
        self._has_unread = True
        """True if the raw file may have bytes that were not read."""
        self._goes_by_files = True
        """True if the end of the command and new output are noticed by files, because there is no line to a shim."""
        self._is_dismissed = False
        self.record: shim.Record | None = None
        """What the shim or worker has written into the pid file."""
        self.masks: list[str] = []
        """Texts that the step asked to be masked."""
        self.worker_waits = False
        """True if the process that ran the step waits for the next one."""

    @property
    def usage(self) -> Usage | None:
        usage = self.record.usage if self.record else None
        if usage is not None:
            return Usage(cpu_user_seconds=usage[0], cpu_system_seconds=usage[1], max_rss_bytes=usage[2] * 1024)
        return self._process.usage if self._process else None

    @property
    def is_jobs_doing(self) -> bool:
        """True if the job probably caused a missing exit code: it killed the shim or changed the pid file."""
        status = self._process.status if self._process else None
        return status is not None and status <= 0

    def look_again(self) -> None:
        self._wake.set()

    def kill(self) -> None:
        """Kill the process group of the step, and make sure that no agent starts the step again. Processes that have
        left the group continue."""
        if self._process is not None:
            self._process.signal_group(signal.SIGKILL)
            leftovers.reap_soon([-self._process.pid])
        kill_unattended(self._files, self._context)

    async def run(self, prepare: Callable[[], Awaitable[Launch]]) -> None:
        """Run the step's process until it has ended and its output is in the log. If an earlier agent has started it,
        watch that one; else start it as `prepare` returns, unless there is a reason to end the step."""
        record = None if self._is_new else shim.read_record(self._files)
        if record is not None:
            process = self._adopt(record)
        else:
            if self._forbid_if_stopped():
                return
            launch = await prepare()
            if self._forbid_if_stopped():  # while `prepare` waited for space on the disk
                return
            process = self._spawn(launch)
        try:
            while True:
                meanwhile = partial(self._end_if_due, process)
                await self._job.wait_for_space(meanwhile)
                self._wake.clear()
                self._arm()
                # Checked before reading: what an ended process has written is found by this read or the next.
                ended = process.exited.is_set() or self._is_out_of_reach()
                if ended and (successor := await self._find_successor(process)):
                    process = successor
                    continue
                if not ended and not self._is_dismissed and self._has_reported(process):
                    await self._job.write(partial(self._dismiss, process), meanwhile)
                size = await self._job.write(self._take_output, meanwhile)
                over = self._end_if_due(process)
                if ended and over and not size:
                    break
                await self._pause(process, size)
            self._look_for_masks(rest=True)
            await self._job.write(self._output.finish)
        except BaseException:
            # The job goes on without this agent: the rest of the pipe is for the next one.
            self._let_go()
            if (unused := process.release()) is not None:
                unused.leave()
            raise
        if self._pipe is not None:
            self._context.drains.add(self._pipe)
            self._pipe = None
        self._let_go()
        if (worker := process.release()) is not None:
            self.worker_waits = True
            self._workers.keep(worker)
        reach("agent.step_exited")

    def _forbid_if_stopped(self) -> bool:
        """If there is a reason to end the step, make sure that no agent can start it any more, and return True. Returns
        False if there is no reason, or if an earlier agent has already started the step."""
        return self._job.has_cause() and (shim.forbid(self._files) or self._is_new)

    def _spawn(self, launch: Launch) -> StepProcess:
        reach("agent.step_prepared")
        if not launch.piped:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
            os.close(os.open(self._files.own_path(".raw"), flags, 0o600))
        self._launch = launch
        return self._start(launch)

    def _start(self, launch: Launch) -> StepProcess:
        self._starts_left -= 1
        self._let_go()
        if (process := self._start_in_worker(launch)) is not None:
            reach("agent.step_spawned")
            return process
        with self._open_ends(launch) as (line, ends):
            pid = shim.spawn(
                self._files,
                launch.argv,
                work_dir=launch.work_dir,
                env=launch.env,
                open_files=self._context.open_files,
                joins=launch.joins,
                key=launch.key,
                ends=ends,
            )
            reach("agent.step_spawned")
        return self._watch_process(pid, start=None, line=line)

    def _start_in_worker(self, launch: Launch, *, anew: bool = False) -> StepProcess | None:
        """Have a worker run the step: a forked process that has the built-in programs loaded. `anew`: a new worker, not
        one that waits. Returns None if the step is not a built-in program or no worker can be forked."""
        if not launch.program:
            return None
        request = build_request(
            self._files,
            launch.program,
            work_dir=launch.work_dir,
            env=launch.env if launch.program_env is None else launch.program_env,
            open_files=self._context.open_files,
            enclosure=launch.enclosure,
            key=launch.key,
        )
        started = self._workers.start(request, anew=anew)
        if started is None:
            return None
        worker, was_waiting = started
        self._again = partial(self._start_in_worker, launch, anew=True) if was_waiting else None
        return self._adopt(shim.Record(pid=worker.pid, start=worker.start), worker)

    @contextmanager
    def _open_ends(self, launch: Launch) -> Iterator[tuple[int, tuple[int, int] | None]]:
        """Create an output pipe and a socket for the shim (the parent process of the command), which the caller starts
        in the block. Yields the agent's end of the socket, and the shim's descriptors of socket and pipe (closed after
        the block); -1 and None for a step that needs no pipe."""
        if not launch.piped:
            yield -1, None
            return
        self._pipe, printing = Pipe.make(launch.owner)
        self._has_unread = False
        ours, theirs = socket.socketpair()
        try:
            yield ours.fileno(), (theirs.fileno(), printing)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(printing)
        ours.setblocking(False)
        ours.detach()

    def _adopt(self, record: shim.Record, worker: Worker | None = None) -> StepProcess:
        self._let_go()
        self._terminated_at, self._killed_at, self._is_dismissed = None, None, False
        self._has_unread = True
        process = self._watch_process(record.pid, start=shim.start_of(record, self._files), worker=worker)
        if record.start == 0 and not process.exited.is_set():
            # The shim itself holds this pipe, so it is certainly the step's.
            self._pipe = Pipe.open_of(record.pid)
        return process

    def _watch_process(
        self, pid: int, *, start: int | None, line: int = -1, worker: Worker | None = None
    ) -> StepProcess:
        self._goes_by_files = line < 0
        self._process = StepProcess(
            pid,
            start=start,
            child=start is None,
            pulse=self._context.pulse,
            wake=self._wake.set,
            line=line,
            worker=worker,
        )
        return self._process

    def _arm(self) -> None:
        if self._pipe is not None and self._must_read_pipe():
            self._pipe.arm(self._wake.set)
        if self._goes_by_files:
            if self._watch is None:
                name = self._files.own_path(".raw") if self._pipe is None else self._files.claim
                self._watch = self._context.changes.watch(name, self._wake.set)
            self._watch.arm()

    def _must_read_pipe(self) -> bool:
        """True if the command's output pipe must be read: the log accepts more output, and the command has not ended or
        the step is being stopped."""
        return (not self._is_dismissed or self._job.is_stopped()) and not self._job.holds_back()

    def _has_reported(self, process: StepProcess) -> bool:
        if not self._goes_by_files or self._pipe is None:
            return process.reported.is_set()
        record = shim.read_record(self._files)
        return record is not None and record.exit_code is not None

    def _dismiss(self, process: StepProcess) -> None:
        """Read the rest of the ended command's output, then let the shim exit, which has held the pipe open."""
        if self._pipe is not None:
            size = 0 if self._output.is_full else self._pipe.count_waiting()
            self._has_unread = self._has_unread or size > 0
            while size > 0 and (moved := self._pipe.take(self._files.own_path(".raw"), size)):
                size -= moved
        self._is_dismissed = True
        if self._pipe is not None and not self._must_read_pipe():
            self._pipe.disarm()
        process.dismiss()

    def _let_go(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    async def _find_successor(self, process: StepProcess) -> StepProcess | None:
        """Called when the watched process has ended: return the process that runs the step instead. Either an earlier
        agent had started the step, or it has to be started again. None if the step is over."""
        if self._abandoned:
            return None
        deadline = self._context.clock.monotonic() + CLAIM_SECONDS
        while (record := shim.read_record(self._files)) is None:
            if self._launch is not None and self._can_start_again() and shim.withdraw(self._files):
                return self._start(self._launch)
            again, self._again = self._again, None
            if again is not None and not self._job.has_cause() and (another := again()) is not None:
                return another
            # Ours has ended without a claim. If there is no other claim, forbid any.
            if shim.forbid(self._files) or self._context.clock.monotonic() >= deadline:
                self._abandoned = True
                return None
            await asyncio.sleep(POLL_SECONDS)
        self.record = record
        return self._adopt(record) if record.pid != process.pid else None

    def _can_start_again(self) -> bool:
        """True if the step may be started again: no reason to end it, starts left, and no earlier agent can have
        started it, so that an empty pid file is from an ended process of this agent."""
        return self._is_new and self._starts_left > 0 and not self._job.has_cause()

    def _take_output(self) -> int:
        """Write the next output to the log, and return its size; 0 if there is none. Can be repeated after an error."""
        is_rest_written = self._output.write_rest()
        data = self._output.read() if self._has_unread else b""
        if not data and self._pipe is not None:
            self._has_unread = False
            if self._output.is_full:
                self._pipe.drop()
            elif self._must_read_pipe() and self._pipe.take(self._files.own_path(".raw")):
                self._has_unread = True
                data = self._output.read()
        if data:
            # Masks that the step wrote before it printed this are read first.
            self._look_for_masks()
            self._output.take(data)
            self._job.look()
        due = self._output.partial_due_at
        if due is not None and self._context.clock.now() >= due:
            self._output.show_partial()
        if data or due is not None or is_rest_written:
            self._job.notify()
        return len(data)

    def _look_for_masks(self, *, rest: bool = False) -> None:
        if self._masks_read >= MOST_MASK_BYTES:
            return
        masks, self._masks_read = read_masks(self._masks_file, self._masks_read, rest=rest)
        if len(self.masks) + len(masks) > MOST_MASKS:
            masks, self._masks_read = masks[: MOST_MASKS - len(self.masks)], MOST_MASK_BYTES
        if masks:
            self.masks += masks
            self._job.mask(masks)
        if self._masks_read >= MOST_MASK_BYTES:
            self._job.warn(
                f"a step may have {MOST_MASKS} texts masked, and {MOST_MASK_BYTES} bytes; further ones are not masked"
            )

    def _end_if_due(self, process: StepProcess) -> bool:
        """If there is a reason to end the step, send SIGTERM, and SIGKILL after the grace period. Returns False only
        between the two signals, while a process of the step's group lives: the caller must call it again."""
        if process.exited.is_set() and not self._job.is_stopped():
            return True
        if not self._job.has_cause():
            return True
        now = self._context.clock.monotonic()
        if self._terminated_at is None:
            self._terminated_at = now
            process.signal_group(signal.SIGTERM)
            # A stopped process handles SIGTERM only after SIGCONT.
            process.signal_group(signal.SIGCONT)
        if self._killed_at is None and now >= self._terminated_at + self._job.grace_seconds:
            process.signal_group(signal.SIGKILL)
            leftovers.reap_soon([-process.pid])
            self._killed_at = now
        return self._killed_at is not None or not process.group_lives()

    def _is_out_of_reach(self) -> bool:
        """True if the process exists `END_SECONDS` after SIGKILL (frozen, blocked): the step ends without it."""
        if self._killed_at is None:
            return False
        return self._context.clock.monotonic() >= self._killed_at + leftovers.END_SECONDS

    async def _pause(self, process: StepProcess, size: int) -> None:
        """Wait until there may be something to do: output, an end or a deadline. `size`: how many bytes of output were
        just read; after a full buffer there is probably more, so only other tasks get a chance to run."""
        if size == READ_BYTES:
            await asyncio.sleep(0)
            return
        if size:
            event = process.exited if self._is_dismissed else process.reported
            await wait_for_event(event, within_seconds=BATCH_SECONDS)
            return
        now = self._context.clock.now()
        # The end of other processes in the group is not reported by the kernel.
        until = now + POLL_SECONDS if self._terminated_at is not None else self._job.next_deadline()
        partial = self._output.partial_due_at
        if partial is not None and (until is None or partial < until):
            until = partial
        if until is None:
            await self._wake.wait()
        else:
            await wait_for_event(self._wake, within_seconds=until - now)


def kill_unattended(files: StepFiles, context: AgentContext) -> None:
    """Kill the process group of a step, found by its pid file, whichever agent started it. If there is no pid file,
    create one: it prevents a start of the step."""
    if not shim.forbid(files) and (claim := shim.read_claim(files)):
        process = StepProcess(claim[0], start=claim[1], child=False, pulse=context.pulse, wake=lambda: None)
        process.signal_group(signal.SIGKILL)
        leftovers.reap_soon([-claim[0]])
