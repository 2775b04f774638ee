"""Changes that a decision returns, and the values that the store returns for them."""

from collections.abc import Mapping, Sequence

import msgspec

from remuda.cell.values.jobs import Artifact, Job, Pipeline
from remuda.cell.values.projects import Project, ProjectVariable
from remuda.model.job import JobId
from remuda.pipeline import JobSpec


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


class Belongings(msgspec.Struct, frozen=True, kw_only=True):
    """What the payload of a job is made of; None is what is not there."""

    spec: JobSpec | None
    pipeline: Pipeline | None
    project: Project | None
    variables: Sequence[ProjectVariable]
    """Of the cell, of the groups that the job names, and of the project, in the order of `shared_variables` and
    `variables`."""
    settings: Mapping[str, str]
    """Those of the ones that were asked for that there are."""
