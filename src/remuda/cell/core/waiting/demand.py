"""How much work there is for which runners, and each manager's share of it.

Decided here: which jobs count as one demand (those that exactly the same runners can take), when a job that is not
ready yet will be, who is there to share, and how a number is shared out. Managers that scale by their share make
together what is needed, and not each of them all of it. Pure; the values come from `remuda.cell.dispatch.explanations`.

Invariants: shares sum to the whole, or nobody is there to share and the whole is `unserved`; the same situation gives
the same shares; when there is more to share, nobody gets less.
"""

import hashlib
import heapq
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from remuda.cell.core.waiting.blocking_jobs import is_blocking
from remuda.cell.values import LEGACY, Job, Runner, RunnerManager
from remuda.cell.values.people import PRESENT_SECONDS
from remuda.model.job import JobState
from remuda.model.runner import CapabilityKey, Fingerprint, Pool, lacks
from remuda.wire.demand import Ahead, KeyDemand, Share

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

HELD_SECONDS = 24 * 3600
"""So long after the last time that something happened in it, a pipeline that waits for a person counts."""

ManagerId = tuple[int, str]
"""A runner's id and the manager's system id."""


class Need(NamedTuple):
    """What jobs need that count as one demand."""

    tags: tuple[str, ...]
    protected: bool
    pools: tuple[Pool, ...]
    """Their organization, and what else they belong to that some runner serves on purpose."""


def count_coming_jobs(jobs: Iterable[Job]) -> Counter[tuple[CapabilityKey, str]]:
    """Jobs that are not ready yet, by what they need and wait for. `jobs`: all that pipelines have in `AHEAD`."""
    pipelines: defaultdict[int, list[Job]] = defaultdict(list)
    for job in jobs:
        pipelines[job.pipeline_id].append(job)
    # To make a key takes longer than all the rest, and most jobs have one that others have too.
    alike: Counter[Hashable] = Counter()
    keys: dict[Hashable, tuple[CapabilityKey, str]] = {}
    for family in pipelines.values():
        for job, word in _wait_kinds(family):
            needs = (job.tags, job.protected, job.project_id, job.group_ids, job.organization_id, word)
            alike[needs] += 1
            if needs not in keys:
                keys[needs] = job.key(), word
    counts: Counter[tuple[CapabilityKey, str]] = Counter()
    for kind, count in alike.items():
        counts[keys[kind]] += count
    return counts


def _wait_kinds(family: Sequence[Job]) -> Iterator[tuple[Job, str]]:
    """For each job of a pipeline that a runner will get: what it waits for, judging by those right before it."""
    blocking = [job for job in family if is_blocking(job)]
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


def compute_demand(
    *,
    ready: Mapping[CapabilityKey, int],
    running: Iterable[Job],
    coming: Mapping[tuple[CapabilityKey, str], int],
    runners: Sequence[Runner],
    managers: Sequence[RunnerManager],
    now: float,
) -> tuple[KeyDemand, ...]:
    """All demand with its shares, in a fixed order."""
    served = frozenset[Pool]().union(*(runner.pools() for runner in runners))
    counts: defaultdict[Need, Counter[str]] = defaultdict(Counter)
    held_by: defaultdict[Need, Counter[ManagerId]] = defaultdict(Counter)
    for key, count in ready.items():
        counts[_need(key, served)]["ready"] += count
    for (key, word), count in coming.items():
        counts[_need(key, served)][word] += count
    for job in running:
        need = _need(job.key(), served)
        counts[need]["running"] += 1
        held_by[need][int(job.runner_id or 0), job.system_id or LEGACY] += 1
    has_jobs = {manager for held in held_by.values() for manager in held}
    present = _present(runners, managers, has_jobs, now)
    return tuple(_of_key(need, counts[need], held_by[need], _weights(need, present)) for need in sorted(counts))


def by_runner(keys: Iterable[KeyDemand]) -> dict[int, tuple[KeyDemand, ...]]:
    """What of it each runner is told that has a share: its own managers'."""
    found: defaultdict[int, list[KeyDemand]] = defaultdict(list)
    for key in keys:
        own: defaultdict[int, list[Share]] = defaultdict(list)
        for share in key.shares:
            own[share.runner_id].append(share)
        for runner_id, shares_of_runner in own.items():
            found[runner_id].append(replace(key, shares=tuple(shares_of_runner)))
    return {runner_id: tuple(told) for runner_id, told in found.items()}


def _need(key: CapabilityKey, served: frozenset[Pool]) -> Need:
    organization, *others = key.pools()
    pools = (organization, *(pool for pool in others if pool in served))
    return Need(tuple(sorted(key.tags)), key.protected, pools)


def _present(
    runners: Sequence[Runner], managers: Sequence[RunnerManager], has_jobs: set[ManagerId], now: float
) -> Mapping[Fingerprint, Mapping[ManagerId, int | None]]:
    """Those that could take a job now or soon with their capacities, by what they offer."""
    offers = {runner.id: runner.fingerprint() for runner in runners if not runner.paused}
    present: defaultdict[Fingerprint, dict[ManagerId, int | None]] = defaultdict(dict)
    for manager in managers:
        at = (int(manager.runner_id), manager.system_id)
        offer = offers.get(manager.runner_id)
        if offer is not None and (now - manager.contacted_at < PRESENT_SECONDS or at in has_jobs):
            present[offer][at] = manager.capacity
    return present


def _weights(need: Need, present: Mapping[Fingerprint, Mapping[ManagerId, int | None]]) -> dict[ManagerId, int]:
    """The managers that serve a need, by what they can run at a time; one that does not say so counts as the mean."""
    tags = frozenset(need.tags)
    able: dict[ManagerId, int | None] = {}
    for offer, managers in present.items():
        if not offer.pools.isdisjoint(need.pools) and lacks(offer, tags, is_protected=need.protected) is None:
            able |= managers
    said = [capacity for capacity in able.values() if capacity is not None]
    mean = max(round(sum(said) / len(said)), 1) if said else 1
    return {manager: mean if capacity is None else capacity for manager, capacity in able.items()}


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
    rest = total - sum(given.values())
    if not rest:
        return given
    mix = _number(seed)
    # Numbers of jobs are small enough that no two different quotients become the same float.
    line = [((given[manager] + 1) / weights[manager], _lot(manager) ^ mix, manager) for manager in given]
    heapq.heapify(line)
    for _ in range(rest):
        _, lot, manager = line[0]
        given[manager] += 1
        heapq.heapreplace(line, ((given[manager] + 1) / weights[manager], lot, manager))
    return given


@lru_cache(maxsize=10_000)
def _lot(manager: ManagerId) -> int:
    return _number(f"{manager[0]}/{manager[1]}")


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
