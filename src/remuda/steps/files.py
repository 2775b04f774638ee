"""The files of a running step: which there are, and where.

A step has no folder of its own: in the job's folder its files cost a fraction of what a new folder costs a disk. Those
that the step itself reads and writes lie in the job's *exchange folder*, which every environment of the job has at the
same path; nothing that belongs to the agent does.
"""

import os
from contextlib import suppress
from pathlib import Path

EXCHANGE = "exchange"
_OWN = (".raw", ".pid", ".env", ".failure")
_DELEGATED = (".order", ".results", ".results.place")
_SHARED = (".script", ".inputs", ".outputs", ".exports", ".masks")


class StepFiles:
    """Paths of one attempt at a step. The shim gets `base` and knows the suffixes too."""

    __slots__ = ("_own", "_shared")

    def __init__(self, job: Path, serial: int) -> None:
        name = f"step-{serial}" if serial >= 0 else "job"
        self._own = f"{job}/{name}"
        self._shared = f"{job}/{EXCHANGE}/{name}"

    @property
    def base(self) -> Path:
        return Path(self._own)

    @property
    def pid(self) -> Path:
        """Made exclusively by the shim that runs the step: process number and start time; then the exit code."""
        return Path(f"{self._own}.pid")

    @property
    def claim(self) -> str:
        """The same, for those who look often."""
        return f"{self._own}.pid"

    @property
    def raw(self) -> Path:
        """What the step prints."""
        return Path(f"{self._own}.raw")

    @property
    def env(self) -> Path:
        """The environment of a step that becomes another user, until it has."""
        return Path(f"{self._own}.env")

    @property
    def script(self) -> Path:
        return Path(f"{self._shared}.script")

    def command(self, level: int = 0) -> Path:
        """What is to run in an environment, for the program that runs it there; in how many around that one."""
        return Path(f"{self._shared}.command{level or ''}")

    @property
    def order(self) -> Path:
        """What another agent is to run."""
        return Path(f"{self._own}.order")

    @property
    def results(self) -> Path:
        """What has come back from there."""
        return Path(f"{self._own}.results")

    @property
    def failure(self) -> Path:
        """Written by our own programs that run something in an environment, when it is they who failed."""
        return Path(f"{self._own}.failure")

    @property
    def inputs(self) -> Path:
        return Path(f"{self._shared}.inputs")

    @property
    def outputs(self) -> Path:
        return Path(f"{self._shared}.outputs")

    @property
    def exports(self) -> Path:
        return Path(f"{self._shared}.exports")

    @property
    def masks(self) -> Path:
        """Texts that the step wants masked, one a line."""
        return Path(f"{self._shared}.masks")

    def named(self) -> tuple[str, str, str]:
        """Those that expressions know: for outputs, exports and inputs."""
        return f"{self._shared}.outputs", f"{self._shared}.exports", f"{self._shared}.inputs"

    def remove(self) -> None:
        for suffix in _OWN:
            with suppress(FileNotFoundError):
                os.unlink(self._own + suffix)
        with suppress(FileNotFoundError):
            for suffix in _DELEGATED:
                os.unlink(self._own + suffix)
        # What a step has made of its own files is removed with the job at the latest.
        for suffix in _SHARED:
            with suppress(OSError):
                os.unlink(self._shared + suffix)
        level = 1
        with suppress(OSError):
            os.unlink(self.command())
            while True:
                os.unlink(self.command(level))
                level += 1
