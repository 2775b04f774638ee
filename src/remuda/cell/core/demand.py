"""How much work there is for which runners, and each manager's share of it.

Decided here: which jobs count as one demand (those that exactly the same runners can take), when a job that is not
ready yet will be, who is there to share, and how a number is shared out. Managers that scale by their share make
together what is needed, and not each of them all of it. Pure; the values come from `remuda.cell.explanations`.

Invariants: shares sum to the whole, or nobody is there to share and the whole is `unserved`; the same situation gives
the same shares; when there is more to share, nobody gets less.
"""

import hashlib
import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from remuda.cell.values import Job, Runner, RunnerManager
from remuda.model.job import JobState
from remuda.model.runner import CapabilityKey, Fingerprint, Pool, lacks
from remuda.wire.demand import Ahead, KeyDemand, Share

PRESENT_SECONDS = 300
"""A manager that was not heard of for so long, and has no job, gets no share."""

NEXT, LATER, HELD = "next", "later", "held"
"""What a job waits for: jobs that are under way, jobs that themselves wait, or nobody knows how long."""
_SHARED = ("ready", NEXT, LATER, HELD)

AHEAD = frozenset(
    {
        JobState.CREATED,
        JobState.WAITING_FOR_RESOURCE,
        JobState.PREPARING,
        JobState.SCHEDULED,
        JobState.MANUAL,
    }
)
"""States of jobs that are not ready yet."""

ManagerId = tuple[int, str]
"""A runner's id and the manager's system id."""


class Need(NamedTuple):
    """What jobs need that count as one demand."""

    tags: tuple[str, ...]
    protected: bool
    pools: tuple[Pool, ...]
    """Their organization, and what else they belong to that some runner serves on purpose."""


def ahead(jobs: Iterable[Job]) -> Counter[tuple[CapabilityKey, str]]:
    """Jobs that are not ready yet, by what they need and wait for. `jobs` are all that are in `AHEAD` states."""
    pipelines: defaultdict[int, list[Job]] = defaultdict(list)
    for job in jobs:
        pipelines[job.pipeline_id].append(job)
    counts: Counter[tuple[CapabilityKey, str]] = Counter()
    for family in pipelines.values():
        for job, word in _words(family):
            counts[job.key(), word] += 1
    return counts


def _words(family: Sequence[Job]) -> Iterator[tuple[Job, str]]:
    """For each job of a pipeline that a runner will get: what it waits for, judging by those right before it."""
    # Nobody waits for a manual job that need not be started.
    blocking = [job for job in family if not (job.state is JobState.MANUAL and job.allow_failure)]
    by_name = {job.name: job for job in blocking}
    created = min((job.stage_index for job in blocking if job.state is JobState.CREATED), default=None)
    held = min((job.stage_index for job in blocking if job.state is not JobState.CREATED), default=None)
    for job in family:
        if job.is_trigger:
            continue
        if job.state is not JobState.CREATED:
            yield job, HELD
        elif job.by_stage:
            is_held = held is not None and held < job.stage_index
            is_later = created is not None and created < job.stage_index
            yield job, HELD if is_held else LATER if is_later else NEXT
        else:
            states = {by_name[name].state for name in job.waits_for if name in by_name}
            yield job, HELD if states - {JobState.CREATED} else LATER if states else NEXT


def demand(
    *,
    ready: Mapping[CapabilityKey, int],
    running: Iterable[Job],
    coming: Mapping[tuple[CapabilityKey, str], int],
    runners: Sequence[Runner],
    managers: Sequence[RunnerManager],
    now: float,
) -> tuple[KeyDemand, ...]:
    """All demand with its shares, in a fixed order."""
    offers: dict[int, Fingerprint] = {runner.id: runner.fingerprint() for runner in runners}
    served = frozenset[Pool]().union(*(offer.pools for offer in offers.values()))
    counts: defaultdict[Need, Counter[str]] = defaultdict(Counter)
    held_by: defaultdict[Need, Counter[ManagerId]] = defaultdict(Counter)
    for key, count in ready.items():
        counts[_need(key, served)]["ready"] += count
    for (key, word), count in coming.items():
        counts[_need(key, served)][word] += count
    for job in running:
        need = _need(job.key(), served)
        counts[need]["running"] += 1
        held_by[need][int(job.runner_id or 0), job.system_id or ""] += 1
    has_jobs = {manager for held in held_by.values() for manager in held}
    present = _present(runners, managers, has_jobs, now)
    return tuple(_of_key(need, counts[need], held_by[need], _weights(need, present, offers)) for need in sorted(counts))


def _need(key: CapabilityKey, served: frozenset[Pool]) -> Need:
    organization, *others = key.pools()
    pools = (organization, *(pool for pool in others if pool in served))
    return Need(tuple(sorted(key.tags)), key.protected, pools)


def _present(
    runners: Sequence[Runner], managers: Sequence[RunnerManager], has_jobs: set[ManagerId], now: float
) -> list[RunnerManager]:
    """Those that could take a job now or soon."""
    paused = {runner.id for runner in runners if runner.paused}
    return [
        manager
        for manager in managers
        if manager.runner_id not in paused
        and (now - manager.contacted_at < PRESENT_SECONDS or (manager.runner_id, manager.system_id) in has_jobs)
    ]


def _weights(need: Need, present: Sequence[RunnerManager], offers: Mapping[int, Fingerprint]) -> dict[ManagerId, int]:
    """The managers that serve a need, by what they can run at a time; one that does not say so counts as the mean."""
    pools, tags = frozenset(need.pools), frozenset(need.tags)
    fitting = {
        runner_id
        for runner_id in {int(manager.runner_id) for manager in present}
        if (offer := offers.get(runner_id)) is not None
        and not offer.pools.isdisjoint(pools)
        and lacks(offer, tags, is_protected=need.protected) is None
    }
    able = [manager for manager in present if manager.runner_id in fitting]
    said = [manager.capacity for manager in able if manager.capacity is not None]
    mean = max(round(sum(said) / len(said)), 1) if said else 1
    return {
        (int(manager.runner_id), manager.system_id): mean if manager.capacity is None else manager.capacity
        for manager in able
    }


def _of_key(
    need: Need, counts: Mapping[str, int], held: Mapping[ManagerId, int], weights: Mapping[ManagerId, int]
) -> KeyDemand:
    shared = {word: shares(counts[word], weights, f"{need}{word}") for word in _SHARED}
    is_served = any(weights.values())
    return KeyDemand(
        tags=need.tags,
        protected=need.protected,
        pools=need.pools,
        running=counts["running"],
        ready=counts["ready"],
        created=Ahead(next=counts[NEXT], later=counts[LATER], held=counts[HELD]),
        unserved=0 if is_served else counts["ready"],
        shares=tuple(
            Share(
                runner_id=manager[0],
                system_id=manager[1],
                running=held.get(manager, 0),
                ready=shared["ready"].get(manager, 0),
                created=Ahead(**{word: shared[word].get(manager, 0) for word in (NEXT, LATER, HELD)}),
            )
            for manager in sorted({*weights, *held})
        ),
    )


def shares(total: int, weights: Mapping[ManagerId, int], seed: str) -> dict[ManagerId, int]:
    """A number in parts, as the weights say; nothing where there is no weight.

    Each gets the whole part of what is due; of the rest one after the other goes to whoever would then still have the
    least for its weight (D'Hondt's rule, by which nobody loses when there is more). Who is first among equals depends
    on the seed, so that it is not always the same one.
    """
    whole = sum(weights.values())
    if not whole:
        return {}
    given = {manager: total * weight // whole for manager, weight in weights.items() if weight}
    line = [(Fraction(given[manager] + 1, weights[manager]), _lot(seed, manager), manager) for manager in given]
    heapq.heapify(line)
    for _ in range(total - sum(given.values())):
        _, lot, manager = line[0]
        given[manager] += 1
        heapq.heapreplace(line, (Fraction(given[manager] + 1, weights[manager]), lot, manager))
    return given


def _lot(seed: str, manager: ManagerId) -> bytes:
    return hashlib.sha256(f"{seed}/{manager[0]}/{manager[1]}".encode()).digest()
