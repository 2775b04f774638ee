"""One step's process and its output, from start or adoption to the end.

A single loop looks at everything at once: new output, an unfinished line that has waited long enough, a reason to
end the step, whether the process lives. It is woken by the kernel or at the next deadline, and any wake-up may be in
vain. What is a reason to end is decided in `plan`; what the end means, too.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from remuda.lib.aio import happens
from remuda.lib.clock import Clock
from remuda.lib.killpoints import reach
from remuda.steps import leftovers, shim
from remuda.steps.files import StepFiles
from remuda.steps.kernel import POLL_SECONDS, Changes, Pulse
from remuda.steps.launching import Launch
from remuda.steps.loading import Resolver
from remuda.steps.logfile import READ_BYTES, Output
from remuda.steps.outputs import MOST_MASK_BYTES, MOST_MASKS, read_masks
from remuda.steps.process import StepProcess, Usage
from remuda.steps.standby import Standby

BATCH_SECONDS = 0.01
"""Output is taken over at most this often, so that a step that prints much costs little."""
COPY_SECONDS = 1.0
"""How long to wait for what copies the output of a step that has ended, where something goes on writing."""
ON_THE_WAY_BYTES = 1024 * 1024
"""More than a pipe and what copies from it can hold."""
CLAIM_SECONDS = 2.0
"""How long a shim that has claimed a step may take to write down its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all jobs of an agent share."""

    clock: Clock
    pulse: Pulse
    changes: Changes
    base_env: Mapping[str, str]
    open_files: int
    """The limit of open files that steps get."""
    standby: Standby | None = None
    """Starts standard steps faster than a new Python does."""
    resolver: Resolver | None = None
    """Finds packages; None: one of its own for the data folder."""


class Watched:
    """What the execution of a step needs of the job around it."""

    def __init__(
        self,
        *,
        has_cause: Callable[[], bool],
        is_stopped: Callable[[], bool],
        next_deadline: Callable[[], float | None],
        mask: Callable[[list[str]], None],
        look: Callable[[], None],
        warn: Callable[[str], None],
        grace_seconds: float,
        tell: Callable[[], None],
    ) -> None:
        self.has_cause = has_cause
        """Whether there is a reason to end the step; the first is written down before anything follows from it."""
        self.is_stopped = is_stopped
        """Whether such a reason is written down."""
        self.next_deadline = next_deadline
        self.mask = mask
        self.look = look
        """Called when the step has printed something."""
        self.warn = warn
        """Says something in the log."""
        self.grace_seconds = grace_seconds
        """Between SIGTERM and SIGKILL."""
        self.tell = tell


class Execution:
    """A step that runs."""

    def __init__(self, files: StepFiles, output: Output, job: Watched, around: Surroundings) -> None:
        self._files = files
        self._output = output
        self._job = job
        self._around = around
        self._wake = asyncio.Event()
        self._process: StepProcess | None = None
        self._masks_file, self._masks_read = str(files.masks), 0
        self._terminated_at: float | None = None
        self._killed = False
        self._abandoned = False
        self._copying_since: float | None = None
        self._last_byte: int | None = None
        self.record: shim.Record | None = None
        """What the shim has left, once it has ended."""
        self.masks: list[str] = []
        """What the step asked to be masked."""

    @property
    def usage(self) -> Usage | None:
        told = self.record.usage if self.record else None
        if told is not None:
            return Usage(cpu_user_seconds=told[0], cpu_system_seconds=told[1], max_rss_bytes=told[2] * 1024)
        return self._process.usage if self._process else None

    @property
    def is_jobs_doing(self) -> bool:
        """Whether the shim, which this agent started, was killed, or has written an exit code that is not there."""
        status = self._process.status if self._process else None
        return status is not None and status <= 0

    def look_again(self) -> None:
        self._wake.set()

    def kill(self) -> None:
        """End everything the step started, and make sure that it cannot start any more."""
        if self._process is not None:
            self._process.signal_group(signal.SIGKILL)
            leftovers.reap_soon([-self._process.pid])
        kill_unattended(self._files, self._around)

    async def run(self, prepare: Callable[[], Launch]) -> None:
        """Start the process, or find it again, and stay with it until it has ended and its output is in the log."""
        claim = shim.claimed(self._files)
        if claim is None and self._job.has_cause() and shim.forbid(self._files):
            return  # stopped between the decision to start and the start
        process = self._adopt(claim) if claim else self._spawn(prepare)
        watch = self._around.changes.watch(self._files.own(".raw"), self._wake.set)
        try:
            while True:
                self._wake.clear()
                watch.arm()
                # Asked before reading: whatever an ended process has written is found by this reading or the next.
                ended = process.exited.is_set()
                if ended and (successor := await self._winner_over(process)):
                    process = successor
                    continue
                size = self._take_output()
                over = self._end_if_due(process)
                if ended and (self._has_all() or (over and not size)):
                    break
                await self._pause(process, size)
        finally:
            watch.close()
        self._look_for_masks(rest=True)
        self._output.finish()
        reach("agent.step_exited")

    def _spawn(self, prepare: Callable[[], Launch]) -> StepProcess:
        launch = prepare()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        os.close(os.open(self._files.own(".raw"), flags, 0o600))
        reach("agent.step_prepared")
        limits = self._around.open_files
        started = None
        if launch.program and self._around.standby is not None:
            started = self._around.standby.spawn(
                self._files,
                launch.program,
                work_dir=launch.work_dir,
                env=launch.env if launch.program_env is None else launch.program_env,
                open_files=limits,
                enclosure=launch.enclosure,
            )
        if started is not None:
            reach("agent.step_spawned")
            return self._adopt(started)
        pid = shim.spawn(
            self._files,
            launch.argv,
            work_dir=launch.work_dir,
            env=launch.env,
            open_files=limits,
            joins=launch.joins,
            piped=launch.piped,
        )
        reach("agent.step_spawned")
        self._process = self._watched(pid, start=None)
        return self._process

    def _adopt(self, claim: tuple[int, int]) -> StepProcess:
        self._process = self._watched(claim[0], start=claim[1])
        self._terminated_at, self._killed = None, False
        return self._process

    def _watched(self, pid: int, *, start: int | None) -> StepProcess:
        return StepProcess(pid, start=start, child=start is None, pulse=self._around.pulse, wake=self._wake.set)

    async def _winner_over(self, process: StepProcess) -> StepProcess | None:
        """The shim that runs the step where ours came too late: an agent before this one had started it."""
        if self._abandoned:
            return None
        deadline = self._around.clock.monotonic() + CLAIM_SECONDS
        while (found := shim.record(self._files)) is None:
            # Ours has ended without a claim. If nobody else made one, nobody may any more.
            if shim.forbid(self._files) or self._around.clock.monotonic() >= deadline:
                self._abandoned = True
                return None
            await asyncio.sleep(POLL_SECONDS)
        self.record = found
        return self._adopt((found.pid, found.start)) if found.pid != process.pid else None

    def _take_output(self) -> int:
        data = self._output.read()
        if data:
            # Whatever the step asked to be masked before it printed this is known by now.
            self._look_for_masks()
            self._output.take(data)
            self._job.look()
        due = self._output.partial_due_at
        if due is not None and self._around.clock.now() >= due:
            self._output.show_partial()
        if data or due is not None:
            self._job.tell()
        return len(data)

    def _look_for_masks(self, *, rest: bool = False) -> None:
        if self._masks_read >= MOST_MASK_BYTES:
            return
        found, self._masks_read = read_masks(self._masks_file, self._masks_read, rest=rest)
        if len(self.masks) + len(found) > MOST_MASKS:
            found, self._masks_read = found[: MOST_MASKS - len(self.masks)], MOST_MASK_BYTES
        if self._masks_read >= MOST_MASK_BYTES:
            self._job.warn(
                f"a step may have {MOST_MASKS} texts masked, and {MOST_MASK_BYTES} bytes of them; the rest is not"
            )
        if found:
            self.masks += found
            self._job.mask(found)

    def _end_if_due(self, process: StepProcess) -> bool:
        """Signal the step where it must end. True when nothing keeps it from being over once the shim has ended."""
        if process.exited.is_set() and not self._job.is_stopped():
            return self._is_copied(process)
        if not self._job.has_cause():
            return True
        now = self._around.clock.monotonic()
        if self._terminated_at is None:
            self._terminated_at = now
            process.signal_group(signal.SIGTERM)
        if not self._killed and now >= self._terminated_at + self._job.grace_seconds:
            process.signal_group(signal.SIGKILL)
            leftovers.reap_soon([-process.pid])
            self._killed = True
        return self._killed or not process.group_lives()

    def _is_copied(self, process: StepProcess) -> bool:
        """Whether all that the step printed before it ended has been copied. What it left in the background may print
        on, and is not waited for."""
        if not process.group_lives() or not os.path.exists(self._files.own(".pipe")):
            return True
        now = self._around.clock.monotonic()
        self._copying_since = now if self._copying_since is None else self._copying_since
        if self._last_byte is None:
            self._last_byte = os.path.getsize(self._files.own(".raw")) + ON_THE_WAY_BYTES
        return now >= self._copying_since + COPY_SECONDS

    def _has_all(self) -> bool:
        """Whether the log has more than the step can have printed before it ended: something prints on and on, and
        would otherwise keep the step from its end."""
        return self._last_byte is not None and self._output.consumed >= self._last_byte

    async def _pause(self, process: StepProcess, size: int) -> None:
        """Wait for something to happen; other jobs get their turn in any case."""
        if size == READ_BYTES:
            await asyncio.sleep(0)
            return
        if size:
            await happens(process.exited, within_seconds=BATCH_SECONDS)
            return
        now = self._around.clock.now()
        # What the shim left behind in its group ends without telling anybody.
        if self._copying_since is not None:
            waited = self._around.clock.monotonic() - self._copying_since
            until: float | None = now + max(COPY_SECONDS / 1000, waited / 4)
        else:
            until = now + POLL_SECONDS if self._terminated_at is not None else self._job.next_deadline()
        partial = self._output.partial_due_at
        if partial is not None and (until is None or partial < until):
            until = partial
        if until is None:
            await self._wake.wait()
        else:
            await happens(self._wake, within_seconds=until - now)


def kill_unattended(files: StepFiles, around: Surroundings) -> None:
    """The same for a step whose process nobody here knows: an earlier agent may have started it."""
    if not shim.forbid(files) and (claim := shim.claimed(files)):
        process = StepProcess(claim[0], start=claim[1], child=False, pulse=around.pulse, wake=lambda: None)
        process.signal_group(signal.SIGKILL)
        leftovers.reap_soon([-claim[0]])
