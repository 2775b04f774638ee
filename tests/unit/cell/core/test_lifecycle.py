from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remuda.cell.core import leases, lifecycle
from remuda.cell.core.lifecycle import Outcome
from remuda.cell.ports import Changes
from remuda.cell.values import Family, Job
from remuda.model.job import FINAL, FailureReason, JobId, JobState, RunnerId
from remuda.model.progress import When
from remuda.testing.builders import NOW, a_family, a_job, a_pipeline, a_spec, new_jobs

FAILED = Outcome(succeeded=False, reason=FailureReason.SCRIPT_FAILURE, reported="failed")
PASSED = Outcome(succeeded=True, reported="success")


def applied(family: Family, changes: Changes) -> Family:
    """What a store makes of changes."""
    jobs = {job.id: job for job in family.jobs} | {job.id: job for job in changes.jobs}
    for number, retry in enumerate(changes.retries, start=max(jobs) + 1):
        jobs[JobId(number)] = replace(retry.job, id=JobId(number))
    current = tuple(job for job in jobs.values() if not job.retried)
    return Family(pipeline=changes.pipeline or family.pipeline, jobs=current)


def running(job: Job) -> Job:
    terms = leases.Lease(runner_id=RunnerId(1), system_id=None, request_id=None, until=NOW + 60)
    leased = leases.lease(job, terms, NOW)
    assert leased is not None
    started = leases.acknowledge(leased, leased.epoch, NOW)
    assert started is not None
    return started


def with_job(family: Family, job: Job) -> Family:
    return Family(pipeline=family.pipeline, jobs=tuple(job if old.id == job.id else old for old in family.jobs))


def test_a_new_job_has_what_its_spec_says() -> None:
    spec = a_spec("deploy", tags=("prod",), when="manual", allow_failure=True, timeout_seconds=9, retry_max=2)
    job = lifecycle.new_job(new_jobs(spec)[0], a_pipeline(protected=True), JobId(5), NOW)
    assert job == a_job(
        "deploy",
        id=JobId(5),
        tags=("prod",),
        when=When.MANUAL,
        allow_failure=True,
        by_stage=True,
        timeout_seconds=9,
        retry_max=2,
        protected=True,
    )


def test_a_pipeline_without_jobs_keeps_its_status() -> None:
    assert lifecycle.begin(a_family([], status="failed", yaml_errors="line 1"), NOW) == Changes()


def test_a_job_that_is_not_this_epochs_is_not_ended() -> None:
    job = running(a_job(state=JobState.PENDING))
    assert lifecycle.finish(a_family([job]), job.id, job.epoch + 1, FAILED, NOW) == Changes()
    assert lifecycle.finish(a_family([]), job.id, job.epoch, FAILED, NOW) == Changes()


def test_an_end_is_final() -> None:
    job = running(a_job(state=JobState.PENDING))
    family = applied(a_family([job]), lifecycle.finish(a_family([job]), job.id, job.epoch, FAILED, NOW + 5))
    assert family.jobs[0].finished_at == NOW + 5
    assert (family.pipeline.status, family.pipeline.finished_at) == ("failed", NOW + 5)
    assert lifecycle.finish(family, job.id, job.epoch, PASSED, NOW + 6) == Changes()


def test_revival_reaches_through_jobs_that_ran() -> None:
    a = a_job("a", id=JobId(1), state=JobState.FAILED)
    b = a_job("b", id=JobId(2), state=JobState.SUCCESS, waits_for=("a",), when=When.ALWAYS)
    c = a_job("c", id=JobId(3), state=JobState.SKIPPED, waits_for=("b",), when=When.ON_FAILURE)
    d = a_job("d", id=JobId(4), state=JobState.SKIPPED)
    family = applied(a_family([a, b, c, d]), lifecycle.retry(a_family([a, b, c, d]), a.id, NOW))
    states = {job.name: job.state for job in family.jobs}
    # c is asked again, and what it waits for says no again; d never waited for a.
    assert states == {"a": JobState.PENDING, "b": JobState.SUCCESS, "c": JobState.SKIPPED, "d": JobState.SKIPPED}


def test_canceling_a_pipeline_is_repeatable() -> None:
    jobs = [a_job(state.value, id=JobId(number), state=state) for number, state in enumerate(JobState, start=1)]
    family = applied(a_family(jobs), lifecycle.cancel_all(a_family(jobs), NOW))
    assert {job.state for job in family.jobs} == {*FINAL, JobState.CANCELING}
    assert lifecycle.cancel_all(family, NOW + 1).jobs == ()


@st.composite
def families(draw: st.DrawFn) -> Family:
    """Pipelines in which each job waits for some of those before it."""
    jobs: list[Job] = []
    for number in range(1, draw(st.integers(1, 8)) + 1):
        names = [job.name for job in jobs]
        jobs.append(
            a_job(
                f"job{number}",
                id=JobId(number),
                when=draw(st.sampled_from(When)),
                allow_failure=draw(st.booleans()),
                stage_index=number // 3,
                by_stage=draw(st.booleans()),
                waits_for=tuple(draw(st.lists(st.sampled_from(names), unique=True))) if names else (),
                retry_max=draw(st.integers(0, 2)),
            )
        )
    return a_family(jobs)


@given(families(), st.data())
def test_every_pipeline_comes_to_an_end(family: Family, data: st.DataObject) -> None:
    family = applied(family, lifecycle.begin(family, NOW))
    for _ in range(100):
        pending = [job for job in family.jobs if job.state is JobState.PENDING]
        manual = [job for job in family.jobs if job.state is JobState.MANUAL]
        if pending:
            assert family.pipeline.status in ("pending", "running")
            job = running(data.draw(st.sampled_from(pending)))
            outcome = data.draw(st.sampled_from([PASSED, FAILED]))
            family = applied(
                with_job(family, job), lifecycle.finish(with_job(family, job), job.id, job.epoch, outcome, NOW)
            )
        elif manual and data.draw(st.sampled_from([True, False])):
            family = applied(family, lifecycle.play(family, manual[0].id, NOW))
        else:
            break
    left = {job.state for job in family.jobs if job.state not in FINAL}
    over = family.pipeline.status in ("success", "failed", "canceled", "skipped")
    if left:
        assert JobState.MANUAL in left
        assert left <= {JobState.MANUAL, JobState.CREATED}
    else:
        assert over
    assert over == (family.pipeline.finished_at is not None)
    assert all(job.tries <= job.retry_max + 1 for job in family.jobs)
