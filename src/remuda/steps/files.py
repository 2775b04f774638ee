"""The files of a running step: which there are, and where.

A step has no folder of its own: in the job's folder its files cost a fraction of what a new folder costs a disk.
"""

from pathlib import Path


class StepFiles:
    """Paths of one step. The shim gets `base` and knows the suffixes too."""

    __slots__ = ("base", "exit", "inputs", "outputs", "pid", "raw", "script")

    def __init__(self, job: Path, index: int) -> None:
        self.base = job / f"step-{index}"
        self.pid = job / f"step-{index}.pid"
        """Made exclusively by the shim that runs the step: process number and start time."""
        self.raw = job / f"step-{index}.raw"
        """What the step prints."""
        self.exit = job / f"step-{index}.exit"
        """The exit code; complete when it ends in a line feed."""
        self.script = job / f"step-{index}.script"
        self.inputs = job / f"step-{index}.inputs"
        self.outputs = job / f"step-{index}.outputs"
        """What a standard step tells of its work; see `outputs`."""

    def remove(self) -> None:
        for path in (self.pid, self.raw, self.exit, self.script, self.inputs, self.outputs):
            path.unlink(missing_ok=True)
