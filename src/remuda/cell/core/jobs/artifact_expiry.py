"""Decides when artifacts of a job are removed, by GitLab's rules: they expired, or a user deleted them or erased the
job. Expired artifacts are kept while their pipeline runs and, with `keep_latest`, while it is the newest successful one
of its ref. A job without its archive or dotenv report is marked (`artifacts_gone`): later jobs that need them fail."""

from collections.abc import Sequence

from msgspec.structs import replace

from remuda.cell.values import Artifact, Job, Pipeline
from remuda.cell.values.changes import JobArtifacts
from remuda.model.job import FINAL
from remuda.model.progress import OVER
from remuda.pipeline.syntax.durations import parse_duration

NEVER = "never"
LOOK_AGAIN_SECONDS = 12 * 3600
"""Expired artifacts that are kept are checked again after this time."""
_BLOCKED = "manual"
_FOR_LATER_JOBS = frozenset({"archive", "dotenv"})


def with_expiry(artifact: Artifact, default: str) -> Artifact:
    """Return the artifact with its expiry time, from its `expire_in` or, if that is missing or invalid, `default`."""
    own = artifact.expire_in or ""
    seconds = _parse_expiry(own if own == NEVER or parse_duration(own) is not None else default)
    expires_at = None if seconds is None else artifact.created_at + seconds
    return replace(artifact, expires_at=expires_at, look_at=expires_at)


def _parse_expiry(expire_in: str) -> int | None:
    """Return an `expire_in` text in seconds; None (no expiry) for `never` and, as in GitLab, for 0."""
    return None if expire_in == NEVER else parse_duration(expire_in) or None


def keeps_artifacts(pipeline: Pipeline, *, newest: Pipeline | None, has_ref: bool, keep_latest: bool) -> bool:
    """Return whether expired artifacts of a pipeline are kept: until it has ended and, with the setting `keep_latest`,
    while it is the newest successful pipeline of its ref (`newest`) and the ref exists (`has_ref`). A pipeline that
    waits for a manual job may wait for ever, so it counts as successful here."""
    if pipeline.status not in OVER and pipeline.status != _BLOCKED:
        return True
    is_newest = newest is None or newest.id <= pipeline.id
    return keep_latest and has_ref and is_newest and pipeline.status in ("success", _BLOCKED)


def without_expired(
    job: Job, artifacts: Sequence[Artifact], *, now: float, default: str, is_kept: bool
) -> JobArtifacts | None:
    """Return the job without its expired artifacts; None if nothing changes. With `is_kept`, expired artifacts remain,
    too, and are checked again later. `default` is the `expire_in` of artifacts that have none."""
    remaining = []
    for artifact in artifacts:
        if artifact.look_at is not None and artifact.expires_at is None:
            artifact = with_expiry(artifact, default)  # stored by a version without expiry times
        if artifact.expires_at is not None and artifact.expires_at <= now:
            if not is_kept:
                continue
            artifact = replace(artifact, look_at=now + LOOK_AGAIN_SECONDS)
        remaining.append(artifact)
    return None if remaining == list(artifacts) else _keep_only(job, artifacts, remaining)


def keep_for_ever(job: Job, artifacts: Sequence[Artifact]) -> JobArtifacts:
    never = tuple(replace(artifact, expires_at=None, look_at=None) for artifact in artifacts)
    return JobArtifacts(job=job, artifacts=never)


def delete_all(job: Job, artifacts: Sequence[Artifact]) -> JobArtifacts | None:
    return _keep_only(job, artifacts, []) if artifacts else None


def can_be_erased(job: Job, *, has_artifacts: bool) -> bool:
    has_trace = job.started_at is not None and not job.erased
    return job.state in FINAL and not job.is_trigger and (has_artifacts or has_trace)


def erase(job: Job, artifacts: Sequence[Artifact], now: float) -> JobArtifacts | None:
    """Return the job without artifacts and log; None if it has not ended, has neither, or is a trigger job."""
    if not can_be_erased(job, has_artifacts=bool(artifacts)):
        return None
    return _keep_only(replace(job, erased=True, erased_at=now, trace_bytes=0), artifacts, [])


def _keep_only(job: Job, before: Sequence[Artifact], remaining: Sequence[Artifact]) -> JobArtifacts:
    removed_types = {artifact.type for artifact in before} - {artifact.type for artifact in remaining}
    return JobArtifacts(
        job=replace(job, artifacts_gone=job.artifacts_gone or not removed_types.isdisjoint(_FOR_LATER_JOBS)),
        artifacts=tuple(remaining),
    )
