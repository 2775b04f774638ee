"""How long artifacts are kept, and what a job has left when some of them go.

Decided here, as in GitLab: when an artifact expires (by its own words, else by the cell's); that what has expired
stays while its pipeline is under way, and while that is the newest one of its ref that succeeded; that a job without
the archive or the variables that it left counts as one whose artifacts are gone; and which job can be erased. Whether
a pipeline is the newest is looked up by `remuda.cell.operations.upkeep`, which acts on this with the HTTP edge.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from remuda.cell.values import Artifact, Job, Pipeline
from remuda.cell.values.changes import Leaves
from remuda.model.job import FINAL
from remuda.model.progress import OVER
from remuda.pipeline.syntax.durations import parse_duration

NEVER = "never"
LOOK_AGAIN_SECONDS = 12 * 3600
"""What has expired and is kept nevertheless is looked at again after so long."""
_BLOCKED = "manual"
_FOR_LATER_JOBS = frozenset({"archive", "dotenv"})


def with_expiry(artifact: Artifact, default: str) -> Artifact:
    """The artifact with the time at which it expires. Words that make no sense count as none."""
    words = artifact.expire_in or ""
    seconds = _seconds(words if words == NEVER or parse_duration(words) is not None else default)
    expires_at = None if seconds is None else artifact.created_at + seconds
    return replace(artifact, expires_at=expires_at, look_at=expires_at)


def _seconds(words: str) -> int | None:
    """None: for ever. So does 0, as in GitLab: nothing would be left to download."""
    return None if words == NEVER else parse_duration(words) or None


def keeps_artifacts(pipeline: Pipeline, *, newest: Pipeline | None, has_ref: bool, keep_latest: bool) -> bool:
    """Whether a pipeline keeps what has expired; `newest` is the newest one of its ref that succeeded.

    One that waits for a person may do so for ever: it counts like one that succeeded.
    """
    if pipeline.status not in OVER and pipeline.status != _BLOCKED:
        return True
    is_newest = newest is None or newest.id <= pipeline.id
    return keep_latest and has_ref and is_newest and pipeline.status in ("success", _BLOCKED)


def without_expired(
    job: Job, artifacts: Sequence[Artifact], *, now: float, default: str, is_kept: bool
) -> Leaves | None:
    """What is left of a job's artifacts at this time."""
    left = []
    for artifact in artifacts:
        if artifact.look_at is not None and artifact.expires_at is None:
            artifact = with_expiry(artifact, default)  # stored before there was a time in it
        if artifact.expires_at is not None and artifact.expires_at <= now:
            if not is_kept:
                continue
            artifact = replace(artifact, look_at=now + LOOK_AGAIN_SECONDS)
        left.append(artifact)
    return None if left == list(artifacts) else _leaves(job, artifacts, left)


def keep_for_ever(job: Job, artifacts: Sequence[Artifact]) -> Leaves:
    """All of them stay for ever."""
    return Leaves(job=job, artifacts=tuple(replace(one, expires_at=None, look_at=None) for one in artifacts))


def delete_all(job: Job, artifacts: Sequence[Artifact]) -> Leaves | None:
    """None of them stays."""
    return _leaves(job, artifacts, []) if artifacts else None


def can_be_erased(job: Job, *, has_artifacts: bool) -> bool:
    """Whether it is over and has something to erase."""
    has_trace = job.started_at is not None and not job.erased
    return job.state in FINAL and not job.is_trigger and (has_artifacts or has_trace)


def erase(job: Job, artifacts: Sequence[Artifact], now: float) -> Leaves | None:
    """No artifacts, no trace. Nothing when the job cannot be erased."""
    if not can_be_erased(job, has_artifacts=bool(artifacts)):
        return None
    return _leaves(replace(job, erased=True, erased_at=now, trace_bytes=0), artifacts, [])


def _leaves(job: Job, had: Sequence[Artifact], left: Sequence[Artifact]) -> Leaves:
    gone = {one.type for one in had} - {one.type for one in left}
    return Leaves(
        job=replace(job, artifacts_gone=job.artifacts_gone or not gone.isdisjoint(_FOR_LATER_JOBS)),
        artifacts=tuple(left),
    )
