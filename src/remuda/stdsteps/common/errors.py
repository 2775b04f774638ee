"""How a standard step fails: by its user's doing or by the platform's. The exit code tells the step runner which."""


class StepError(Exception):
    """The step cannot do what was asked: wrong inputs, a missing commit, a refused upload."""

    exit_code = 1


class PlatformError(StepError):
    """A dependency of the step failed: network, server or disk. The same job may succeed elsewhere or later."""

    exit_code = 75
