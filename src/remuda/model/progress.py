"""What a pipeline does next: which of its jobs are enqueued, skipped or held, and how the whole stands.

Pure: it sees the jobs as `Node`s (the newest try of each name) and returns events for them. The cell applies them in
the same transaction that stored the change which caused them, so a crash leaves either both or neither.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from remuda.model.job import FINAL, FailureReason, JobEvent, JobState, after


class When(StrEnum):
    """On what a job's turn depends."""

    ON_SUCCESS = "on_success"
    ON_FAILURE = "on_failure"
    ALWAYS = "always"
    MANUAL = "manual"
    DELAYED = "delayed"


OVER = frozenset({"success", "failed", "canceled", "skipped"})
"""Words for a pipeline in which nothing happens any more unless a person asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A job as its pipeline sees it."""

    name: str
    state: JobState
    when: When = When.ON_SUCCESS
    allow_failure: bool = False
    waits_for: tuple[str, ...] = ()
    """Names of the jobs that must be over first."""


@dataclass(frozen=True, slots=True)
class Move:
    """An event for a job, by its name."""

    name: str
    event: JobEvent


_WIDER_REASONS = {
    FailureReason.NO_UPDATES_RUNNING.value: FailureReason.STUCK_OR_TIMEOUT_FAILURE.value,
    FailureReason.NO_UPDATES_CANCELING.value: FailureReason.STUCK_OR_TIMEOUT_FAILURE.value,
}
"""Reasons that a rule names by a wider word."""

_NEVER_RETRIED = frozenset({FailureReason.MISSING_DEPENDENCY_FAILURE.value})
"""Reasons that a further try would only meet again."""


def _passed(node: Node) -> bool:
    """Whether jobs that wait for success may go on behind this one."""
    if node.state in (JobState.SUCCESS, JobState.SKIPPED):
        return True
    if node.allow_failure:
        return node.state in (JobState.FAILED, JobState.CANCELED, JobState.MANUAL)
    return False


def _over(node: Node) -> bool:
    """Whether nobody waits for this one any more; an optional manual job does not hold up the rest."""
    return node.state in FINAL or (node.state is JobState.MANUAL and node.allow_failure)


def _turn(when: When, *, passed: bool) -> JobEvent:
    """What happens to a created job once nobody holds it up, given whether all it waited for passed."""
    match when:
        case When.ON_SUCCESS:
            return JobEvent.ENQUEUE if passed else JobEvent.SKIP
        case When.MANUAL:
            return JobEvent.ASK if passed else JobEvent.SKIP
        case When.DELAYED:
            return JobEvent.SCHEDULE if passed else JobEvent.SKIP
        case When.ON_FAILURE:
            return JobEvent.SKIP if passed else JobEvent.ENQUEUE
        case When.ALWAYS:
            return JobEvent.ENQUEUE


def next_moves(nodes: Iterable[Node]) -> list[Move]:
    """All moves that follow now, those included that follow from one another (a skip may skip the next)."""
    by_name = {node.name: node for node in nodes}
    moves: list[Move] = []
    while True:
        found = list(_moves_at_once(by_name))
        if not found:
            return moves
        for move in found:
            node = by_name[move.name]
            by_name[move.name] = replace(node, state=after(node.state, move.event))
        moves += found


def _moves_at_once(by_name: Mapping[str, Node]) -> Iterator[Move]:
    # Jobs of a stage share one tuple of those they wait for; looking through it once keeps wide pipelines cheap.
    known: dict[int, bool | None] = {}
    for node in by_name.values():
        if node.state is not JobState.CREATED:
            continue
        if id(node.waits_for) not in known:
            waited = [by_name[name] for name in node.waits_for if name in by_name]
            known[id(node.waits_for)] = all(map(_passed, waited)) if all(map(_over, waited)) else None
        passed = known[id(node.waits_for)]
        if passed is not None:
            yield Move(node.name, _turn(node.when, passed=passed))


def pipeline_state(nodes: Iterable[Node]) -> str:
    """The pipeline's status in GitLab's words."""
    nodes = list(nodes)
    states = {node.state for node in nodes}
    if not states:
        return "skipped"
    if JobState.CANCELING in states:
        return "canceling"
    if states & {JobState.RUNNING, JobState.LEASED}:
        return "running"
    finished = states & {JobState.SUCCESS, JobState.FAILED}
    if JobState.PENDING in states:
        return "running" if finished else "pending"
    waiting = [node for node in nodes if node.state not in FINAL]
    blocking = [node for node in waiting if not (node.state is JobState.MANUAL and node.allow_failure)]
    if blocking:
        if any(node.state is JobState.MANUAL for node in blocking):
            return "manual"
        return "running" if finished else "created"
    if any(node.state is JobState.FAILED and not node.allow_failure for node in nodes):
        return "failed"
    if any(node.state is JobState.CANCELED and not node.allow_failure for node in nodes):
        return "canceled"
    if JobState.SUCCESS in states or any(node.allow_failure and node.state is not JobState.SKIPPED for node in nodes):
        return "success"
    return "skipped"


def retries_left(*, tries: int, retry_max: int, retry_when: Sequence[str], reason: str) -> bool:
    """Whether a failed job is tried again by its own rules; `tries` counts this one."""
    words = {"always", reason, _WIDER_REASONS.get(reason, reason)}
    return tries <= retry_max and reason not in _NEVER_RETRIED and not words.isdisjoint(retry_when)


def waits_for_names(prerequisites: Mapping[str, Sequence[str]], name: str) -> tuple[str, ...]:
    """The stored form of what a job waits for."""
    return tuple(sorted(set(prerequisites.get(name, ()))))
