"""Expiry of artifacts, and its effect on the job."""

import pytest

from remuda.cell.core.jobs import artifact_expiry
from remuda.cell.values import Artifact
from remuda.model.job import JobState
from remuda.testing.builders import a_job, a_pipeline, an_artifact

DAY = 86_400.0


def an_expiring_artifact(kind: str = "archive", *, expire_in: str | None = None, default: str = "30 days") -> Artifact:
    return artifact_expiry.with_expiry(an_artifact(kind=kind, created_at=1000.0, expire_in=expire_in), default)


@pytest.mark.parametrize(
    ("expire_in", "default", "days"),
    [
        (None, "30 days", 30),
        ("", "30 days", 30),
        ("1 week", "30 days", 7),
        ("never", "30 days", None),
        ("1 week", "never", 7),
        (None, "never", None),
        ("soon", "30 days", 30),
        ("soon", "never", None),
        ("0", "30 days", None),
        (None, "0", None),
    ],
)
def test_expire_in_overrides_the_default_of_the_cell(expire_in: str | None, default: str, days: int | None) -> None:
    artifact = an_expiring_artifact(expire_in=expire_in, default=default)
    expected = None if days is None else 1000.0 + days * DAY
    assert (artifact.expires_at, artifact.look_at) == (expected, expected)


def test_expired_artifacts_are_removed_and_the_job_is_marked() -> None:
    job, short, forever = (
        a_job(),
        an_expiring_artifact(expire_in="1 day"),
        an_expiring_artifact("junit", expire_in="never"),
    )
    artifacts = [short, forever]
    for now, is_kept in ((1000.0, False), (1000.0 + DAY - 1, False)):
        assert artifact_expiry.without_expired(job, artifacts, now=now, default="never", is_kept=is_kept) is None
    remaining = artifact_expiry.without_expired(job, artifacts, now=1000.0 + DAY, default="never", is_kept=False)
    assert remaining is not None
    assert remaining.artifacts == (forever,)
    assert remaining.job.artifacts_gone


def test_a_removed_report_does_not_mark_the_job() -> None:
    report = an_expiring_artifact("junit", expire_in="1 day")
    remaining = artifact_expiry.without_expired(a_job(), [report], now=1000.0 + DAY, default="never", is_kept=False)
    assert remaining is not None
    assert (remaining.artifacts, remaining.job.artifacts_gone) == ((), False)


@pytest.mark.parametrize(
    ("status", "newest", "has_ref", "keep_latest", "keeps"),
    [
        ("running", 9, False, False, True),
        ("created", None, False, False, True),
        ("success", 5, True, True, True),
        ("success", 5, True, False, False),
        ("success", 5, False, True, False),
        ("success", 6, True, True, False),
        ("failed", None, True, True, False),
        ("manual", None, True, True, True),
        ("manual", 4, True, True, True),
        ("manual", 6, True, True, False),
        ("manual", None, True, False, False),
    ],
)
def test_keep_expired_artifacts(status: str, newest: int | None, has_ref: bool, keep_latest: bool, keeps: bool) -> None:
    pipeline = a_pipeline(id=5, status=status)
    latest = a_pipeline(id=newest, status="success") if newest else None
    assert artifact_expiry.keeps_artifacts(pipeline, newest=latest, has_ref=has_ref, keep_latest=keep_latest) is keeps


def test_a_kept_artifact_is_checked_again_and_keeps_its_expiry() -> None:
    artifact, now = an_expiring_artifact(expire_in="1 day"), 1000.0 + 2 * DAY
    remaining = artifact_expiry.without_expired(a_job(), [artifact], now=now, default="never", is_kept=True)
    assert remaining is not None
    (kept_artifact,) = remaining.artifacts
    assert (kept_artifact.expires_at, kept_artifact.look_at) == (1000.0 + DAY, now + artifact_expiry.LOOK_AGAIN_SECONDS)
    assert not remaining.job.artifacts_gone


def test_an_artifact_of_an_older_release_gets_an_expiry() -> None:
    old = an_artifact(created_at=1000.0, look_at=1000.0)
    remaining = artifact_expiry.without_expired(a_job(), [old], now=2000.0, default="30 days", is_kept=False)
    assert remaining is not None
    assert [(artifact.expires_at, artifact.look_at) for artifact in remaining.artifacts] == [
        (1000.0 + 30 * DAY, 1000.0 + 30 * DAY)
    ]
    remaining = artifact_expiry.without_expired(a_job(), [old], now=2000.0, default="never", is_kept=False)
    assert remaining is not None
    assert [(artifact.expires_at, artifact.look_at) for artifact in remaining.artifacts] == [(None, None)]


def test_keep_delete_and_erase_by_users() -> None:
    job, artifacts = (
        a_job(state=JobState.SUCCESS, started_at=1.0),
        [an_expiring_artifact(), an_expiring_artifact("dotenv")],
    )
    kept = artifact_expiry.keep_for_ever(job, artifacts)
    assert {(artifact.expires_at, artifact.look_at) for artifact in kept.artifacts} == {(None, None)}
    deleted = artifact_expiry.delete_all(job, artifacts)
    assert deleted is not None
    assert (deleted.artifacts, deleted.job.artifacts_gone) == ((), True)
    assert artifact_expiry.delete_all(job, []) is None
    erased = artifact_expiry.erase(job, artifacts, 5.0)
    assert erased is not None
    assert (erased.artifacts, erased.job.erased, erased.job.erased_at) == ((), True, 5.0)
    assert artifact_expiry.erase(erased.job, [], 6.0) is None


@pytest.mark.parametrize(
    ("state", "started_at", "has_artifacts", "expected"),
    [
        (JobState.RUNNING, 1.0, True, False),
        (JobState.PENDING, None, False, False),
        (JobState.SUCCESS, 1.0, False, True),
        (JobState.FAILED, 1.0, True, True),
        (JobState.CANCELED, None, False, False),
        (JobState.SKIPPED, None, False, False),
    ],
)
def test_who_can_be_erased(state: JobState, started_at: float | None, has_artifacts: bool, expected: bool) -> None:
    assert (
        artifact_expiry.can_be_erased(a_job(state=state, started_at=started_at), has_artifacts=has_artifacts)
        is expected
    )
