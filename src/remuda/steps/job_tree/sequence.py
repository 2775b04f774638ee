"""Decides what a job does next, when a running step has to end, and with which result. Pure: values in, decisions out.

Steps of a list run one after the other, members of a group at the same time. The first failure makes a list fail, and
so the step it belongs to; then `if` conditions decide which steps of each enclosing list still run. Likewise in a
stopped job: steps that run after a failure (`always()`, `failure()`, `cancelled()`) still run, with their own time
limits."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from remuda.lib.dataclass import dataclass
from remuda.steps.errors import AgentError
from remuda.steps.job_tree.outcome import (
    Cause,
    Fault,
    Finished,
    Kind,
    Outcome,
    Status,
    cancel_result,
    failure,
    system_failure,
)
from remuda.steps.job_tree.tree import OPEN, Node, State, Tree

__all__ = ["Cause", "Fault", "Finished", "Outcome", "Status"]

AFTER_SECONDS = 300.0
"""Least time for a step that runs after a failure and has no timeout, even if the job's timeout or that of an enclosing
step has passed."""

GRACE_SECONDS = 5.0
"""Between SIGTERM and SIGKILL."""

EXIT_PLATFORM = 75
"""Exit code (EX_TEMPFAIL) of a standard step when the platform failed, not the user's input."""

MOST_AT_ONCE = 100
"""Number of open steps at which no further member of a group starts."""


@dataclass(frozen=True, slots=True)
class Enter:
    """Action: find the step's package and begin the step, or begin its next attempt."""

    node: Node


@dataclass(frozen=True, slots=True)
class Run:
    node: Node


@dataclass(frozen=True, slots=True)
class Skip:
    node: Node


@dataclass(frozen=True, slots=True)
class Settle:
    """Action: record this result for the step without running a command. Its inner steps have ended, its condition is
    invalid, or it will not be retried because the job was stopped."""

    node: Node
    result: Finished


@dataclass(frozen=True, slots=True)
class Stop:
    """Action: end this step, because its timeout or that of the job has passed (`cause`)."""

    node: Node
    cause: Cause


@dataclass(frozen=True, slots=True)
class Wait:
    """Action: do nothing until this time (as `Clock.now`): then a failed step is tried again."""

    until: float


@dataclass(frozen=True, slots=True)
class End:
    outcome: Outcome


Action = Enter | Run | Skip | Settle | Stop | Wait | End


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Whether a list of steps has failed or was stopped (and why). The `if` conditions of its steps depend on this."""

    failed: bool
    stopped: Cause | None

    @property
    def is_good(self) -> bool:
        return not self.failed and self.stopped is None


Condition = Callable[[Node, Level], bool]
"""True if the condition of a step holds; raises AgentError if it cannot be evaluated."""


def next_actions(tree: Tree, holds: Condition, *, now: float, job_deadline: float | None = None) -> list[Action]:
    """Return all actions to do now, including those in progress. `holds` evaluates `if` conditions."""
    if tree.root.cursor == len(tree.root.children):
        return [End(outcome(tree))]
    return list(_next_in_list(tree, tree.root, holds, now, job_deadline))


def _next_in_list(
    tree: Tree, parent: Node, holds: Condition, now: float, job_deadline: float | None
) -> Iterator[Action]:
    turn = parent.children if parent.is_group else parent.children[parent.cursor : parent.cursor + 1]
    begun = 0
    for child in turn:
        match child.state:
            case State.FINISHED:
                continue
            case State.WAITING if child.attempt > 1:
                yield _next_for_delayed(child, child.retry_at)
            case State.WAITING:
                if not parent.is_group or len(tree.open) + begun < MOST_AT_ONCE:
                    begun += 1
                    yield _next_for_waiting(tree, child, holds, now, job_deadline)
            case State.DELAYED:
                yield _next_for_delayed(child, now)
            case State.ENTERED if child.has_command:
                yield Run(child)
            case State.ENTERED if child.cursor == len(child.children):
                yield Settle(child, conclude(child))
            case State.ENTERED:
                yield from _next_in_list(tree, child, holds, now, job_deadline)


def _next_for_waiting(tree: Tree, node: Node, holds: Condition, now: float, job_deadline: float | None) -> Action:
    assert node.parent is not None
    if not node.is_after:
        # Time may be used up between two steps.
        due = _first_due(node.parent, now=now, job_deadline=job_deadline)
        if due is not None and find_stop(node.parent) is None:
            return Stop(*due)
    if _has_no_environment(node):
        return Skip(node)
    level = level_of(node.parent)
    try:
        runs = level.is_good if node.call.condition is None else holds(node, level)
    except AgentError as error:
        return Settle(node, failure(f"if: {error}", Kind.LOAD))
    return Enter(node) if runs else Skip(node)


def _has_no_environment(node: Node) -> bool:
    """True if the environment for the step could not be opened: it is skipped, whatever its condition says."""
    assert node.parent is not None
    if node.phase or not node.parent.makes_environment:
        return False
    return any(
        child.phase == OPEN and child.result and child.result.status is not Status.SUCCESS
        for child in node.parent.children
    )


def _next_for_delayed(node: Node, now: float) -> Action:
    assert node.parent is not None
    assert node.result is not None
    cause = None if node.is_after else find_stop(node.parent)
    if cause is not None:
        return Settle(node, cancel_result(node.result.exit_code) if cause[1] is Cause.CANCEL else node.result)
    return Enter(node) if now >= node.retry_at else Wait(node.retry_at)


def level_of(parent: Node) -> Level:
    """Return whether the list in `parent` failed or was stopped. A parallel group never counts as failed."""
    stop = find_stop(parent)
    return Level(failed=parent.decisive is not None and not parent.is_group, stopped=stop[1] if stop else None)


def find_stop(node: Node) -> tuple[Node, Cause] | None:
    """Return why this step must end, and the step for which that was recorded, this or an enclosing one; None if there
    is no reason. A step that runs after a failure (`always()`) ignores reasons recorded for enclosing steps."""
    for outer in node.up():
        if outer.cause is not None:
            return outer, outer.cause
        if outer.is_after:
            return None
    return None


def deadlines(node: Node, *, job_deadline: float | None) -> list[tuple[float, Node, Cause]]:
    """Return time, step to end and cause for the deadlines of a step, its enclosing steps and the job. A step that runs
    after a failure (such as with `always()`) gets at least `AFTER_SECONDS`, or its own timeout."""
    limits: list[tuple[float, Node, Cause]] = []
    shelter: Node | None = None
    for outer in node.up():
        limit, cause = job_deadline, Cause.JOB_TIMEOUT
        if outer.parent is not None:
            # The time of a step counts from its beginning.
            seconds = outer.call.timeout_seconds if outer.state is State.ENTERED else None
            limit, cause = None if seconds is None else outer.started_at + seconds, Cause.STEP_TIMEOUT
        if limit is not None:
            if shelter is not None:
                limit = max(limit, shelter.started_at + AFTER_SECONDS)
            limits.append((limit, shelter or outer, cause))
        if outer.is_after:
            if outer.call.timeout_seconds is not None:
                break
            shelter = outer
    return limits


def next_deadline(node: Node, *, job_deadline: float | None) -> float | None:
    return min([limit for limit, _, _ in deadlines(node, job_deadline=job_deadline)], default=None)


def _first_due(node: Node, *, now: float, job_deadline: float | None) -> tuple[Node, Cause] | None:
    for limit, owner, cause in deadlines(node, job_deadline=job_deadline):
        if now >= limit:
            return owner, cause
    return None


def reason_to_end(node: Node, *, now: float, job_deadline: float | None) -> tuple[Node, Cause] | None:
    """Return the step to end now and the cause, if any. Cancelling does not end steps that run after a failure."""
    return find_stop(node) or _first_due(node, now=now, job_deadline=job_deadline)


def judge(node: Node, *, exit_code: int | None, is_jobs_doing: bool = False) -> Finished:
    """Return the result of a step whose processes have ended. `is_jobs_doing`: the job itself caused a missing exit
    code: the user's fault. Only built-in steps that no user calls can report, by their exit code, a failure of the
    platform: a user could cause such an exit code by inputs."""
    stopped = find_stop(node)
    if stopped is not None:
        return _stop_result(node, *stopped, exit_code=exit_code)
    if exit_code is None and is_jobs_doing and node.is_users:
        error = "the step's process ended without an exit code: it was killed, or the agent's files of it were changed"
        return failure(error, Kind.EXIT)
    if exit_code is None:
        error = "the step's process ended without an exit code: it was killed from outside, or the machine restarted"
        return failure(error, Kind.SYSTEM, fault=Fault.RUNNER)
    if exit_code == 0:
        return Finished(status=Status.SUCCESS, exit_code=0)
    assert node.loaded is not None
    platform = exit_code == EXIT_PLATFORM and node.loaded.is_program and not node.loaded.is_script and not node.is_users
    fault = Fault.PLATFORM if platform else Fault.USER
    return failure(f"exit status {exit_code}", Kind.EXIT, fault=fault, exit_code=exit_code)


def _stop_result(node: Node, owner: Node, cause: Cause, *, exit_code: int | None) -> Finished:
    if cause is Cause.CANCEL:
        return cancel_result(exit_code)
    if cause is Cause.LIMIT:
        return failure(owner.cause_text, Kind.LIMIT, exit_code=exit_code)
    if cause is Cause.JOB_TIMEOUT:
        error = "the job took longer than its limit"
    else:
        seconds = owner.call.timeout_seconds
        limit = f"its limit of {seconds:g} s" if seconds is not None else "the time left by the steps around it"
        error = f"the step{'' if owner is node else f' {owner.path}'} took longer than {limit}"
    return failure(error, Kind.TIMEOUT, exit_code=exit_code)


def conclude(node: Node) -> Finished:
    """Return the result of a step whose inner steps have all ended, before its outputs are evaluated."""
    stopped = find_stop(node)
    if stopped is not None:
        return _stop_result(node, *stopped, exit_code=None)
    if node.decisive is None:
        return Finished(status=Status.SUCCESS)
    result = node.decisive.result
    assert result is not None
    return replace(result, error=f"{_label(node.decisive)}: {result.error}", kind=Kind.STEP)


def retry_at(node: Node, result: Finished, *, now: float) -> float | None:
    """Return when a step that ended with this result is tried again; None if it is not."""
    retry = node.call.retry
    if retry is None or result.status is not Status.FAILURE or node.attempt > retry.times or result.kind is Kind.POLICY:
        return None
    assert node.parent is not None
    if not node.is_after and find_stop(node.parent) is not None:
        return None
    return now + retry.delay_seconds


def job_status(tree: Tree, node: Node) -> str:
    """Return the value of CI_JOB_STATUS for a step that begins: "running", or for steps that run after a failure (such
    as with `always()`) "success", "failed" or "canceled"."""
    sheltered = [outer for outer in node.up() if outer.is_after]
    if not sheltered:
        return "running"
    if tree.cancelled:
        return "canceled"
    failed = tree.timed_out or any(outer.decisive is not None for outer in list(sheltered[-1].up())[1:])
    return "failed" if failed else "success"


def outcome(tree: Tree) -> Outcome:
    """Return how the job ended. If it was cancelled or timed out, that is the outcome, whatever its steps did."""
    if tree.cancelled:
        return Outcome(
            status=Status.CANCELLED,
            reason="job_canceled",
            exit_code=-1,
            message="the job was cancelled",
            log_line="ERROR: Job failed: cancelled",
        )
    if tree.timed_out:
        error = "the job took longer than its limit"
        return Outcome(
            status=Status.FAILURE,
            reason="job_execution_timeout",
            exit_code=-1,
            message=error,
            log_line=f"ERROR: Job failed: {error}",
        )
    decisive = tree.root.decisive
    if decisive is None:
        return Outcome(status=Status.SUCCESS)
    result = decisive.result
    assert result is not None
    message = f"{_label(decisive)}: {result.error}"
    if result.fault is not Fault.USER:
        system = system_failure(message)
        return system if result.exit_code is None else replace(system, exit_code=result.exit_code)
    return Outcome(
        status=Status.FAILURE,
        reason="script_failure",
        exit_code=-1 if result.exit_code is None else result.exit_code,
        message=message,
        log_line=f"ERROR: Job failed: {message if _has_several(tree) else result.error}",
    )


def _has_several(tree: Tree) -> bool:
    """True if the job has several user steps, so that an error message such as "exit status 1" must name the step."""
    own = (child for child in tree.root.children if child.is_users)
    return sum(not child.is_after for child in own) > 1


def _label(node: Node) -> str:
    return node.phase.removeprefix("+") if node.phase else f'step "{node.call.name}"'
