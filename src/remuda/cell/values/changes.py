"""Changes of a pipeline and its jobs, which functions in `core/` return, and what the store returns after writing."""

from collections.abc import Mapping, Sequence

import msgspec

from remuda.cell.values.jobs import Artifact, Job, Pipeline
from remuda.cell.values.projects import Project, ProjectVariable
from remuda.model.job import JobId, RunnerId
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
    url_variables: Mapping[str, str] = {}
    """Variables of dotenv reports, for the URL of the environment that an ended job deployed to. Not stored."""


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs and the pipeline as the store wrote them for a `Changes` value; new jobs have their ids now."""

    jobs: tuple[Job, ...] = ()
    """Changed and new jobs, with their ids."""
    pipeline: Pipeline | None = None


class OtherChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What other processes of the cell have changed. If both are empty, the reader may have missed changes."""

    job_ids: tuple[JobId, ...] = ()
    runner_ids: tuple[RunnerId, ...] = ()
    """Runners that were changed or removed."""


class JobArtifacts(msgspec.Struct, frozen=True, kw_only=True):
    """A job and those of its artifacts that are kept; the store removes the others."""

    job: Job
    artifacts: tuple[Artifact, ...]


class PayloadParts(msgspec.Struct, frozen=True, kw_only=True):
    """The stored values from which the payload for a job's runner is built; None if the row does not exist."""

    spec: JobSpec | None
    pipeline: Pipeline | None
    project: Project | None
    variables: Sequence[ProjectVariable]
    """Of the cell, the groups of the job and the project, in this order."""
    settings: Mapping[str, str]
    """The requested settings that exist."""
