import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.model.job import (
    ASSIGNED,
    FINAL,
    STARTED,
    TRANSITIONS,
    FailureReason,
    Fault,
    JobEvent,
    JobState,
    TransitionError,
    after,
    fault_of,
)


def reachable(start: JobState) -> set[JobState]:
    found, fresh = {start}, {start}
    while fresh:
        fresh = {state for old in fresh for state in TRANSITIONS[old].values()} - found
        found |= fresh
    return found


@pytest.mark.parametrize("state", JobState)
def test_the_table_knows_every_state_and_every_state_ends(state: JobState) -> None:
    assert state in TRANSITIONS
    assert reachable(state) & FINAL
    assert state in reachable(JobState.CREATED)


def test_a_skipped_job_is_revived_and_what_ran_is_at_most_reopened() -> None:
    ways = {(state, event) for state in FINAL for event in TRANSITIONS[state]}
    ran = (JobState.SUCCESS, JobState.FAILED, JobState.CANCELED)
    assert ways == {(JobState.SKIPPED, JobEvent.REVIVE), *((state, JobEvent.REOPEN) for state in ran)}
    assert {JobState.SUCCESS, JobState.FAILED, JobState.CANCELED, JobState.SKIPPED} == FINAL


@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("event", JobEvent)
def test_what_the_table_does_not_name_is_refused(state: JobState, event: JobEvent) -> None:
    if event in TRANSITIONS[state]:
        assert after(state, event) is TRANSITIONS[state][event]
    else:
        with pytest.raises(TransitionError, match=f"{state.value} cannot {event.value}"):
            after(state, event)


@given(st.data())
def test_on_every_path_a_job_starts_once_and_is_handed_out_only_before(data: st.DataObject) -> None:
    state, started = JobState.CREATED, False
    for _ in range(30):
        # Only a trigger job is reopened, and that is handed to nobody.
        ways = sorted(TRANSITIONS[state].keys() - {JobEvent.REOPEN})
        if not ways:
            break
        event = data.draw(st.sampled_from(ways))
        before, state = state, after(state, event)
        if event is JobEvent.LEASE:
            assert not started
            assert before is JobState.PENDING
        if event is JobEvent.RELEASE:
            assert before is JobState.LEASED
        if state in STARTED:
            assert started or before is JobState.LEASED
            started = True
        elif started:
            assert state in FINAL


def test_a_job_that_has_started_never_waits_again() -> None:
    for state in STARTED:
        assert reachable(state) <= STARTED | FINAL
    assert STARTED < ASSIGNED


def test_states_that_gitlab_has_carry_its_names() -> None:
    gitlab = {
        "created",
        "waiting_for_resource",
        "preparing",
        "scheduled",
        "manual",
        "pending",
        "running",
        "canceling",
        "success",
        "failed",
        "canceled",
        "skipped",
    }
    assert {state.value for state in JobState} - gitlab == {"leased"}


@pytest.mark.parametrize(
    ("reason", "fault"),
    [
        (FailureReason.SCRIPT_FAILURE, Fault.USER),
        (FailureReason.JOB_EXECUTION_TIMEOUT, Fault.USER),
        (FailureReason.RUNNER_SYSTEM_FAILURE, Fault.RUNNER),
        (FailureReason.NO_UPDATES_RUNNING, Fault.RUNNER),
        (FailureReason.UNKNOWN_FAILURE, Fault.RUNNER),
        (FailureReason.SCHEDULER_FAILURE, Fault.PLATFORM),
        (FailureReason.DATA_INTEGRITY_FAILURE, Fault.PLATFORM),
        (FailureReason.DOWNSTREAM_CREATION_FAILED, Fault.USER),
    ],
)
def test_whose_failure_it_is(reason: FailureReason, fault: Fault) -> None:
    assert fault_of(reason) is fault
