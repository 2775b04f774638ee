"""Errors of the cell. A StoreError is temporary, so the caller may try again; all others are permanent."""

from remuda.model.job import FailureReason
from remuda.pipeline.errors import Mistake


class CellError(Exception):
    """Base class of the cell's errors. The message is shown to the API client or operator and says what to do."""


class StoreError(CellError):
    """The store is unavailable at the moment (disk full, locked, unreachable). Temporary: the caller may try again."""

    retry_after_seconds = 5


class DataFolderError(CellError):
    """The data folder, database or key file is of a newer release or another cell, in use, missing or damaged."""


class ConflictError(CellError):
    """An object cannot be stored: its name is taken, or somebody else has changed it meanwhile."""


class NotFoundError(CellError):
    """The object does not exist, or this caller may not see it."""


class ProjectDeletedError(NotFoundError):
    """The job, pipeline or other object belongs to a deleted project."""


class MissingDependencyError(CellError):
    """Artifacts of jobs that a job depends on are missing or expired. If found at the hand-out, the job fails."""


class CannotStartError(CellError):
    """A job fails with the reason `reason`, because this runner lacks a feature for it or no runner can start it."""

    def __init__(self, message: str, reason: FailureReason) -> None:
        super().__init__(message)
        self.reason = reason


class InvalidError(CellError):
    """The request is invalid; the message says which part."""


class MistakesError(InvalidError):
    """The pipeline file or an included one has mistakes; the message has a line for each."""

    def __init__(self, mistakes: tuple[Mistake, ...], warnings: tuple[Mistake, ...] = ()) -> None:
        super().__init__("\n".join(str(mistake) for mistake in mistakes))
        self.mistakes = mistakes
        self.warnings = warnings


class TooDeepError(InvalidError):
    """A pipeline was not created because the chain of pipelines that trigger each other is too long."""


class ForbiddenError(CellError):
    """The caller may not do this. `job_status`: status of a job that the calling runner does not have any more."""

    def __init__(self, message: str, *, job_status: str | None = None) -> None:
        super().__init__(message)
        self.job_status = job_status


class QuotaExceededError(CellError):
    """The project has used up its storage quota."""


class TooLargeError(CellError):
    """A file, request body or list exceeds its size limit."""
