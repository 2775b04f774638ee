"""Changes to a pipeline that functions in `core/` return, and the values that the store returns after writing them."""

from collections.abc import Mapping, Sequence

import msgspec

from remuda.cell.values.jobs import Artifact, Job, Pipeline
from remuda.cell.values.projects import Project, ProjectVariable
from remuda.model.job import JobId
from remuda.pipeline import JobSpec


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A new job that retries the job `of` and shares its spec. `Changes.jobs` has the old job, marked as retried."""

    of: JobId
    job: Job
    """The new job; its `id` is 0 and is set by the store."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The changes to a pipeline and its jobs that are stored in one transaction."""

    jobs: tuple[Job, ...] = ()
    """Changed jobs, complete."""
    retries: tuple[Retry, ...] = ()
    pipeline: Pipeline | None = None


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs and the pipeline that the store wrote for `Changes`."""

    jobs: tuple[Job, ...] = ()
    """Changed and new jobs, with their ids."""
    pipeline: Pipeline | None = None


class JobArtifacts(msgspec.Struct, frozen=True, kw_only=True):
    """A job and its remaining artifacts; the store removes the others."""

    job: Job
    artifacts: tuple[Artifact, ...]


class PayloadParts(msgspec.Struct, frozen=True, kw_only=True):
    """The stored rows from which the job payload for a runner is built. None: the row is missing."""

    spec: JobSpec | None
    pipeline: Pipeline | None
    project: Project | None
    variables: Sequence[ProjectVariable]
    """Of the cell, the groups of the job and the project, in this order."""
    settings: Mapping[str, str]
    """The requested settings that exist."""
