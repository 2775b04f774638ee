"""What a decision comes to, on its way to the store and back."""

import msgspec

from remuda.cell.values import Artifact, Job, Pipeline
from remuda.model.job import JobId


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A further try: a new job with the spec of an old one, which is marked as retried."""

    of: JobId
    job: Job
    """The new job; its `id` is 0 and is set by the store."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision about a pipeline comes to."""

    jobs: tuple[Job, ...] = ()
    """Jobs that changed, whole."""
    retries: tuple[Retry, ...] = ()
    pipeline: Pipeline | None = None


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What was stored."""

    jobs: tuple[Job, ...] = ()
    """Changed and new jobs, with their ids."""
    pipeline: Pipeline | None = None


class Leaves(msgspec.Struct, frozen=True, kw_only=True):
    """A job and its artifacts after a decision about them."""

    job: Job
    artifacts: tuple[Artifact, ...]
    """All that it still has, whole."""
