"""What a pipeline does next: which of its jobs are enqueued, skipped or held, and how the whole stands.

Pure: it sees the newest try of each job as a `Node` and returns events for them. The cell applies them in the same
transaction that stored the change which caused them, so a crash leaves either both or neither. Whether a resource
group is free is decided by the cell.

Everything follows from the *words* of jobs: their states, but for a failure that is allowed, which is `warned`, and a
manual job that nobody has to start, which is `ignored`. Words and their order of precedence are GitLab's.

Invariant: linear in jobs plus needs. A need is of the same or an earlier stage, as the compiler sees to.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from remuda.model.job import FailureReason, JobEvent, JobState, after


class When(StrEnum):
    """On what a job's turn depends."""

    ON_SUCCESS = "on_success"
    ON_FAILURE = "on_failure"
    ALWAYS = "always"
    MANUAL = "manual"
    DELAYED = "delayed"


OVER = frozenset({"success", "failed", "canceled", "skipped"})
"""Words for a pipeline in which nothing happens any more unless a person asks."""


class Node(Protocol):
    """A job as its pipeline sees it."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> JobState: ...
    @property
    def when(self) -> When: ...
    @property
    def allow_failure(self) -> bool: ...
    @property
    def stage_index(self) -> int: ...
    @property
    def by_stage(self) -> bool:
        """It waits for all jobs of earlier stages."""
        ...

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Names of the jobs it needs, where it does not wait by stage."""
        ...


@dataclass(frozen=True, slots=True)
class Move:
    """An event for a job, by its name."""

    name: str
    event: JobEvent


_WARNED = "warned"
_IGNORED = "ignored"
_SUCCESS, _FAILED, _CANCELED, _SKIPPED = "success", "failed", "canceled", "skipped"

_CREATED = JobState.CREATED

_WORDS = {state: state.value for state in JobState} | {
    JobState.LEASED: JobState.RUNNING.value  # nobody but the runner and the cell knows the difference
}
_WORDS_IF_ALLOWED = _WORDS | {
    JobState.FAILED: _WARNED,
    JobState.CANCELED: _WARNED,
    JobState.MANUAL: _IGNORED,
}
OPEN = frozenset(_WORDS.values()) - OVER
"""Words for all other pipelines."""
_PASSED = frozenset({_SUCCESS, _SKIPPED, _WARNED, _IGNORED})
_ENDED = _PASSED | {_FAILED, _CANCELED}
_DID_NOT_RUN = frozenset({_SKIPPED, _IGNORED})

_WIDER_REASONS = {
    FailureReason.STUCK_PENDING_WITH_MATCHING_RUNNERS.value: FailureReason.STUCK_OR_TIMEOUT_FAILURE.value,
    FailureReason.STUCK_PENDING_NO_MATCHING_RUNNERS.value: FailureReason.STUCK_OR_TIMEOUT_FAILURE.value,
    FailureReason.NO_UPDATES_RUNNING.value: FailureReason.STUCK_OR_TIMEOUT_FAILURE.value,
    FailureReason.NO_UPDATES_CANCELING.value: FailureReason.STUCK_OR_TIMEOUT_FAILURE.value,
    FailureReason.SERVER_TIMEOUT_RUNNING.value: FailureReason.JOB_EXECUTION_TIMEOUT.value,
    FailureReason.SERVER_TIMEOUT_CANCELING.value: FailureReason.JOB_EXECUTION_TIMEOUT.value,
}
"""Reasons that a rule names by a wider word."""

_NEVER_RETRIED = frozenset({FailureReason.MISSING_DEPENDENCY_FAILURE.value})
"""Reasons that a further try would only meet again."""


def _word(state: JobState, *, allow_failure: bool) -> str:
    return (_WORDS_IF_ALLOWED if allow_failure else _WORDS)[state]


def _sum(words: Collection[str], *, by_stage: bool) -> str | None:
    """How the jobs that one waits for ended together; None while they have not.

    Who names a job as a need wants what it made, so a need that did not run tells; a stage goes on without it.
    """
    words = frozenset(words)
    if not words <= _ENDED:
        return None
    if not words:
        return _SUCCESS
    if words <= _DID_NOT_RUN or not (by_stage or words.isdisjoint(_DID_NOT_RUN)):
        return _SKIPPED
    if _FAILED in words:
        return _FAILED
    return _CANCELED if _CANCELED in words else _SUCCESS


def _turn(node: Node, ended: str) -> JobEvent:
    """What happens to a created job once nobody holds it up, given how those it waited for ended."""
    goes_on = ended == _SUCCESS or (ended == _SKIPPED and node.by_stage)
    match node.when:
        case When.ON_SUCCESS:
            return JobEvent.ENQUEUE if goes_on else JobEvent.SKIP
        case When.MANUAL:
            return JobEvent.ASK if goes_on else JobEvent.SKIP
        case When.DELAYED:
            return JobEvent.SCHEDULE if goes_on else JobEvent.SKIP
        case When.ON_FAILURE:
            return JobEvent.ENQUEUE if ended == _FAILED else JobEvent.SKIP
        case When.ALWAYS:
            return JobEvent.SKIP if ended == _CANCELED else JobEvent.ENQUEUE


def next_moves(nodes: Iterable[Node]) -> list[Move]:
    """All moves that follow now, those included that follow from one another (a skip may skip the next)."""
    by_name = {node.name: node for node in nodes}
    stages: defaultdict[int, list[Node]] = defaultdict(list)
    for node in by_name.values():
        stages[node.stage_index].append(node)
    before: set[str] = set()
    moves: list[Move] = []
    moved: dict[str, str] = {}
    for index in sorted(stages):
        stage = stages[index]
        created = [node for node in stage if node.state is _CREATED]
        ended = _sum(before, by_stage=True)
        found = [] if ended is None else [Move(node.name, _turn(node, ended)) for node in created if node.by_stage]
        for move in found:
            moved[move.name] = _word_after(by_name[move.name], move)
        found += _moves_by_needs([node for node in created if not node.by_stage], by_name, moved)
        before |= {_word(node.state, allow_failure=node.allow_failure) for node in stage if node.name not in moved}
        before |= {moved[move.name] for move in found}
        moves += found
    return moves


def _moves_by_needs(created: Sequence[Node], by_name: Mapping[str, Node], moved: dict[str, str]) -> list[Move]:
    """The moves of a stage's created jobs that have needs; `moved` has the words of those that moved before."""
    behind: defaultdict[str, list[Node]] = defaultdict(list)
    names = {node.name for node in created}
    held_up = {}
    for node in created:
        # A need may be of the same stage: it moves first, or this one does not move at all.
        here = names.intersection(node.waits_for)
        held_up[node.name] = len(here)
        for need in here:
            behind[need].append(node)
    moves: list[Move] = []
    ready = deque(node for node in created if not held_up[node.name])
    while ready:
        node = ready.popleft()
        needs = [by_name[name] for name in node.waits_for if name in by_name]
        words = {moved.get(need.name) or _word(need.state, allow_failure=need.allow_failure) for need in needs}
        ended = _sum(words, by_stage=False)
        if ended is None:
            continue
        move = Move(node.name, _turn(node, ended))
        moved[node.name] = _word_after(node, move)
        moves.append(move)
        for other in behind[node.name]:
            held_up[other.name] -= 1
            if not held_up[other.name]:
                ready.append(other)
    return moves


def _word_after(node: Node, move: Move) -> str:
    return _word(after(node.state, move.event), allow_failure=node.allow_failure)


def pipeline_state(nodes: Iterable[Node]) -> str:
    """The pipeline's status in GitLab's words, which come in its order."""
    words = frozenset({_word(node.state, allow_failure=node.allow_failure) for node in nodes})
    if words <= _DID_NOT_RUN:
        return _SKIPPED
    if words <= _PASSED:
        return _SUCCESS
    for word in ("created", "preparing"):
        if words <= {word, _WARNED, _IGNORED}:
            return word
    if words <= _PASSED | {_CANCELED}:
        return _CANCELED
    if words <= {"pending", "created", _SKIPPED, _WARNED, _IGNORED}:
        return "pending"
    if "pending" in words:
        return "running"
    order = ("running", "waiting_for_resource", "manual", "scheduled", "preparing")
    found = next((word for word in order if word in words), None)
    if found is None and "created" in words:
        return "running"
    return found or ("canceling" if "canceling" in words else _FAILED)


def retries_left(
    *,
    tries: int,
    retry_max: int,
    retry_when: Sequence[str],
    reason: str,
    retry_exit_codes: Sequence[int] = (),
    exit_code: int | None = None,
) -> bool:
    """Whether a failed job is tried again by its rules, for its reason or its exit code; `tries` counts this one."""
    if tries > retry_max or reason in _NEVER_RETRIED:
        return False
    words = {"always", reason, _WIDER_REASONS.get(reason, reason)}
    return exit_code in retry_exit_codes or not words.isdisjoint(retry_when)


def waits_for_names(prerequisites: Mapping[str, Sequence[str]], name: str) -> tuple[str, ...]:
    """The stored form of what a job waits for."""
    return tuple(sorted(set(prerequisites.get(name, ()))))
