import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps import plan
from remuda.steps.definition import Condition, Definition, Step
from remuda.steps.plan import (
    AFTER_SECONDS,
    Cause,
    End,
    Fault,
    Finished,
    Outcome,
    SkipStep,
    StartStep,
    Status,
    deadlines,
    job_status,
    judge,
    next_action,
    reason_to_end,
)


def a_step(
    name: str = "a",
    *,
    builtin: str = "script",
    condition: Condition = Condition.SUCCESS,
    timeout: float | None = None,
    tolerated: bool = False,
) -> Step:
    return Step(
        name=name,
        builtin=builtin,
        inputs={},
        env={},
        condition=condition,
        timeout_seconds=timeout,
        continue_on_error=tolerated,
    )


GOOD = Finished(status=Status.SUCCESS, exit_code=0)
BAD = judge(a_step(), exit_code=3, cause=None)
ALWAYS, FAILURE = a_step("always", condition=Condition.ALWAYS), a_step("failure", condition=Condition.FAILURE)


def walk(
    steps: list[Step], results: list[Finished], *, cancelled: bool = False, timed_out: bool = False
) -> tuple[list[str], Outcome]:
    """Which steps run when each gives the next of the results, and the outcome."""
    definition = Definition(steps=tuple(steps))
    finished: list[Finished] = []
    ran: list[str] = []
    left = iter(results)
    while True:
        match next_action(definition, finished, is_started=False, cancelled=cancelled, timed_out=timed_out):
            case StartStep(index):
                ran.append(steps[index].name)
                finished.append(next(left, GOOD))
            case SkipStep():
                finished.append(Finished(status=Status.SKIPPED))
            case End(outcome):
                return ran, outcome


def test_all_good() -> None:
    ran, outcome = walk([a_step("a"), a_step("b"), FAILURE, ALWAYS], [])
    assert ran == ["a", "b", "always"]
    assert outcome == Outcome(status=Status.SUCCESS)


def test_first_failure_ends_the_ordinary_steps_and_decides() -> None:
    ran, outcome = walk([a_step("a"), a_step("b"), FAILURE, ALWAYS], [BAD, judge(ALWAYS, exit_code=9, cause=None)])
    assert ran == ["a", "failure", "always"]
    assert (outcome.status, outcome.reason, outcome.exit_code) == (Status.FAILURE, "script_failure", 3)
    assert outcome.message == 'step "a": exit status 3'
    assert outcome.log_line == "ERROR: Job failed: exit status 3"


def test_tolerated_failure_fails_nothing() -> None:
    ran, outcome = walk([a_step("a", tolerated=True), a_step("b"), FAILURE], [BAD])
    assert ran == ["a", "b"]
    assert outcome.status is Status.SUCCESS


def test_cancelled_job_runs_what_follows_a_failure() -> None:
    ran, outcome = walk([a_step("a"), FAILURE, ALWAYS], [], cancelled=True)
    assert ran == ["failure", "always"]
    assert (outcome.status, outcome.reason, outcome.exit_code) == (Status.CANCELLED, "job_canceled", -1)


def test_timed_out_job() -> None:
    ran, outcome = walk([a_step("a"), ALWAYS], [], timed_out=True)
    assert ran == ["always"]
    assert (outcome.status, outcome.reason) == (Status.FAILURE, "job_execution_timeout")


def test_a_started_step_is_carried_to_its_end() -> None:
    definition = Definition(steps=(a_step(),))
    action = next_action(definition, [], is_started=True, cancelled=True, timed_out=True)
    assert action == StartStep(0)


@pytest.mark.parametrize(
    ("step", "exit_code", "cause", "status", "fault", "error"),
    [
        (a_step(), 0, None, Status.SUCCESS, None, None),
        (a_step(), 75, None, Status.FAILURE, Fault.USER, "exit status 75"),
        (a_step(builtin="checkout"), 75, None, Status.FAILURE, Fault.PLATFORM, "exit status 75"),
        (a_step(builtin="checkout"), 1, None, Status.FAILURE, Fault.USER, "exit status 1"),
        (a_step(), None, None, Status.FAILURE, Fault.RUNNER, "without an exit code"),
        (a_step(), 143, Cause.CANCEL, Status.CANCELLED, None, "cancelled"),
        (a_step(), 0, Cause.JOB_TIMEOUT, Status.FAILURE, Fault.USER, "the job took longer"),
        (a_step(timeout=1.5), 143, Cause.STEP_TIMEOUT, Status.FAILURE, Fault.USER, "its limit of 1.5 s"),
    ],
)
def test_what_an_end_means(
    step: Step, exit_code: int | None, cause: Cause | None, status: Status, fault: Fault | None, error: str | None
) -> None:
    result = judge(step, exit_code=exit_code, cause=cause)
    assert (result.status, result.exit_code, result.fault) == (status, exit_code, fault)
    assert (error or "") in (result.error or "")


@pytest.mark.parametrize("fault", [Fault.RUNNER, Fault.PLATFORM])
def test_faults_that_are_not_the_users_are_system_failures(fault: Fault) -> None:
    _, outcome = walk(
        [a_step("a")], [Finished(status=Status.FAILURE, exit_code=75, error="exit status 75", fault=fault)]
    )
    assert (outcome.reason, outcome.exit_code) == ("runner_system_failure", 75)
    assert outcome.message.endswith("exit status 75")


def test_reasons_to_end() -> None:
    def reason(step: Step, now: float, cancelled: bool = False, job_deadline: float | None = 100) -> Cause | None:
        return reason_to_end(step, now=now, started_at=50, job_deadline=job_deadline, cancelled=cancelled)

    assert reason(a_step(), 99.9) is None
    assert reason(a_step(), 100) is Cause.JOB_TIMEOUT
    assert reason(a_step(), 1e9, job_deadline=None) is None
    assert reason(a_step(timeout=10), 60) is Cause.STEP_TIMEOUT
    assert reason(a_step(), 50, True) is Cause.CANCEL
    assert reason(ALWAYS, 50, True) is None
    assert reason(ALWAYS, 100) is None
    assert reason(ALWAYS, 50 + AFTER_SECONDS) is Cause.JOB_TIMEOUT
    assert reason(a_step(condition=Condition.ALWAYS, timeout=1000), 1000) is None


def test_deadlines_of_a_step_after_a_timeout_are_its_own() -> None:
    late = a_step(condition=Condition.ALWAYS, timeout=20)
    assert deadlines(late, started_at=200, job_deadline=100) == {Cause.STEP_TIMEOUT: 220}


@pytest.mark.parametrize(
    ("finished", "cancelled", "timed_out", "status"),
    [
        ([GOOD], False, False, "success"),
        ([BAD], False, False, "failed"),
        ([GOOD], False, True, "failed"),
        ([BAD], True, False, "canceled"),
    ],
)
def test_job_status_for_what_follows(finished: list[Finished], cancelled: bool, timed_out: bool, status: str) -> None:
    definition = Definition(steps=(a_step("a"), ALWAYS))
    assert job_status(definition, finished, cancelled=cancelled, timed_out=timed_out) == status
    assert job_status(definition, [], cancelled=cancelled, timed_out=timed_out) == "running"


steps = st.lists(
    st.builds(a_step, condition=st.sampled_from(Condition), tolerated=st.booleans(), timeout=st.none() | st.just(5.0)),
    min_size=1,
    max_size=6,
)
results = st.lists(
    st.builds(
        judge,
        st.just(a_step(timeout=1)),
        exit_code=st.none() | st.integers(0, 255),
        cause=st.none() | st.just(Cause.STEP_TIMEOUT),
    ),
    min_size=6,
    max_size=6,
)


@given(steps, results, st.booleans(), st.booleans())
def test_every_job_ends_with_one_consistent_outcome(
    steps: list[Step], results: list[Finished], cancelled: bool, timed_out: bool
) -> None:
    _, outcome = walk(steps, results, cancelled=cancelled, timed_out=timed_out)
    assert (outcome.status is Status.SUCCESS) == (outcome.reason == "")
    assert outcome.message.count("exit status") <= 1
    if "exit status" in outcome.message:
        assert outcome.message.endswith(f"exit status {outcome.exit_code}")
    if cancelled:
        assert outcome.status is Status.CANCELLED
    elif timed_out:
        assert outcome.reason == "job_execution_timeout"


def test_a_broken_agent_is_a_system_failure() -> None:
    outcome = plan.broken("no space")
    assert (outcome.reason, outcome.log_line) == (
        "runner_system_failure",
        "ERROR: Job failed (system failure): no space",
    )
