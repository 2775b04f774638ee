"""The sequence of steps: a simulated job with given exit codes and durations runs its tree to the end."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.job_tree import sequence
from remuda.steps.job_tree.outcome import SKIPPED, Cause, Fault, Finished, Kind, Outcome, Status, failure
from remuda.steps.job_tree.sequence import AFTER_SECONDS, Action, End, Enter, Level, Run, Settle, Skip, Stop, Wait
from remuda.steps.job_tree.tree import Entered, Loaded, Node, State, Tree
from remuda.steps.language.evaluate import Context, holds
from remuda.steps.language.values import (
    Call,
    Definition,
    EnvironmentDefinition,
    Exec,
    Place,
    Reference,
    ReferenceKind,
    Retry,
    Spec,
    Step,
)

PLACE = Place(file="test", line=1)
COMMAND = Step(spec=Spec(), definition=Definition(exec=Exec(command=("true",))))


def create_call(
    name: str,
    *,
    condition: str | None = None,
    timeout: float | None = None,
    tolerated: bool = False,
    retry: Retry | None = None,
    parallel: tuple[Call, ...] = (),
) -> Call:
    return Call(
        name=name,
        place=PLACE,
        reference=None if parallel else Reference(kind=ReferenceKind.LOCAL, text=f"./{name}"),
        condition=condition,
        timeout_seconds=timeout,
        continue_on_error=tolerated,
        retry=retry,
        parallel=parallel,
    )


def create_list(*calls: Call) -> Step:
    return Step(spec=Spec(), definition=Definition(run=calls))


ALWAYS, FAILURE = create_call("always", condition="always()"), create_call("failure", condition="failure()")
CANCELLED = create_call("cancelled", condition="cancelled()")


def holds_at_level(node: Node, level: Level) -> bool:
    context = Context(failed=level.failed or level.stopped is not None, cancelled=level.stopped is Cause.CANCEL)
    return holds(node.call.condition, context)


class SimulatedJob:
    """Simulates a job. The keys of the mappings are paths of steps.

    `steps`: lists of steps; every other step is a command. `ends`: the exit code of a command, or a list of exit codes
    for its attempts; 0 by default. `takes`: the seconds that a command takes; 0 by default.
    """

    def __init__(
        self,
        *calls: Call,
        steps: Mapping[str, Step] | None = None,
        ends: Mapping[str, int | list[int]] | None = None,
        takes: Mapping[str, float] | None = None,
        deadline: float | None = None,
    ) -> None:
        self.tree = Tree(create_list(*calls), work_dir="/work")
        self.steps, self.takes, self.deadline = steps or {}, takes or {}, deadline
        self.ends: dict[str, Iterator[int]] = {
            path: iter(codes if isinstance(codes, list) else [codes]) for path, codes in (ends or {}).items()
        }
        self.now = 0.0
        self.ran: list[str] = []
        self.results: dict[str, Finished] = {}

    def finish(self, node: Node, result: Finished) -> None:
        retry_at = sequence.retry_at(node, result, now=self.now)
        self.results[node.path] = result
        if retry_at is not None:
            self.tree.delay(node, result, [], until=retry_at)
        else:
            self.tree.finish(node, result, {}, {}, [])

    def enter(self, node: Node) -> None:
        if node.state is State.DELAYED:
            node.again()
        step = self.steps.get(node.path, Step(spec=Spec(), definition=Definition()) if node.is_group else COMMAND)
        loaded = Loaded(step=step, reference=node.path)
        self.tree.enter(node, loaded, Entered(), serial=self.tree.serials, stream=1, at=self.now)
        if node.has_command:
            self.ran.append(node.path)

    def run(self, node: Node) -> None:
        """Run a command until it ends, or until a time limit or a cancel ends it."""
        ends_at = self.now + self.takes.get(node.path, 0.0)
        limits = [limit for limit, _, _ in sequence.deadlines(node, job_deadline=self.deadline)]
        self.now = min([ends_at, *(limit for limit in limits if limit > self.now)])
        due = sequence.reason_to_end(node, now=self.now, job_deadline=self.deadline) if self.now < ends_at else None
        if due is not None and sequence.find_stop(node) is None:
            self.tree.stop(*due)
        self.finish(node, sequence.judge(node, exit_code=next(self.ends.get(node.path, iter([0])), 0)))

    def next_actions(self) -> list[Action]:
        return sequence.next_actions(self.tree, holds_at_level, now=self.now, job_deadline=self.deadline)

    def enter_next(self) -> Node:
        """Enter the only step that can start now."""
        (action,) = self.next_actions()
        assert isinstance(action, Enter)
        self.enter(action.node)
        return action.node

    def run_to_end(self) -> Outcome:
        while True:
            actions = self.next_actions()
            assert actions == self.next_actions()
            action = actions[0]
            match action:
                case End(outcome):
                    return outcome
                case Enter(node):
                    self.enter(node)
                case Run(node):
                    self.run(node)
                case Skip(node):
                    self.finish(node, SKIPPED)
                case Settle(node, result):
                    self.finish(node, result)
                case Stop(node, cause):
                    self.tree.stop(node, cause)
                case Wait(until):
                    self.now = until


def test_a_successful_job() -> None:
    job = SimulatedJob(create_call("a"), create_call("b"), FAILURE, CANCELLED, ALWAYS)
    assert job.run_to_end() == Outcome(status=Status.SUCCESS)
    assert job.ran == ["/a", "/b", "/always"]


def test_the_failure_of_a_single_step_has_no_name_in_the_log_line() -> None:
    outcome = SimulatedJob(create_call("a"), ALWAYS, ends={"/a": 3}).run_to_end()
    assert outcome.log_line == "ERROR: Job failed: exit status 3"


def test_the_first_failure_ends_the_ordinary_steps_and_decides_the_outcome() -> None:
    job = SimulatedJob(create_call("a"), create_call("b"), FAILURE, CANCELLED, ALWAYS, ends={"/a": 3, "/always": 9})
    outcome = job.run_to_end()
    assert job.ran == ["/a", "/failure", "/always"]
    assert (outcome.status, outcome.reason, outcome.exit_code) == (Status.FAILURE, "script_failure", 3)
    assert outcome.message == 'step "a": exit status 3'
    assert outcome.log_line == 'ERROR: Job failed: step "a": exit status 3'


def test_a_failure_ends_every_list_around_it() -> None:
    inner = create_list(create_call("x"), create_call("y"), ALWAYS)
    job = SimulatedJob(
        create_call("outer"),
        create_call("next"),
        steps={"/outer": create_list(create_call("in")), "/outer/in": inner},
        ends={"/outer/in/x": 3},
    )
    outcome = job.run_to_end()
    assert job.ran == ["/outer/in/x", "/outer/in/always"]
    assert outcome.message == 'step "outer": step "in": step "x": exit status 3'
    assert outcome.log_line == 'ERROR: Job failed: step "outer": step "in": step "x": exit status 3'
    assert job.results["/outer"].exit_code == 3


def test_a_tolerated_failure_does_not_fail_the_job() -> None:
    job = SimulatedJob(create_call("a", tolerated=True), create_call("b"), FAILURE, ends={"/a": 1})
    assert job.run_to_end().status is Status.SUCCESS
    assert job.ran == ["/a", "/b"]


def test_a_tolerated_failure_of_a_list() -> None:
    job = SimulatedJob(
        create_call("a", tolerated=True),
        create_call("b"),
        steps={"/a": create_list(create_call("x"), create_call("y"))},
        ends={"/a/x": 1},
    )
    assert job.run_to_end().status is Status.SUCCESS
    assert job.ran == ["/a/x", "/b"]


def test_a_cancelled_job_runs_its_cleanup_steps() -> None:
    job = SimulatedJob(
        create_call("a"), FAILURE, CANCELLED, ALWAYS, steps={"/always": create_list(create_call("x"), create_call("y"))}
    )
    job.tree.stop(job.tree.root, Cause.CANCEL)
    outcome = job.run_to_end()
    assert job.ran == ["/failure", "/cancelled", "/always/x", "/always/y"]
    assert (outcome.status, outcome.reason, outcome.exit_code) == (Status.CANCELLED, "job_canceled", -1)


def test_a_cancel_in_a_nested_list_skips_the_rest_of_all_lists() -> None:
    job = SimulatedJob(create_call("a"), ALWAYS, steps={"/a": create_list(create_call("x"), create_call("y"), ALWAYS)})
    for _ in range(2):
        job.enter_next()
    job.tree.stop(job.tree.root, Cause.CANCEL)
    job.run_to_end()
    assert job.ran == ["/a/x", "/a/always", "/always"]
    statuses = {path: str(result.status) for path, result in job.results.items()}
    assert statuses == {
        "/a/x": "cancelled", "/a/y": "skipped", "/a/always": "success", "/a": "cancelled", "/always": "success"
    }  # fmt: skip


def test_a_job_that_exceeds_its_timeout() -> None:
    job = SimulatedJob(create_call("a"), create_call("b"), ALWAYS, takes={"/a": 50}, deadline=10)
    outcome = job.run_to_end()
    assert job.ran == ["/a", "/always"]
    assert (outcome.status, outcome.reason) == (Status.FAILURE, "job_execution_timeout")
    assert job.now == 10


def test_a_timeout_between_two_steps() -> None:
    job = SimulatedJob(create_call("a"), create_call("b"), ALWAYS, takes={"/a": 10}, deadline=10)
    assert job.run_to_end().reason == "job_execution_timeout"
    assert job.ran == ["/a", "/always"]


def test_the_timeout_of_a_list_ends_its_steps_but_not_its_cleanup_steps() -> None:
    job = SimulatedJob(
        create_call("slow", timeout=10, tolerated=True),
        create_call("next"),
        steps={"/slow": create_list(create_call("x"), create_call("y"), ALWAYS)},
        takes={"/slow/x": 50, "/slow/always": 20},
    )
    assert job.run_to_end().status is Status.SUCCESS
    assert job.ran == ["/slow/x", "/slow/always", "/next"]
    assert job.results["/slow/x"].error == "the step /slow took longer than its limit of 10 s"
    assert job.results["/slow"].error == "the step took longer than its limit of 10 s"
    assert job.results["/slow/always"].status is Status.SUCCESS
    assert job.now == 30


def test_cleanup_steps_have_a_time_limit_too() -> None:
    job = SimulatedJob(
        create_call("slow", timeout=10), steps={"/slow": create_list(create_call("x"), ALWAYS)},
        takes={"/slow/x": 50, "/slow/always": 1e6},
    )  # fmt: skip
    job.run_to_end()
    assert job.now == 10 + AFTER_SECONDS
    assert job.results["/slow/always"].kind is Kind.TIMEOUT


def test_timeout_and_retry_of_a_step() -> None:
    job = SimulatedJob(
        create_call("a", timeout=5, retry=Retry(times=2, delay_seconds=3)),
        takes={"/a": 50},
        ends={"/a": [143, 143, 143]},
    )
    outcome = job.run_to_end()
    assert job.ran == ["/a", "/a", "/a"]
    assert job.now == 3 * 5 + 2 * 3
    assert outcome.message == 'step "a": the step took longer than its limit of 5 s'


def test_a_list_is_retried_from_its_beginning() -> None:
    job = SimulatedJob(
        create_call("a", retry=Retry(times=3)),
        steps={"/a": create_list(create_call("x"), create_call("y"))},
        ends={"/a/y": [1, 0]},
    )
    assert job.run_to_end().status is Status.SUCCESS
    assert job.ran == ["/a/x", "/a/y", "/a/x", "/a/y"]


def test_a_cancel_ends_the_wait_for_another_attempt() -> None:
    job = SimulatedJob(create_call("a", retry=Retry(times=3, delay_seconds=1000)), ends={"/a": 1})
    job.run(job.enter_next())
    assert sequence.next_actions(job.tree, holds_at_level, now=1) == [Wait(1000)]
    job.tree.stop(job.tree.root, Cause.CANCEL)
    assert job.run_to_end().reason == "job_canceled"
    assert job.results["/a"].status is Status.CANCELLED
    assert job.now == 0


@pytest.mark.parametrize(("code", "ran"), [(2, []), (0, ["/env/a", "/env/always"])])
def test_nothing_runs_in_an_environment_that_could_not_be_opened(code: int, ran: list[str]) -> None:
    command = Exec(command=("true",))
    environment = Step(
        spec=Spec(), definition=Definition(environment=EnvironmentDefinition(open=command, close=command))
    )
    call = replace(create_call("env"), inner=(create_call("a"), ALWAYS, FAILURE))
    job = SimulatedJob(call, FAILURE, steps={"/env": environment}, ends={"/env/+open": code})
    outcome = job.run_to_end()
    assert job.ran == ["/env/+open", *ran, "/env/+close", *(["/failure"] if code else [])]
    assert (outcome.status is Status.SUCCESS) == (code == 0)


def test_members_of_a_group_run_at_the_same_time() -> None:
    group = create_call("group", parallel=(create_call("x"), create_call("y"), create_call("z")))
    job = SimulatedJob(group, create_call("next"), ends={"/group/y": 4, "/group/z": 5})
    job.enter_next()
    assert [action.node.path for action in job.next_actions() if isinstance(action, Enter)] == [
        "/group/x",
        "/group/y",
        "/group/z",
    ]
    outcome = job.run_to_end()
    assert job.ran == ["/group/x", "/group/y", "/group/z"]
    assert outcome.message == 'step "group": step "y": exit status 4'


def test_a_large_group_starts_a_limited_number_of_members() -> None:
    group = create_call(
        "group", parallel=tuple(create_call(f"m{number}") for number in range(sequence.MOST_AT_ONCE + 50))
    )
    job = SimulatedJob(group)
    for _ in range(2):
        for action in job.next_actions():
            if isinstance(action, Enter):
                job.enter(action.node)
    assert len(job.tree.open) == sequence.MOST_AT_ONCE
    assert not any(isinstance(action, Enter) for action in job.next_actions())
    assert job.run_to_end().status is Status.SUCCESS


@pytest.mark.parametrize(
    ("origin", "kind", "reference", "exit_code", "status", "fault", "error"),
    [
        ("user", None, "", 0, Status.SUCCESS, None, None),
        ("user", ReferenceKind.LOCAL, "/x", 75, Status.FAILURE, Fault.USER, "exit status 75"),
        ("compiled", ReferenceKind.BUILTIN, "builtin://script@1", 75, Status.FAILURE, Fault.USER, "exit status 75"),
        ("compiled", ReferenceKind.BUILTIN, "builtin://checkout@1", 75, Status.FAILURE, Fault.PLATFORM, "status 75"),
        ("inserted", ReferenceKind.BUILTIN, "builtin://checkout@1", 75, Status.FAILURE, Fault.PLATFORM, "status 75"),
        # The inputs of this step are the user's, such as the address of an engine that does not run.
        ("user", ReferenceKind.BUILTIN, "builtin://container@1", 75, Status.FAILURE, Fault.USER, "exit status 75"),
        ("compiled", ReferenceKind.BUILTIN, "builtin://checkout@1", 1, Status.FAILURE, Fault.USER, "exit status 1"),
        ("user", ReferenceKind.LOCAL, "/x", None, Status.FAILURE, Fault.RUNNER, "without an exit code"),
    ],
)
def test_results_of_exit_codes(
    origin: str,
    kind: ReferenceKind | None,
    reference: str,
    exit_code: int | None,
    status: Status,
    fault: Fault | None,
    error: str | None,
) -> None:
    call = replace(create_call("a"), origin=origin)
    node = Tree(create_list(call), work_dir="/").root.children[0]
    node.loaded = Loaded(step=COMMAND, reference=reference, kind=kind)
    result = sequence.judge(node, exit_code=exit_code)
    assert (result.status, result.exit_code, result.fault) == (status, exit_code, fault)
    assert (error or "") in (result.error or "")


@pytest.mark.parametrize("fault", [Fault.RUNNER, Fault.PLATFORM])
def test_faults_of_runner_and_platform_are_system_failures(fault: Fault) -> None:
    job = SimulatedJob(create_call("a"))
    node = job.tree.root.children[0]
    job.finish(node, failure("exit status 75", Kind.EXIT, fault=fault, exit_code=75))
    outcome = job.run_to_end()
    assert (outcome.reason, outcome.exit_code) == ("runner_system_failure", 75)
    assert outcome.message.endswith("exit status 75")


def test_reasons_to_end_a_step() -> None:
    def find_cause(call: Call, now: float, cancelled: bool = False, deadline: float | None = 100) -> Cause | None:
        tree = Tree(create_list(call), work_dir="/")
        node = tree.root.children[0]
        node.state, node.started_at = State.ENTERED, 50
        if cancelled:
            tree.stop(tree.root, Cause.CANCEL)
        due = sequence.reason_to_end(node, now=now, job_deadline=deadline)
        return due[1] if due else None

    assert find_cause(create_call("a"), 99.9) is None
    assert find_cause(create_call("a"), 100) is Cause.JOB_TIMEOUT
    assert find_cause(create_call("a"), 1e9, deadline=None) is None
    assert find_cause(create_call("a", timeout=10), 60) is Cause.STEP_TIMEOUT
    assert find_cause(create_call("a"), 50, True) is Cause.CANCEL
    assert find_cause(ALWAYS, 50, True) is None
    assert find_cause(ALWAYS, 100) is None
    assert find_cause(ALWAYS, 50 + AFTER_SECONDS) is Cause.JOB_TIMEOUT
    assert find_cause(create_call("a", condition="always()", timeout=1000), 1000) is None


@pytest.mark.parametrize(
    ("code", "cancelled", "timed_out", "status"),
    [
        (0, False, False, "success"),
        (1, False, False, "failed"),
        (0, False, True, "failed"),
        (1, True, False, "canceled"),
    ],
)
def test_job_status_for_cleanup_steps(code: int, cancelled: bool, timed_out: bool, status: str) -> None:
    job = SimulatedJob(create_call("a"), ALWAYS, ends={"/a": code}, steps={"/always": create_list(create_call("x"))})
    first, last = job.tree.root.children
    assert sequence.job_status(job.tree, first) == "running"
    job.enter(first)
    job.run(first)
    job.enter(last)
    for cause, applies in ((Cause.CANCEL, cancelled), (Cause.JOB_TIMEOUT, timed_out)):
        if applies:
            job.tree.stop(job.tree.root, cause)
    assert sequence.job_status(job.tree, last) == status
    assert sequence.job_status(job.tree, last.children[0]) == status


conditions = st.sampled_from([None, "success()", "failure()", "always()", "cancelled()"])
leaves = st.builds(
    create_call,
    st.sampled_from("abc"),
    condition=conditions,
    timeout=st.none() | st.just(5.0),
    tolerated=st.booleans(),
    retry=st.none() | st.builds(Retry, times=st.integers(0, 2), delay_seconds=st.sampled_from([0.0, 2.0])),
)
calls = st.lists(leaves, min_size=1, max_size=4)
codes = st.sampled_from([0, 0, 0, 1, 75])
paths = st.sampled_from([f"/{a}" for a in "abc"] + [f"/{a}/{b}" for a in "abc" for b in "abc"])


@given(
    calls,
    st.dictionaries(paths, calls.map(lambda members: create_list(*members)), max_size=3),
    st.dictionaries(paths, codes),
    st.dictionaries(paths, st.sampled_from([0.0, 3.0, 20.0])),
    st.none() | st.just(15.0),
    st.booleans(),
    st.booleans(),
)
def test_every_job_ends_with_one_consistent_outcome(
    calls: list[Call],
    steps: dict[str, Step],
    ends: dict[str, Any],
    takes: dict[str, float],
    deadline: float | None,
    is_cancelled: bool,
    in_a_group: bool,
) -> None:
    if in_a_group:
        calls = [
            create_call("g", parallel=tuple(replace(call, name=f"{call.name}{n}") for n, call in enumerate(calls)))
        ]
    job = SimulatedJob(*calls, steps=steps, ends=ends, takes=takes, deadline=deadline)
    if is_cancelled:
        job.tree.stop(job.tree.root, Cause.CANCEL)
    outcome = job.run_to_end()
    assert not job.tree.open
    assert (outcome.status is Status.SUCCESS) == (outcome.reason == "")
    assert outcome.message.count("exit status") <= 1
    if "exit status" in outcome.message:
        assert outcome.message.endswith(f"exit status {outcome.exit_code}")
    if is_cancelled:
        assert outcome.status is Status.CANCELLED
    for path, result in job.results.items():
        if result.status is Status.FAILURE:
            assert result.error, path
