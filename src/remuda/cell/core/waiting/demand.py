"""Computes the demand: how many jobs need which runners, and how these jobs are divided among the runner managers (the
share of each). Managers that create machines for their share create the needed capacity once, not once per manager.
Invariants: the shares sum to the total, unless no manager has capacity for the jobs; then the pending ones are reported
as `unserved`. The same input gives the same shares. If the total grows, no share shrinks."""

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
from remuda.model.runner import CELL_POOL, CapabilityKey, Fingerprint, Pool, lacks
from remuda.wire.demand import Ahead, KeyDemand, Share

NEXT, LATER, HELD = "next", "later", "held"
"""A job waits only for pending or running jobs (next), for a job that is not pending yet (later), or, directly or
through another job, for a person, a time or a resource group (held)."""
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
"""States of jobs that may become pending later."""

HELD_SECONDS = 24 * 3600
"""The jobs of a pipeline that waits for a manual job count for this long after its last change."""

ManagerId = tuple[int, str]
"""A runner's id and the manager's system id."""


class Need(NamedTuple):
    """What jobs require of a runner: tags, protection, whose jobs it serves. Equal needs are counted together."""

    tags: tuple[str, ...]
    protected: bool
    pools: tuple[Pool, ...]
    """The cell, and those organizations, groups and projects of the job that some runner serves."""


def count_coming_jobs(jobs: Iterable[Job]) -> Counter[tuple[CapabilityKey, str]]:
    """Count jobs that are not pending yet, by requirements and by what they wait for: only pending or running jobs
    (`NEXT`), other jobs (`LATER`), or a person, a time or a resource group (`HELD`). `jobs` must contain, of each of
    its pipelines, all jobs that are in `AHEAD` states."""
    pipelines: defaultdict[int, list[Job]] = defaultdict(list)
    for job in jobs:
        pipelines[job.pipeline_id].append(job)
    # Building a key is the slowest part, and most jobs share one.
    alike: Counter[Hashable] = Counter()
    keys: dict[Hashable, tuple[CapabilityKey, str]] = {}
    for family in pipelines.values():
        for job, kind in _wait_kinds(family):
            needs = (job.tags, job.protected, job.project_id, job.group_ids, job.organization_id, job.closed_to, kind)
            alike[needs] += 1
            if needs not in keys:
                keys[needs] = job.key(), kind
    counts: Counter[tuple[CapabilityKey, str]] = Counter()
    for group, count in alike.items():
        counts[keys[group]] += count
    return counts


def _wait_kinds(family: Sequence[Job]) -> Iterator[tuple[Job, str]]:
    """Yield the jobs of a pipeline, except trigger jobs, each with what it waits for: `NEXT` (only pending or running
    jobs), `LATER` (a job that is not pending yet) or `HELD` (a person, a time or a resource group)."""
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
    """Return for each requirement, sorted, how many jobs have it, and the shares of the managers that can run them.
    `ready` counts pending jobs, `running` are those that managers have, `coming` is from `count_coming_jobs`."""
    served = frozenset[Pool]().union(*(runner.pools() for runner in runners))
    counts: defaultdict[Need, Counter[str]] = defaultdict(Counter)
    running_by: defaultdict[Need, Counter[ManagerId]] = defaultdict(Counter)
    for key, count in ready.items():
        counts[need_of(key, served)]["ready"] += count
    for (key, kind), count in coming.items():
        counts[need_of(key, served)][kind] += count
    for job in running:
        need = need_of(job.key(), served)
        counts[need]["running"] += 1
        running_by[need][int(job.runner_id or 0), job.system_id or LEGACY] += 1
    has_jobs = {manager for by_manager in running_by.values() for manager in by_manager}
    present = _present(runners, managers, has_jobs, now)
    return tuple(_of_key(need, counts[need], running_by[need], _weights(need, present)) for need in sorted(counts))


def by_runner(keys: Iterable[KeyDemand]) -> dict[int, tuple[KeyDemand, ...]]:
    """Return the demand by runner id: the jobs that a runner can run, with the shares of its own managers only."""
    demand: defaultdict[int, list[KeyDemand]] = defaultdict(list)
    for key in keys:
        own: defaultdict[int, list[Share]] = defaultdict(list)
        for share in key.shares:
            own[share.runner_id].append(share)
        for runner_id, shares_of_runner in own.items():
            demand[runner_id].append(replace(key, shares=tuple(shares_of_runner)))
    return {runner_id: tuple(keys) for runner_id, keys in demand.items()}


def need_of(key: CapabilityKey, served: frozenset[Pool]) -> Need:
    """Return what a job with this key requires. `served`: the pools that some runner serves."""
    pools = tuple(pool for pool in key.pools() if pool == CELL_POOL or pool in served)
    return Need(tuple(sorted(key.tags)), key.protected, pools)


def _present(
    runners: Sequence[Runner], managers: Sequence[RunnerManager], has_jobs: set[ManagerId], now: float
) -> Mapping[Fingerprint, Mapping[ManagerId, int | None]]:
    """Return the managers that called within `PRESENT_SECONDS` or have jobs, with their capacities. They are grouped by
    fingerprint: what their runner accepts (tags, protection, whose jobs). Managers of paused runners are left out."""
    offers = {runner.id: runner.fingerprint() for runner in runners if not runner.paused}
    present: defaultdict[Fingerprint, dict[ManagerId, int | None]] = defaultdict(dict)
    for manager in managers:
        manager_id = (int(manager.runner_id), manager.system_id)
        offer = offers.get(manager.runner_id)
        if offer is not None and (now - manager.contacted_at < PRESENT_SECONDS or manager_id in has_jobs):
            present[offer][manager_id] = manager.capacity
    return present


def _weights(need: Need, present: Mapping[Fingerprint, Mapping[ManagerId, int | None]]) -> dict[ManagerId, int]:
    """Return the capacity of each manager that can serve a need; if it reports none, the mean of the others or 1."""
    tags = frozenset(need.tags)
    able: dict[ManagerId, int | None] = {}
    for offer, managers in present.items():
        if not offer.pools.isdisjoint(need.pools) and lacks(offer, tags, is_protected=need.protected) is None:
            able |= managers
    capacities = [capacity for capacity in able.values() if capacity is not None]
    mean = max(round(sum(capacities) / len(capacities)), 1) if capacities else 1
    return {manager: mean if capacity is None else capacity for manager, capacity in able.items()}


def _of_key(
    need: Need, counts: Mapping[str, int], running: Mapping[ManagerId, int], weights: Mapping[ManagerId, int]
) -> KeyDemand:
    shared = {kind: shares(counts[kind], weights, f"{need}{kind}") for kind in _SHARED}
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
                running=running.get(manager, 0),
                ready=shared["ready"].get(manager, 0),
                created=Ahead(**{kind: shared[kind].get(manager, 0) for kind in (NEXT, LATER, HELD)}),
            )
            for manager in sorted({*weights, *running})
        ),
    )


def shares(total: int, weights: Mapping[ManagerId, int], seed: str) -> dict[ManagerId, int]:
    """Divide `total` jobs among managers in proportion to `weights`; empty if all weights are 0. Each manager gets the
    integer part of its exact share. The remaining jobs are given out one by one, each to the manager for which (share +
    1) / weight is lowest (D'Hondt's method, so no share shrinks when the total grows). `seed` decides which of equal
    managers comes first, so that it is not always the same one."""
    whole = sum(weights.values())
    if not whole:
        return {}
    parts = {manager: total * weight // whole for manager, weight in weights.items() if weight}
    rest = total - sum(parts.values())
    if not rest:
        return parts
    mix = _number(seed)
    # Numbers of jobs are small enough that different quotients are different floats.
    line = [((parts[manager] + 1) / weights[manager], _lot(manager) ^ mix, manager) for manager in parts]
    heapq.heapify(line)
    for _ in range(rest):
        _, lot, manager = line[0]
        parts[manager] += 1
        heapq.heapreplace(line, ((parts[manager] + 1) / weights[manager], lot, manager))
    return parts


@lru_cache(maxsize=10_000)
def _lot(manager: ManagerId) -> int:
    return _number(f"{manager[0]}/{manager[1]}")


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
