"""What follows on what, as playbooks: a tree, how its commands end, and what the plan makes of that."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.job_tree import sequence
from remuda.steps.job_tree.outcome import SKIPPED, Cause, Fault, Finished, Kind, Outcome, Status, failure
from remuda.steps.job_tree.sequence import AFTER_SECONDS, End, Enter, Level, Run, Settle, Skip, Stop, Wait
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


def a_call(
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


def a_list(*calls: Call) -> Step:
    return Step(spec=Spec(), definition=Definition(run=calls))


ALWAYS, FAILURE = a_call("always", condition="always()"), a_call("failure", condition="failure()")
CANCELLED = a_call("cancelled", condition="cancelled()")


def by_status(node: Node, level: Level) -> bool:
    context = Context(failed=level.failed or level.stopped is not None, cancelled=level.stopped is Cause.CANCEL)
    return holds(node.call.condition, context)


class Play:
    """A job whose commands end as `ends` says by their paths: an exit code, or a list of them for its attempts. What a
    path in `steps` stands for is a list of steps; every other is a command. Time passes only by `takes`."""

    def __init__(
        self,
        *calls: Call,
        steps: Mapping[str, Step] | None = None,
        ends: Mapping[str, int | list[int]] | None = None,
        takes: Mapping[str, float] | None = None,
        deadline: float | None = None,
    ) -> None:
        self.tree = Tree(a_list(*calls), work_dir="/work")
        self.steps, self.takes, self.deadline = steps or {}, takes or {}, deadline
        self.ends: dict[str, Iterator[int]] = {
            path: iter(codes if isinstance(codes, list) else [codes]) for path, codes in (ends or {}).items()
        }
        self.now = 0.0
        self.ran: list[str] = []
        self.results: dict[str, Finished] = {}

    def finish(self, node: Node, result: Finished) -> None:
        again_at = sequence.retry_at(node, result, now=self.now)
        self.results[node.path] = result
        if again_at is not None:
            self.tree.delay(node, result, [], until=again_at)
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
        """The command takes its time, or ends when there is a reason to."""
        until = self.now + self.takes.get(node.path, 0.0)
        limits = [limit for limit, _, _ in sequence.deadlines(node, job_deadline=self.deadline)]
        self.now = min([until, *(limit for limit in limits if limit > self.now)])
        due = sequence.reason_to_end(node, now=self.now, job_deadline=self.deadline) if self.now < until else None
        if due is not None and sequence.find_stop(node) is None:
            self.tree.stop(*due)
        self.finish(node, sequence.judge(node, exit_code=next(self.ends.get(node.path, iter([0])), 0)))

    def go(self) -> Outcome:
        while True:
            actions = sequence.next_actions(self.tree, by_status, now=self.now, job_deadline=self.deadline)
            assert actions == sequence.next_actions(self.tree, by_status, now=self.now, job_deadline=self.deadline)
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


def test_all_good() -> None:
    play = Play(a_call("a"), a_call("b"), FAILURE, CANCELLED, ALWAYS)
    assert play.go() == Outcome(status=Status.SUCCESS)
    assert play.ran == ["/a", "/b", "/always"]


def test_a_job_with_one_step_of_its_own_needs_no_name_for_it() -> None:
    outcome = Play(a_call("a"), ALWAYS, ends={"/a": 3}).go()
    assert outcome.log_line == "ERROR: Job failed: exit status 3"


def test_first_failure_ends_the_ordinary_steps_and_decides() -> None:
    play = Play(a_call("a"), a_call("b"), FAILURE, CANCELLED, ALWAYS, ends={"/a": 3, "/always": 9})
    outcome = play.go()
    assert play.ran == ["/a", "/failure", "/always"]
    assert (outcome.status, outcome.reason, outcome.exit_code) == (Status.FAILURE, "script_failure", 3)
    assert outcome.message == 'step "a": exit status 3'
    assert outcome.log_line == 'ERROR: Job failed: step "a": exit status 3'


def test_a_failure_ends_every_list_around_it() -> None:
    inner = a_list(a_call("x"), a_call("y"), ALWAYS)
    play = Play(
        a_call("outer"),
        a_call("next"),
        steps={"/outer": a_list(a_call("in")), "/outer/in": inner},
        ends={"/outer/in/x": 3},
    )
    outcome = play.go()
    assert play.ran == ["/outer/in/x", "/outer/in/always"]
    assert outcome.message == 'step "outer": step "in": step "x": exit status 3'
    assert outcome.log_line == 'ERROR: Job failed: step "outer": step "in": step "x": exit status 3'
    assert play.results["/outer"].exit_code == 3


def test_tolerated_failure_fails_nothing() -> None:
    play = Play(a_call("a", tolerated=True), a_call("b"), FAILURE, ends={"/a": 1})
    assert play.go().status is Status.SUCCESS
    assert play.ran == ["/a", "/b"]


def test_tolerated_list() -> None:
    play = Play(
        a_call("a", tolerated=True), a_call("b"), steps={"/a": a_list(a_call("x"), a_call("y"))}, ends={"/a/x": 1}
    )
    assert play.go().status is Status.SUCCESS
    assert play.ran == ["/a/x", "/b"]


def test_cancelled_job_runs_what_follows_a_failure() -> None:
    play = Play(a_call("a"), FAILURE, CANCELLED, ALWAYS, steps={"/always": a_list(a_call("x"), a_call("y"))})
    play.tree.stop(play.tree.root, Cause.CANCEL)
    outcome = play.go()
    assert play.ran == ["/failure", "/cancelled", "/always/x", "/always/y"]
    assert (outcome.status, outcome.reason, outcome.exit_code) == (Status.CANCELLED, "job_canceled", -1)


def test_a_cancel_in_a_nested_list_skips_the_rest_of_all_of_them() -> None:
    play = Play(a_call("a"), ALWAYS, steps={"/a": a_list(a_call("x"), a_call("y"), ALWAYS)})
    for _ in range(2):
        (action,) = sequence.next_actions(play.tree, by_status, now=0)
        assert isinstance(action, Enter)
        play.enter(action.node)
    play.tree.stop(play.tree.root, Cause.CANCEL)
    play.go()
    assert play.ran == ["/a/x", "/a/always", "/always"]
    statuses = {path: str(result.status) for path, result in play.results.items()}
    assert statuses == {
        "/a/x": "cancelled", "/a/y": "skipped", "/a/always": "success", "/a": "cancelled", "/always": "success"
    }  # fmt: skip


def test_timed_out_job() -> None:
    play = Play(a_call("a"), a_call("b"), ALWAYS, takes={"/a": 50}, deadline=10)
    outcome = play.go()
    assert play.ran == ["/a", "/always"]
    assert (outcome.status, outcome.reason) == (Status.FAILURE, "job_execution_timeout")
    assert play.now == 10


def test_a_job_whose_time_is_used_up_between_two_steps() -> None:
    play = Play(a_call("a"), a_call("b"), ALWAYS, takes={"/a": 10}, deadline=10)
    assert play.go().reason == "job_execution_timeout"
    assert play.ran == ["/a", "/always"]


def test_timeout_of_a_list_ends_all_below_and_not_what_follows_its_failure() -> None:
    play = Play(
        a_call("slow", timeout=10, tolerated=True),
        a_call("next"),
        steps={"/slow": a_list(a_call("x"), a_call("y"), ALWAYS)},
        takes={"/slow/x": 50, "/slow/always": 20},
    )
    assert play.go().status is Status.SUCCESS
    assert play.ran == ["/slow/x", "/slow/always", "/next"]
    assert play.results["/slow/x"].error == "the step /slow took longer than its limit of 10 s"
    assert play.results["/slow"].error == "the step took longer than its limit of 10 s"
    assert play.results["/slow/always"].status is Status.SUCCESS
    assert play.now == 30


def test_what_follows_a_failure_has_a_limit_too() -> None:
    play = Play(
        a_call("slow", timeout=10), steps={"/slow": a_list(a_call("x"), ALWAYS)},
        takes={"/slow/x": 50, "/slow/always": 1e6},
    )  # fmt: skip
    play.go()
    assert play.now == 10 + AFTER_SECONDS
    assert play.results["/slow/always"].kind is Kind.TIMEOUT


def test_per_step_timeout_and_retry() -> None:
    play = Play(
        a_call("a", timeout=5, retry=Retry(times=2, delay_seconds=3)), takes={"/a": 50}, ends={"/a": [143, 143, 143]}
    )
    outcome = play.go()
    assert play.ran == ["/a", "/a", "/a"]
    assert play.now == 3 * 5 + 2 * 3
    assert outcome.message == 'step "a": the step took longer than its limit of 5 s'


def test_a_list_is_tried_again_from_its_begin() -> None:
    play = Play(
        a_call("a", retry=Retry(times=3)),
        steps={"/a": a_list(a_call("x"), a_call("y"))},
        ends={"/a/y": [1, 0]},
    )
    assert play.go().status is Status.SUCCESS
    assert play.ran == ["/a/x", "/a/y", "/a/x", "/a/y"]


def test_a_cancel_ends_the_wait_for_another_attempt() -> None:
    play = Play(a_call("a", retry=Retry(times=3, delay_seconds=1000)), ends={"/a": 1})
    (action,) = sequence.next_actions(play.tree, by_status, now=0)
    assert isinstance(action, Enter)
    play.enter(action.node)
    play.run(action.node)
    assert sequence.next_actions(play.tree, by_status, now=1) == [Wait(1000)]
    play.tree.stop(play.tree.root, Cause.CANCEL)
    assert play.go().reason == "job_canceled"
    assert play.results["/a"].status is Status.CANCELLED
    assert play.now == 0


@pytest.mark.parametrize(("code", "ran"), [(2, []), (0, ["/env/a", "/env/always"])])
def test_in_an_environment_that_was_never_opened_nothing_runs(code: int, ran: list[str]) -> None:
    command = Exec(command=("true",))
    environment = Step(
        spec=Spec(), definition=Definition(environment=EnvironmentDefinition(open=command, close=command))
    )
    call = replace(a_call("env"), inner=(a_call("a"), ALWAYS, FAILURE))
    play = Play(call, FAILURE, steps={"/env": environment}, ends={"/env/+open": code})
    outcome = play.go()
    assert play.ran == ["/env/+open", *ran, "/env/+close", *(["/failure"] if code else [])]
    assert (outcome.status is Status.SUCCESS) == (code == 0)


def test_members_of_a_group_run_at_the_same_time() -> None:
    group = a_call("group", parallel=(a_call("x"), a_call("y"), a_call("z")))
    play = Play(group, a_call("next"), ends={"/group/y": 4, "/group/z": 5})
    (action,) = sequence.next_actions(play.tree, by_status, now=0)
    assert isinstance(action, Enter)
    play.enter(action.node)
    actions = sequence.next_actions(play.tree, by_status, now=0)
    assert [action.node.path for action in actions if isinstance(action, Enter)] == ["/group/x", "/group/y", "/group/z"]
    outcome = play.go()
    assert play.ran == ["/group/x", "/group/y", "/group/z"]
    assert outcome.message == 'step "group": step "y": exit status 4'


def test_of_a_large_group_not_all_begin_at_once() -> None:
    group = a_call("group", parallel=tuple(a_call(f"m{number}") for number in range(sequence.MOST_AT_ONCE + 50)))
    play = Play(group)
    for _ in range(2):
        for action in sequence.next_actions(play.tree, by_status, now=0):
            if isinstance(action, Enter):
                play.enter(action.node)
    assert len(play.tree.open) == sequence.MOST_AT_ONCE
    assert not any(isinstance(action, Enter) for action in sequence.next_actions(play.tree, by_status, now=0))
    assert play.go().status is Status.SUCCESS


@pytest.mark.parametrize(
    ("origin", "kind", "reference", "exit_code", "status", "fault", "error"),
    [
        ("user", None, "", 0, Status.SUCCESS, None, None),
        ("user", ReferenceKind.LOCAL, "/x", 75, Status.FAILURE, Fault.USER, "exit status 75"),
        ("compiled", ReferenceKind.BUILTIN, "builtin://script@1", 75, Status.FAILURE, Fault.USER, "exit status 75"),
        ("compiled", ReferenceKind.BUILTIN, "builtin://checkout@1", 75, Status.FAILURE, Fault.PLATFORM, "status 75"),
        ("inserted", ReferenceKind.BUILTIN, "builtin://checkout@1", 75, Status.FAILURE, Fault.PLATFORM, "status 75"),
        # Its inputs are the user's: an engine that nobody listens at, a key that cannot be read.
        ("user", ReferenceKind.BUILTIN, "builtin://container@1", 75, Status.FAILURE, Fault.USER, "exit status 75"),
        ("compiled", ReferenceKind.BUILTIN, "builtin://checkout@1", 1, Status.FAILURE, Fault.USER, "exit status 1"),
        ("user", ReferenceKind.LOCAL, "/x", None, Status.FAILURE, Fault.RUNNER, "without an exit code"),
    ],
)
def test_what_an_end_means(
    origin: str,
    kind: ReferenceKind | None,
    reference: str,
    exit_code: int | None,
    status: Status,
    fault: Fault | None,
    error: str | None,
) -> None:
    call = replace(a_call("a"), origin=origin)
    node = Tree(a_list(call), work_dir="/").root.children[0]
    node.loaded = Loaded(step=COMMAND, reference=reference, kind=kind)
    result = sequence.judge(node, exit_code=exit_code)
    assert (result.status, result.exit_code, result.fault) == (status, exit_code, fault)
    assert (error or "") in (result.error or "")


@pytest.mark.parametrize("fault", [Fault.RUNNER, Fault.PLATFORM])
def test_faults_that_are_not_the_users_are_system_failures(fault: Fault) -> None:
    play = Play(a_call("a"))
    node = play.tree.root.children[0]
    play.finish(node, failure("exit status 75", Kind.EXIT, fault=fault, exit_code=75))
    outcome = play.go()
    assert (outcome.reason, outcome.exit_code) == ("runner_system_failure", 75)
    assert outcome.message.endswith("exit status 75")


def test_reasons_to_end() -> None:
    def reason(call: Call, now: float, cancelled: bool = False, deadline: float | None = 100) -> Cause | None:
        tree = Tree(a_list(call), work_dir="/")
        node = tree.root.children[0]
        node.state, node.started_at = State.ENTERED, 50
        if cancelled:
            tree.stop(tree.root, Cause.CANCEL)
        found = sequence.reason_to_end(node, now=now, job_deadline=deadline)
        return found[1] if found else None

    assert reason(a_call("a"), 99.9) is None
    assert reason(a_call("a"), 100) is Cause.JOB_TIMEOUT
    assert reason(a_call("a"), 1e9, deadline=None) is None
    assert reason(a_call("a", timeout=10), 60) is Cause.STEP_TIMEOUT
    assert reason(a_call("a"), 50, True) is Cause.CANCEL
    assert reason(ALWAYS, 50, True) is None
    assert reason(ALWAYS, 100) is None
    assert reason(ALWAYS, 50 + AFTER_SECONDS) is Cause.JOB_TIMEOUT
    assert reason(a_call("a", condition="always()", timeout=1000), 1000) is None


@pytest.mark.parametrize(
    ("code", "cancelled", "timed_out", "status"),
    [
        (0, False, False, "success"),
        (1, False, False, "failed"),
        (0, False, True, "failed"),
        (1, True, False, "canceled"),
    ],
)
def test_job_status_for_what_follows(code: int, cancelled: bool, timed_out: bool, status: str) -> None:
    play = Play(a_call("a"), ALWAYS, ends={"/a": code}, steps={"/always": a_list(a_call("x"))})
    first, last = play.tree.root.children
    assert sequence.job_status(play.tree, first) == "running"
    play.enter(first)
    play.run(first)
    play.enter(last)
    for cause, is_so in ((Cause.CANCEL, cancelled), (Cause.JOB_TIMEOUT, timed_out)):
        if is_so:
            play.tree.stop(play.tree.root, cause)
    assert sequence.job_status(play.tree, last) == status
    assert sequence.job_status(play.tree, last.children[0]) == status


conditions = st.sampled_from([None, "success()", "failure()", "always()", "cancelled()"])
leaves = st.builds(
    a_call,
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
    st.dictionaries(paths, calls.map(lambda found: a_list(*found)), max_size=3),
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
        calls = [a_call("g", parallel=tuple(replace(call, name=f"{call.name}{n}") for n, call in enumerate(calls)))]
    play = Play(*calls, steps=steps, ends=ends, takes=takes, deadline=deadline)
    if is_cancelled:
        play.tree.stop(play.tree.root, Cause.CANCEL)
    outcome = play.go()
    assert not play.tree.open
    assert (outcome.status is Status.SUCCESS) == (outcome.reason == "")
    assert outcome.message.count("exit status") <= 1
    if "exit status" in outcome.message:
        assert outcome.message.endswith(f"exit status {outcome.exit_code}")
    if is_cancelled:
        assert outcome.status is Status.CANCELLED
    for path, result in play.results.items():
        if result.status is Status.FAILURE:
            assert result.error, path
