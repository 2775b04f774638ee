"""Jobs that are stuck in the queue, exceed their timeout, or missed their scheduled start."""

from pathlib import Path

import pytest

from remuda.cell.core.jobs import stuck_jobs
from remuda.cell.settings import CellSettings
from remuda.cell.values import RunnerManager
from remuda.model.job import FailureReason, JobState, RunnerId
from remuda.testing.builders import a_job, a_project, a_runner

NOW = 1_000_000.0
HOUR = 3600.0
SETTINGS = CellSettings(data=Path("unused"))


@pytest.mark.parametrize(
    ("waited", "since", "expected"),
    [(HOUR - 1, 0, False), (HOUR, 0, True), (30 * HOUR, NOW - 60, False), (30 * HOUR, NOW - HOUR, True)],
)
def test_when_a_waiting_job_is_checked(waited: float, since: float, expected: bool) -> None:
    job = a_job(state=JobState.PENDING, pending_at=NOW - waited)
    assert stuck_jobs.may_be_stuck(job, SETTINGS, since=since, now=NOW) is expected


def test_which_runners_count_as_online() -> None:
    def a_manager(runner_id: int, ago: float) -> RunnerManager:
        return RunnerManager(runner_id=RunnerId(runner_id), system_id="s_1", contacted_at=NOW - ago)

    runners = [
        a_runner(id=RunnerId(1), tags=("fresh",)),
        a_runner(id=RunnerId(2), tags=("away",)),
        a_runner(id=RunnerId(3), tags=("busy",)),
        a_runner(id=RunnerId(4), tags=("paused",), paused=True),
        a_runner(id=RunnerId(5), tags=("never",)),
    ]
    managers = [
        a_manager(1, 10),
        a_manager(1, 9 * HOUR),
        a_manager(2, 2 * HOUR),
        a_manager(3, 5 * HOUR),
        a_manager(4, 10),
    ]
    offers = stuck_jobs.online_offers(runners, managers, frozenset({RunnerId(3)}), NOW)
    assert {tag for offer in offers for tag in offer.tags} == {"fresh", "busy"}


@pytest.mark.parametrize(
    ("waited", "tags", "reason"),
    [
        (HOUR, ("gpu",), FailureReason.STUCK_PENDING_NO_MATCHING_RUNNERS),
        (HOUR, ("linux",), None),
        (24 * HOUR - 1, ("linux",), None),
        (24 * HOUR, ("linux",), FailureReason.STUCK_PENDING_WITH_MATCHING_RUNNERS),
    ],
)
def test_a_job_that_no_runner_takes_fails(waited: float, tags: tuple[str, ...], reason: FailureReason | None) -> None:
    job = a_job(state=JobState.PENDING, tags=tags, pending_at=NOW - waited)
    verdict = stuck_jobs.check_stuck(job, [a_runner(tags=("linux",)).fingerprint()], SETTINGS, NOW)
    assert (verdict[0] if verdict else None) is reason


@pytest.mark.parametrize(
    ("state", "ran", "since", "reason"),
    [
        (JobState.RUNNING, 100 + 899, 0, None),
        (JobState.RUNNING, 100 + 900, 0, FailureReason.SERVER_TIMEOUT_RUNNING),
        (JobState.CANCELING, 100 + 900, 0, FailureReason.SERVER_TIMEOUT_CANCELING),
        (JobState.LEASED, 100 + 900, 0, None),
        (JobState.RUNNING, 50_000, NOW - 899, None),
        (JobState.RUNNING, 50_000, NOW - 900, FailureReason.SERVER_TIMEOUT_RUNNING),
    ],
)
def test_job_over_its_timeout_fails(state: JobState, ran: float, since: float, reason: FailureReason | None) -> None:
    job = a_job(state=state, started_at=NOW - ran)
    verdict = stuck_jobs.check_overtime(job, 100, SETTINGS, since=since, now=NOW)
    assert (verdict[0] if verdict else None) is reason


@pytest.mark.parametrize(
    ("own", "maximum", "expected"), [(None, None, 1800), (60, None, 60), (None, 900, 900), (9000, 7200, 7200)]
)
def test_timeout_by_job_project_and_runner(own: int | None, maximum: int | None, expected: int) -> None:
    job, runner = a_job(timeout_seconds=own), a_runner(maximum_timeout=maximum)
    assert stuck_jobs.timeout_of(job, a_project(timeout_seconds=1800), runner) == expected


def test_failure_messages() -> None:
    late = a_job(state=JobState.SCHEDULED, scheduled_at=NOW - 2.5 * HOUR)
    assert stuck_jobs.check_stale(late, SETTINGS, NOW) == (
        FailureReason.STALE_SCHEDULE,
        "it should have started 2.5 hours ago, but the cell could not start it",
    )
    verdict = stuck_jobs.check_stuck(a_job(pending_at=0), [], SETTINGS, NOW)
    assert verdict
    assert verdict[1] == "no runner that could take it has been available for 1 hour"
