"""Errors of standard steps: StepError for errors of the job, PlatformError for errors of the platform. The step's exit
code (1 or 75) tells the step runner which of them occurred."""


class StepError(Exception):
    """The step cannot do what the job asked for: wrong inputs, a missing commit, a refused upload. Exit code 1."""

    exit_code = 1


class PlatformError(StepError):
    """A dependency of the step failed: network, server or disk. A retry may succeed. Exit code 75."""

    exit_code = 75
