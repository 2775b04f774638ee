"""Computes what a pipeline does next: which jobs are enqueued, skipped or wait, and the status of the pipeline. Pure.

It takes the newest try of each job as a `Node` and returns events, which the cell stores with the change that caused
them. Rules work on *words* (GitLab's composite statuses): the state of a job, but `warned` for an allowed failure or
cancellation and `ignored` for an optional manual job. Precedence is GitLab's. Invariant: time is linear in jobs plus
needs. The compiler ensures that a need is of the same or an earlier stage."""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from remuda.model.job import FailureReason, JobEvent, JobState, after


class When(StrEnum):
    """Values of the keyword `when` of a job: under which condition the job is started."""

    ON_SUCCESS = "on_success"
    ON_FAILURE = "on_failure"
    ALWAYS = "always"
    MANUAL = "manual"
    DELAYED = "delayed"


OVER = frozenset({"success", "failed", "canceled", "skipped"})
"""Status of pipelines that have ended. Only a user can make them run again."""


class Counted(Protocol):
    """The fields of a job, or of an external status, from which the status of its pipeline is computed."""

    @property
    def state(self) -> JobState: ...
    @property
    def allow_failure(self) -> bool: ...


class Node(Protocol):
    """The fields of a job from which the next events and the status of its pipeline are computed."""

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
        """True if the job has no `needs`, so it waits for all jobs of earlier stages."""
        ...

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Names of the jobs that the job waits for (`needs`); only used if `by_stage` is false."""
        ...


@dataclass(frozen=True, slots=True)
class Move:
    """An event that is due for the job `name`; the caller applies it to the job."""

    name: str
    event: JobEvent


_WARNED = "warned"
_IGNORED = "ignored"
_SUCCESS, _FAILED, _CANCELED, _SKIPPED = "success", "failed", "canceled", "skipped"

_CREATED = JobState.CREATED

_WORDS = {state: state.value for state in JobState} | {
    JobState.LEASED: JobState.RUNNING.value  # users see no difference
}
_WORDS_IF_ALLOWED = _WORDS | {
    JobState.FAILED: _WARNED,
    JobState.CANCELED: _WARNED,
    JobState.MANUAL: _IGNORED,
}
OPEN = frozenset(_WORDS.values()) - OVER
"""Status of pipelines that have not ended."""
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
"""The wider reason by which `retry:when` also selects a failure."""

_NEVER_RETRIED = frozenset({FailureReason.MISSING_DEPENDENCY_FAILURE.value})
"""Reasons for which a retry would fail again."""


def _word(state: JobState, *, allow_failure: bool) -> str:
    return (_WORDS_IF_ALLOWED if allow_failure else _WORDS)[state]


def _sum(words: Collection[str], *, by_stage: bool) -> str | None:
    """Combined result of the jobs that a job waits for (`words`: their statuses); None while they have not all ended.
    With `needs`, one job that did not run makes the result `skipped`, because its artifacts are missing. With
    `by_stage`, jobs that did not run are ignored, unless no job ran."""
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
    """The event for a created job after the jobs that it waited for have ended with the combined result `ended`."""
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
    """Return all events due for a pipeline's jobs, also those that follow from others (skipping may cause skipping)."""
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
        due = [] if ended is None else [Move(node.name, _turn(node, ended)) for node in created if node.by_stage]
        for move in due:
            moved[move.name] = _word_after(by_name[move.name], move)
        due += _moves_by_needs([node for node in created if not node.by_stage], by_name, moved)
        before |= {_word(node.state, allow_failure=node.allow_failure) for node in stage if node.name not in moved}
        before |= {moved[move.name] for move in due}
        moves += due
    return moves


def _moves_by_needs(created: Sequence[Node], by_name: Mapping[str, Node], moved: dict[str, str]) -> list[Move]:
    """Return the due events of `created`, the created jobs of a stage that have `needs`. `by_name`: all jobs. `moved`:
    statuses by job name after the events found so far; those of the returned events are added."""
    behind: defaultdict[str, list[Node]] = defaultdict(list)
    names = {node.name for node in created}
    blockers = {}
    for node in created:
        # A need of the same stage must move first.
        here = names.intersection(node.waits_for)
        blockers[node.name] = len(here)
        for need in here:
            behind[need].append(node)
    moves: list[Move] = []
    ready = deque(node for node in created if not blockers[node.name])
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
            blockers[other.name] -= 1
            if not blockers[other.name]:
                ready.append(other)
    return moves


def _word_after(node: Node, move: Move) -> str:
    return _word(after(node.state, move.event), allow_failure=node.allow_failure)


def pipeline_state(nodes: Iterable[Counted]) -> str:
    """The status of a pipeline from the states of its jobs, by GitLab's rules of precedence."""
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
    status = next((word for word in order if word in words), None)
    if status is None and "created" in words:
        return "running"
    return status or ("canceling" if "canceling" in words else _FAILED)


def retries_left(
    *,
    tries: int,
    retry_max: int,
    retry_when: Sequence[str],
    reason: str,
    retry_exit_codes: Sequence[int] = (),
    exit_code: int | None = None,
) -> bool:
    """True if a failed job should be retried by its `retry`: fewer than `retry_max` retries were made, the reason (or
    `always`) or exit code is listed, and a retry can help. `tries` includes the failed one."""
    if tries > retry_max or reason in _NEVER_RETRIED:
        return False
    words = {"always", reason, _WIDER_REASONS.get(reason, reason)}
    return exit_code in retry_exit_codes or not words.isdisjoint(retry_when)


def waits_for_names(prerequisites: Mapping[str, Sequence[str]], name: str) -> tuple[str, ...]:
    """Sorted names of the jobs that the job `name` waits for. `prerequisites`: for every job of the pipeline the jobs
    that it waits for, as stored with the pipeline."""
    return tuple(sorted(set(prerequisites.get(name, ()))))
