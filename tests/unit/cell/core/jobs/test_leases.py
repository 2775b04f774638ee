"""Leases of jobs: hand-out, release, acknowledgement and deadlines."""

from pathlib import Path

from msgspec.structs import replace

from remuda.cell.core.jobs import leases
from remuda.cell.core.jobs.leases import Lease
from remuda.cell.core.waiting.downtime import Outage
from remuda.cell.settings import CellSettings
from remuda.model.job import JobState, RunnerId
from remuda.testing.builders import NOW, a_job

SETTINGS = CellSettings(data=Path("unused"), lease_seconds=60, silent_seconds=600, canceling_seconds=120)
TERMS = Lease(runner_id=RunnerId(7), system_id="s_1", request_id="r", until=NOW + 60, graceful_cancel=True)


def test_a_lease_sets_the_runner_and_increments_the_epoch() -> None:
    leased = leases.lease(a_job(state=JobState.PENDING, epoch=3), TERMS, NOW)
    assert leased is not None
    assert (leased.state, leased.epoch, leased.runner_id, leased.lease_until) == (JobState.LEASED, 4, 7, NOW + 60)
    assert leases.lease(leased, TERMS, NOW) is None


def test_a_release_resets_the_runner_but_keeps_epoch_and_pending_time() -> None:
    leased = leases.lease(a_job(state=JobState.PENDING, pending_at=NOW - 9), TERMS, NOW)
    assert leased is not None
    assert leases.release(leased, epoch=leased.epoch - 1, now=NOW) is None
    released = leases.release(leased, epoch=leased.epoch, now=NOW + 1)
    assert released == a_job(state=JobState.PENDING, pending_at=NOW - 9, epoch=1, updated_at=NOW + 1)


def test_only_the_current_epoch_can_acknowledge() -> None:
    leased = a_job(state=JobState.LEASED, epoch=2, lease_until=NOW)
    assert leases.acknowledge(leased, 1, NOW) is None
    running = leases.acknowledge(leased, 2, NOW + 1)
    assert running is not None
    assert (running.state, running.started_at, running.lease_until) == (JobState.RUNNING, NOW + 1, None)
    touched = leases.acknowledge(running, 2, NOW + 9)
    assert touched == replace(running, updated_at=NOW + 9)
    assert leases.release(running, 2, NOW) is None
    assert leases.acknowledge(replace(running, state=JobState.SUCCESS), 2, NOW) is None


def test_deadlines() -> None:
    def deadline(state: JobState, since: float = NOW - 1e6) -> float | None:
        job = a_job(state=state, updated_at=NOW, lease_until=NOW + 60)
        if state is JobState.RUNNING:
            job = replace(job, lease_until=None)
        return leases.deadline(job, SETTINGS, since=since)

    assert deadline(JobState.PENDING) is None
    assert deadline(JobState.LEASED) == NOW + 60
    assert deadline(JobState.RUNNING) == NOW + 610
    assert deadline(JobState.LEASED, since=NOW + 1000) == NOW + 1060
    assert deadline(JobState.RUNNING, since=NOW + 1000) == NOW + 1610


def test_a_lease_ends_even_if_the_cell_restarts_often() -> None:
    """The cell restarts every 30 s and is down for 2.5 s. A restart renews a lease of 60 s, but only up to a limit."""
    job = a_job(state=JobState.LEASED, leased_at=NOW, lease_until=NOW + 60)
    outages: list[Outage] = []
    deadline: float | None = None
    for count in range(1, 20):
        start = NOW + 30 * count
        outages.append(Outage(start - 2.5, start))
        deadline = leases.deadline(job, SETTINGS, since=start, now=start, outages=tuple(outages))
        assert deadline is not None
        if deadline <= start:
            break
    assert deadline is not None
    assert NOW + 180 < deadline <= NOW + 240
    running = replace(job, state=JobState.RUNNING, updated_at=NOW)
    deadline = leases.deadline(running, SETTINGS, since=NOW + 10**6, now=NOW + 10**6, outages=())
    assert deadline == NOW + 3 * 610


def test_after_a_long_outage_a_runner_has_its_full_lease() -> None:
    job = a_job(state=JobState.LEASED, leased_at=NOW, lease_until=NOW + 60)
    outages = (Outage(NOW + 58, NOW + 5000),)
    assert leases.deadline(job, SETTINGS, since=NOW + 5000, outages=outages) == NOW + 5060


def test_times_in_the_future_count_as_now() -> None:
    job = a_job(state=JobState.LEASED, leased_at=NOW + 7200, lease_until=NOW + 7260, updated_at=NOW + 7200)
    for state, seconds in ((JobState.LEASED, 60), (JobState.RUNNING, 610)):
        row = replace(job, state=state)
        end = leases.deadline(row, SETTINGS, since=NOW, now=NOW + 5, outages=())
        assert end == NOW + seconds
    assert leases.needs_touch(replace(job, state=JobState.RUNNING), NOW, SETTINGS)


def test_a_canceling_job_waits_for_calls_of_its_runner() -> None:
    canceling = a_job(state=JobState.CANCELING, updated_at=NOW, lease_until=NOW + 50)
    assert leases.deadline(canceling, SETTINGS, since=NOW - 1e6) == NOW + 50
    assert leases.needs_touch(canceling, NOW, SETTINGS)
    acknowledged = leases.acknowledge(canceling, 0, NOW + 10)
    assert acknowledged is not None
    assert (acknowledged.state, acknowledged.lease_until) == (JobState.CANCELING, None)
    assert leases.deadline(acknowledged, SETTINGS, since=NOW - 1e6) == NOW + 10 + 120 + 20
    assert [leases.needs_touch(acknowledged, NOW + 10 + seconds, SETTINGS) for seconds in (19, 20)] == [False, True]


def test_without_two_phase_commit_a_job_starts_with_its_hand_out() -> None:
    plain, two_phase = (
        leases.lease(a_job(state=JobState.PENDING), replace(TERMS, two_phase=is_two_phase), NOW)
        for is_two_phase in (False, True)
    )
    assert plain is not None
    assert two_phase is not None
    assert (plain.start_time(), two_phase.start_time()) == (NOW, None)
    for job, started_at in ((plain, NOW), (two_phase, NOW + 3)):
        running = leases.acknowledge(job, 1, NOW + 3)
        assert running is not None
        assert running.started_at == started_at
