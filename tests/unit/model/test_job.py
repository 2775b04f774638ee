"""The table of job states and transitions, and whose fault a failure is."""

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


def reachable_from(start: JobState) -> set[JobState]:
    states, new_states = {start}, {start}
    while new_states:
        new_states = {state for old in new_states for state in TRANSITIONS[old].values()} - states
        states |= new_states
    return states


@pytest.mark.parametrize("state", JobState)
def test_every_state_is_reachable_and_leads_to_a_final_state(state: JobState) -> None:
    assert state in TRANSITIONS
    assert reachable_from(state) & FINAL
    assert state in reachable_from(JobState.CREATED)


def test_final_states_can_only_be_revived_or_reopened() -> None:
    transitions = {(state, event) for state in FINAL for event in TRANSITIONS[state]}
    finished = (JobState.SUCCESS, JobState.FAILED, JobState.CANCELED)
    assert transitions == {(JobState.SKIPPED, JobEvent.REVIVE), *((state, JobEvent.REOPEN) for state in finished)}
    assert {JobState.SUCCESS, JobState.FAILED, JobState.CANCELED, JobState.SKIPPED} == FINAL


@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("event", JobEvent)
def test_transitions_outside_the_table_are_refused(state: JobState, event: JobEvent) -> None:
    if event in TRANSITIONS[state]:
        assert after(state, event) is TRANSITIONS[state][event]
    else:
        with pytest.raises(TransitionError, match=f"{state.value} cannot {event.value}"):
            after(state, event)


@given(st.data())
def test_on_every_path_a_job_starts_once_and_is_handed_out_only_before(data: st.DataObject) -> None:
    state, started = JobState.CREATED, False
    for _ in range(30):
        # Only a trigger job is reopened, and a trigger job is never handed out.
        events = sorted(TRANSITIONS[state].keys() - {JobEvent.REOPEN})
        if not events:
            break
        event = data.draw(st.sampled_from(events))
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
        assert reachable_from(state) <= STARTED | FINAL
    assert STARTED < ASSIGNED


def test_states_have_the_names_of_gitlab() -> None:
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
def test_fault_of_a_failure_reason(reason: FailureReason, fault: Fault) -> None:
    assert fault_of(reason) is fault
