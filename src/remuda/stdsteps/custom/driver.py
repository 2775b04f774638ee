"""Runs a program of a custom executor's driver, and terminates it at its timeout or when the job is cancelled. It runs
in its own process group, in the driver's folder. It is terminated as GitLab Runner does it: SIGTERM to the group, wait
`graceful_kill_timeout`, SIGKILL, wait `force_kill_timeout`. If it still runs, a warning is logged and it is left."""

import contextlib
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import IO

from remuda.lib.dataclass import dataclass
from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.termination import Termination
from remuda.stdsteps.custom.job import BUILD_FAILURE, SYSTEM_FAILURE, CustomJob

LOOK_SECONDS = 1.0
"""Longest time between checks for the end of a program, in case SIGCHLD is missed."""


class StoppedError(StepError):
    """The program was terminated, or not started, because the job is cancelled."""

    exit_code = 128 + signal.SIGTERM


class BuildFailureError(StepError):
    """The driver reports that the job's script failed (exit code BUILD_FAILURE_EXIT_CODE)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program of a driver (config, prepare, run or cleanup) with its arguments and timeout."""

    name: str
    words: tuple[str, ...]
    seconds: float | None = None

    @property
    def is_configured(self) -> bool:
        return bool(self.words[0])


def find_program(job: CustomJob, name: str, *more: str) -> Program:
    """Return the driver's program config, prepare, run or cleanup. `more`: arguments after the configured ones."""
    entry = job.order[name]
    return Program(
        name=f"{name}_exec", words=(entry["exec"], *entry["args"], *more), seconds=entry.get("seconds") or None
    )


class Driver:
    """Runs the programs of a custom executor's driver for one job, one at a time."""

    def __init__(self, job: CustomJob) -> None:
        self._job = job
        self._termination = Termination(signal.SIGCHLD)
        self._graceful: float = job.order["graceful_seconds"]
        self._force: float = job.order["force_seconds"]

    @property
    def is_cancelled(self) -> bool:
        return bool(self._termination)

    def call(self, program: Program, stdout: IO[bytes] | None = None) -> int:
        """Run a program and return its exit code; a negative code is the number of the signal that killed it. Raises
        StoppedError if the job is cancelled, PlatformError if the program cannot be started or exceeds its timeout.
        `stdout`: the file for the program's output; None: the job log."""
        if self._termination:
            raise StoppedError(f"{program.name} was not started: the job is being stopped")
        try:
            # In its own process group, but not in its own session, so that processes that it leaves are found later.
            process = subprocess.Popen(
                program.words,
                cwd=self._job.folder,
                env=self._job.driver_env(),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                process_group=0,
            )
        except OSError as error:
            raise PlatformError(f"{program.name}: {program.words[0]} cannot be started: {error.strerror}") from None
        until = None if program.seconds is None else time.monotonic() + program.seconds
        if not self._has_ended(process, until, until_cancelled=True):
            self._end(process, program)
            if self._termination:
                raise StoppedError(f"{program.name} was terminated: the job is being stopped")
            raise PlatformError(f"{program.name} took longer than {program.seconds:g} s and was terminated")
        return process.returncode

    def pause(self, seconds: float) -> None:
        """Sleep for `seconds`; return earlier if the job is cancelled meanwhile."""
        until = time.monotonic() + seconds
        while not self._termination and time.monotonic() < until:
            self._wait(until)

    def _has_ended(self, process: subprocess.Popen[bytes], until: float | None, *, until_cancelled: bool) -> bool:
        while process.poll() is None:
            if (until_cancelled and self._termination) or (until is not None and time.monotonic() >= until):
                return False
            self._wait(until)
        return True

    def _wait(self, until: float | None) -> None:
        timeout = LOOK_SECONDS if until is None else min(LOOK_SECONDS, max(until - time.monotonic(), 0.0))
        if select.select([self._termination.fileno()], [], [], timeout)[0]:
            self._termination.drain()

    def _end(self, process: subprocess.Popen[bytes], program: Program) -> None:
        for number, seconds in ((signal.SIGTERM, self._graceful), (signal.SIGKILL, self._force)):
            _signal(process.pid, number)
            if self._has_ended(process, time.monotonic() + seconds, until_cancelled=False):
                _signal(process.pid, signal.SIGKILL)
                return
        say(f"WARNING: {program.name} still runs after SIGKILL and is left running")


def check(program: Program, code: int, exit_code_file: Path | None = None) -> None:
    """Raise an error unless the exit code is 0: BuildFailureError if it says that the job's script failed, else
    PlatformError. `exit_code_file`: a file to which the driver may have written the exit code of the script."""
    if code == 0:
        return
    if code == BUILD_FAILURE:
        error = BuildFailureError(
            f"{program.name} ended with exit code {code}: the driver reports a failure of the job"
        )
        error.exit_code = _read_script_code(exit_code_file)
        raise error
    if code == SYSTEM_FAILURE:
        raise PlatformError(f"{program.name} ended with exit code {code}: the driver reports a failure of the system")
    how = f"was killed by signal {-code}" if code < 0 else f"ended with the unknown exit code {code}"
    raise PlatformError(f"{program.name} {how}; a driver must exit with 0, {BUILD_FAILURE} or {SYSTEM_FAILURE}")


def _read_script_code(path: Path | None) -> int:
    """Return the script's exit code from a file of the driver; 1 if it is missing or not between 1 and 255."""
    try:
        code = int(path.read_text().split("\n", 1)[0].strip()) if path is not None else BUILD_FAILURE
    except (OSError, ValueError):
        return BUILD_FAILURE
    return code if 0 < code < 256 else BUILD_FAILURE


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
