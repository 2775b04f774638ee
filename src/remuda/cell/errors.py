"""Errors of the cell. Temporary ones may be tried again, permanent ones may not; the edge gives status codes."""

from remuda.model.job import FailureReason
from remuda.pipeline.errors import Mistake


class CellError(Exception):
    """Something a caller or an operator has to know; the text says what to do."""


class StoreError(CellError):
    """The store cannot do it now (disk full, locked, gone); temporary."""

    retry_after_seconds = 5


class DataFolderError(CellError):
    """The data folder cannot be used: newer version, in use, not writable."""


class ConflictError(CellError):
    """There is one of that name already."""


class NotFoundError(CellError):
    """No such thing, or not for this caller."""


class ProjectDeletedError(NotFoundError):
    """What it is about belongs to a project that was deleted."""


class MissingDependencyError(CellError):
    """A job cannot start because artifacts that it must have are not there."""


class CannotStartError(CellError):
    """A job cannot start on the runner that got it, or anywhere; `reason` is what it fails with."""

    def __init__(self, message: str, reason: FailureReason) -> None:
        super().__init__(message)
        self.reason = reason


class InvalidError(CellError):
    """The request makes no sense as it is."""


class MistakesError(InvalidError):
    """The pipeline file, or one that it includes, has mistakes; the text lists them, a line each."""

    def __init__(self, mistakes: tuple[Mistake, ...]) -> None:
        super().__init__("\n".join(str(mistake) for mistake in mistakes))
        self.mistakes = mistakes


class TooDeepError(InvalidError):
    """Too many pipelines would have started each other."""


class ForbiddenError(CellError):
    """Known, but not allowed. `job_status` is what a runner is told of a job that it may not touch (any more)."""

    def __init__(self, message: str, *, job_status: str | None = None) -> None:
        super().__init__(message)
        self.job_status = job_status


class TooLargeError(CellError):
    """Beyond a limit."""
