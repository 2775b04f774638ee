"""What a pipeline does next: which of its jobs are enqueued, skipped or held, and how the whole stands.

Pure: it sees the jobs as `Node`s (the newest try of each name) and returns events for them. The cell applies them in
the same transaction that stored the change which caused them, so a crash leaves either both or neither.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from remuda.model.job import FINAL, JobEvent, JobState, after


class When(StrEnum):
    """On what a job's turn depends."""

    ON_SUCCESS = "on_success"
    ON_FAILURE = "on_failure"
    ALWAYS = "always"
    MANUAL = "manual"


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


def _turn(node: Node, waited: Sequence[Node]) -> JobEvent | None:
    """What happens to a created job, given those it waits for; None while it has to wait."""
    if not all(_over(other) for other in waited):
        return None
    failed = [other for other in waited if not _passed(other)]
    match node.when:
        case When.ON_SUCCESS:
            return JobEvent.SKIP if failed else JobEvent.ENQUEUE
        case When.MANUAL:
            return JobEvent.SKIP if failed else JobEvent.ASK
        case When.ON_FAILURE:
            return JobEvent.ENQUEUE if failed else JobEvent.SKIP
        case When.ALWAYS:
            return JobEvent.ENQUEUE


def next_moves(nodes: Iterable[Node]) -> list[Move]:
    """All moves that follow now, those included that follow from one another (a skip may skip the next)."""
    by_name = {node.name: node for node in nodes}
    moves: list[Move] = []
    changed = True
    while changed:
        changed = False
        for node in list(by_name.values()):
            if node.state is not JobState.CREATED:
                continue
            event = _turn(node, [by_name[name] for name in node.waits_for if name in by_name])
            if event is None:
                continue
            moves.append(Move(node.name, event))
            by_name[node.name] = Node(
                name=node.name,
                state=after(node.state, event),
                when=node.when,
                allow_failure=node.allow_failure,
                waits_for=node.waits_for,
            )
            changed = True
    return moves


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
    return tries <= retry_max and any(when in ("always", reason) for when in retry_when)


def waits_for_names(prerequisites: Mapping[str, Sequence[str]], name: str) -> tuple[str, ...]:
    """The stored form of what a job waits for."""
    return tuple(sorted(set(prerequisites.get(name, ()))))
