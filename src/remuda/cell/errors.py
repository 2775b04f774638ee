"""Errors of the cell. StoreError is temporary, all others are permanent. `http.edge.errors` gives status codes."""

from remuda.model.job import FailureReason
from remuda.pipeline.errors import Mistake


class CellError(Exception):
    """An error for a caller or operator; the message says what to do."""


class StoreError(CellError):
    """The store does not work at the moment (disk full, locked, unreachable); temporary."""

    retry_after_seconds = 5


class DataFolderError(CellError):
    """The data folder cannot be used: newer version, in use, not writable."""


class ConflictError(CellError):
    """The name is taken, or the object was changed meanwhile."""


class NotFoundError(CellError):
    """The object does not exist, or this caller may not see it."""


class ProjectDeletedError(NotFoundError):
    """The object belongs to a deleted project."""


class MissingDependencyError(CellError):
    """A job cannot start because artifacts that it needs are missing."""


class CannotStartError(CellError):
    """A job cannot start on its runner, or on any; `reason` is its failure reason."""

    def __init__(self, message: str, reason: FailureReason) -> None:
        super().__init__(message)
        self.reason = reason


class InvalidError(CellError):
    """The request is invalid; the message says which part."""


class MistakesError(InvalidError):
    """The pipeline file or an included one has mistakes; the message has a line for each."""

    def __init__(self, mistakes: tuple[Mistake, ...]) -> None:
        super().__init__("\n".join(str(mistake) for mistake in mistakes))
        self.mistakes = mistakes


class TooDeepError(InvalidError):
    """The chain of pipelines that start each other is too long."""


class ForbiddenError(CellError):
    """The caller may not do this. `job_status` tells a runner the status of a job that is not its own any more."""

    def __init__(self, message: str, *, job_status: str | None = None) -> None:
        super().__init__(message)
        self.job_status = job_status


class TooLargeError(CellError):
    """A file, body or list exceeds a limit."""
