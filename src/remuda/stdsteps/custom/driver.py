"""Calls a program of a driver, and ends it when it takes too long or the job is to end.

A program of the driver runs in a process group of its own, in the driver's folder. It is ended as GitLab's runner does
it: SIGTERM to the group, `graceful_kill_timeout`, SIGKILL, `force_kill_timeout`; after that it is left alone, with a
line in the log. `check` turns its exit code into an error.
"""

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
from remuda.stdsteps.common.termination import Told
from remuda.stdsteps.custom.job import BUILD_FAILURE, SYSTEM_FAILURE, CustomJob

LOOK_SECONDS = 1.0
"""How often a program is looked at although nothing was heard of its end."""


class StoppedError(StepError):
    """The job is to end, and the program was ended for that."""

    exit_code = 128 + signal.SIGTERM


class BuildFailureError(StepError):
    """The driver says that it is the job's failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One of the four programs of a driver."""

    name: str
    words: tuple[str, ...]
    seconds: float | None = None

    @property
    def is_there(self) -> bool:
        return bool(self.words[0])


def program(job: CustomJob, name: str, *more: str) -> Program:
    """config, prepare, run or cleanup; with more words behind those of the configuration."""
    given = job.order[name]
    return Program(
        name=f"{name}_exec", words=(given["exec"], *given["args"], *more), seconds=given.get("seconds") or None
    )


class Driver:
    """Calls programs one after the other."""

    def __init__(self, job: CustomJob) -> None:
        self._job = job
        self._told = Told(children=True)
        self._graceful: float = job.order["graceful_seconds"]
        self._force: float = job.order["force_seconds"]

    @property
    def is_told(self) -> bool:
        """Whether the job is to end."""
        return bool(self._told)

    def call(self, called: Program, stdout: IO[bytes] | None = None) -> int:
        """Its exit code, negative for a signal. StoppedError, PlatformError."""
        if self._told:
            raise StoppedError(f"{called.name} is not started: the job is to end")
        try:
            # In a group of its own, but not in a session: what it leaves behind is found when the job ends.
            process = subprocess.Popen(
                called.words,
                cwd=self._job.folder,
                env=self._job.driver_env(),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                process_group=0,
            )
        except OSError as error:
            raise PlatformError(f"{called.name}: {called.words[0]} cannot be started: {error.strerror}") from None
        until = None if called.seconds is None else time.monotonic() + called.seconds
        if not self._has_ended(process, until, until_told=True):
            self._end(process, called)
            if self._told:
                raise StoppedError(f"{called.name} was ended: the job is to end")
            raise PlatformError(f"{called.name} took longer than {called.seconds:g} s and was ended")
        return process.returncode

    def pause(self, seconds: float) -> None:
        """Wait, unless the job is to end."""
        until = time.monotonic() + seconds
        while not self._told and time.monotonic() < until:
            self._listen(until)

    def _has_ended(self, process: subprocess.Popen[bytes], until: float | None, *, until_told: bool) -> bool:
        while process.poll() is None:
            if (until_told and self._told) or (until is not None and time.monotonic() >= until):
                return False
            self._listen(until)
        return True

    def _listen(self, until: float | None) -> None:
        patience = LOOK_SECONDS if until is None else min(LOOK_SECONDS, max(until - time.monotonic(), 0.0))
        if select.select([self._told.fileno()], [], [], patience)[0]:
            self._told.empty()

    def _end(self, process: subprocess.Popen[bytes], called: Program) -> None:
        for number, seconds in ((signal.SIGTERM, self._graceful), (signal.SIGKILL, self._force)):
            _signal(process.pid, number)
            if self._has_ended(process, time.monotonic() + seconds, until_told=False):
                _signal(process.pid, signal.SIGKILL)
                return
        say(f"WARNING: {called.name} cannot be ended, not even by SIGKILL; it is left alone")


def check(called: Program, code: int, exit_code_file: Path | None = None) -> None:
    """What a program's end means; `exit_code_file` may have the exit code of the job's own script."""
    if code == 0:
        return
    if code == BUILD_FAILURE:
        error = BuildFailureError(f"{called.name} ended with exit code {code}: the job's failure")
        error.exit_code = _script_code(exit_code_file)
        raise error
    if code == SYSTEM_FAILURE:
        raise PlatformError(f"{called.name} ended with exit code {code}: the driver reports a failure of the system")
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}, which means nothing here"
    raise PlatformError(f"{called.name} {how}; a driver ends with 0, {BUILD_FAILURE} or {SYSTEM_FAILURE}")


def _script_code(path: Path | None) -> int:
    """What the driver has written down, where it has; anything but 1 to 255 is 1."""
    try:
        code = int(path.read_text().split("\n", 1)[0].strip()) if path is not None else BUILD_FAILURE
    except (OSError, ValueError):
        return BUILD_FAILURE
    return code if 0 < code < 256 else BUILD_FAILURE


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
