from msgspec.structs import replace

from remuda.cell.core import leases
from remuda.cell.core.leases import Lease
from remuda.model.job import JobState, RunnerId
from remuda.testing.builders import NOW, a_job

TERMS = Lease(runner_id=RunnerId(7), system_id="s_1", request_id="r", until=NOW + 60, graceful_cancel=True)


def test_a_lease_names_its_holder_and_counts_the_epoch() -> None:
    leased = leases.lease(a_job(state=JobState.PENDING, epoch=3), TERMS, NOW)
    assert leased is not None
    assert (leased.state, leased.epoch, leased.runner_id, leased.lease_until) == (JobState.LEASED, 4, 7, NOW + 60)
    assert leases.lease(leased, TERMS, NOW) is None


def test_a_release_forgets_the_holder_but_not_the_epoch_nor_the_wait() -> None:
    leased = leases.lease(a_job(state=JobState.PENDING, pending_at=NOW - 9), TERMS, NOW)
    assert leased is not None
    assert leases.release(leased, epoch=leased.epoch - 1, now=NOW) is None
    released = leases.release(leased, epoch=leased.epoch, now=NOW + 1)
    assert released == a_job(state=JobState.PENDING, pending_at=NOW - 9, epoch=1, updated_at=NOW + 1)


def test_only_the_holder_of_the_epoch_acknowledges() -> None:
    leased = a_job(state=JobState.LEASED, epoch=2, lease_until=NOW)
    assert leases.acknowledge(leased, 1, NOW) is None
    started = leases.acknowledge(leased, 2, NOW + 1)
    assert started is not None
    assert (started.state, started.started_at, started.lease_until) == (JobState.RUNNING, NOW + 1, None)
    alive = leases.acknowledge(started, 2, NOW + 9)
    assert alive == replace(started, updated_at=NOW + 9)
    assert leases.release(started, 2, NOW) is None
    assert leases.acknowledge(replace(started, state=JobState.SUCCESS), 2, NOW) is None


def test_deadlines() -> None:
    def deadline(state: JobState, since: float = NOW - 1e6) -> float | None:
        job = a_job(state=state, updated_at=NOW, lease_until=NOW + 60)
        return leases.deadline(job, since=since, lease_seconds=60, silent_seconds=600)

    assert deadline(JobState.PENDING) is None
    assert deadline(JobState.LEASED) == NOW + 60
    assert deadline(JobState.RUNNING) == deadline(JobState.CANCELING) == NOW + 610
    assert deadline(JobState.LEASED, since=NOW + 1000) == NOW + 1060
    assert deadline(JobState.RUNNING, since=NOW + 1000) == NOW + 1610
