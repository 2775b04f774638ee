"""Which job next. Pure and in memory: the store stays the truth, and any process can rebuild this from it.

Decided here is the order among the jobs that a runner can take: priority, which grows while a job waits but only by a
few steps; then the project that has the fewest jobs with runners; then age, which is the order of ids, so a job that
comes back keeps its place. The caller claims the chosen job in the store; when it lost the race it drops the job here
and asks again. What a runner can take is decided in `remuda.model.runner`.

A choice costs the same however many jobs wait. Jobs with the same needs are in one *lane*, and in it each project has
a *line* of its jobs. A runner looks only at the first line of each lane that fits it, by the *pools* it serves: its
organization, a group, or projects. Heaps are lazy: what has changed is pushed anew, what is out of date is dropped
when it comes to the top.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from remuda.model.job import JobId
from remuda.model.runner import CapabilityKey, Fingerprint, Pool, lacks

AGE_STEP_SECONDS = 300.0
AGE_STEPS = 3
"""So much priority a job can gain by waiting: one for each step of time, and no more than this."""

_SPARE = 64
"""How many entries beyond twice what is needed a heap may have before it is made anew."""

_Lane = tuple[frozenset[str], bool]
_Rank = tuple[int, int, JobId]
"""Of a line: minus its first job's priority, how many jobs its project has with runners, and that job's id."""


@dataclass(slots=True)
class Waiting:
    """How a job waits."""

    key: CapabilityKey
    priority: int
    since: float
    level: int
    """Its priority now, with what it gained by waiting."""
    rises_at: float

    @property
    def may_rise(self) -> bool:
        """Whether waiting can still gain it something."""
        return self.level - self.priority < AGE_STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a job stands among those that the same runners could take."""

    ahead: int
    """So many would be taken before it, if none came and none ended meanwhile."""
    competing: int
    """How many there are, itself included."""
    level: int
    """Its priority now, with what it gained by waiting."""
    running: int
    """How many jobs of its project are with runners."""


class _Line:
    """The waiting jobs of one project in one lane."""

    __slots__ = ("jobs", "key", "levels", "pools", "rank")

    def __init__(self, key: CapabilityKey) -> None:
        self.key = key
        self.pools = key.pools()
        self.jobs: list[tuple[int, JobId]] = []
        self.levels: dict[int, set[JobId]] = {}
        """All of them, by their priority now."""
        self.rank: _Rank | None = None

    def __len__(self) -> int:
        return sum(map(len, self.levels.values()))

    def enter(self, job_id: JobId, level: int) -> None:
        self.levels.setdefault(level, set()).add(job_id)

    def leave(self, job_id: JobId, level: int) -> None:
        self.levels[level].discard(job_id)
        if not self.levels[level]:
            del self.levels[level]


@dataclass(slots=True)
class _Tally:
    """Of one project: how many jobs have a higher level than the one asked about, the same, and are older besides."""

    higher: int = 0
    equal: int = 0
    older: int = 0

    def before(self, turns: int) -> int:
        """How many of the same level go before a job that has as many turns of this project before its own."""
        return min(max(turns, 0), self.equal) + (0 <= turns < self.equal and self.older > turns)


class _LaneOfJobs:
    """All waiting jobs with the same needs."""

    __slots__ = ("firsts", "lines")

    def __init__(self) -> None:
        self.lines: dict[int, _Line] = {}
        self.firsts: dict[Pool, list[tuple[_Rank, int]]] = {}
        """For each pool, a heap of its lines by rank, as (rank, project)."""

    def push(self, project_id: int, line: _Line) -> None:
        if line.rank is None:
            return
        for pool in line.pools:
            heap = self.firsts.setdefault(pool, [])
            heapq.heappush(heap, (line.rank, project_id))
            if len(heap) > 2 * len(self.lines) + _SPARE:
                current = [(one.rank, of) for of, one in self.lines.items() if one.rank and pool in one.pools]
                heapq.heapify(current)
                self.firsts[pool] = current

    def first(self, pool: Pool) -> _Rank | None:
        heap = self.firsts.get(pool)
        while heap:
            rank, project_id = heap[0]
            line = self.lines.get(project_id)
            if line is not None and line.rank == rank:
                return rank
            heapq.heappop(heap)
        if heap is not None:
            del self.firsts[pool]
        return None


class WaitingJobs:
    """The pending jobs of a cell, by what they need."""

    def __init__(self, *, is_fair: bool = True) -> None:
        self._is_fair = is_fair
        self._jobs: dict[JobId, Waiting] = {}
        self._lanes: dict[_Lane, _LaneOfJobs] = {}
        self._lanes_of: dict[int, set[_Lane]] = {}
        """Where a project has jobs."""
        self._busy: dict[int, int] = {}
        self._rising: list[tuple[float, JobId]] = []
        self._fitting: dict[Fingerprint, list[_LaneOfJobs]] = {}
        """The lanes that fit, looked up once until there are other lanes."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._jobs)

    def __contains__(self, job_id: JobId) -> bool:
        return job_id in self._jobs

    def add(self, job_id: JobId, key: CapabilityKey, *, priority: int = 0, since: float = 0.0) -> None:
        """A job waits for a runner since a time; adding it again changes nothing."""
        if job_id in self._jobs:
            return
        rises_at = since + AGE_STEP_SECONDS
        self._jobs[job_id] = Waiting(key, priority, since, priority, rises_at)
        heapq.heappush(self._rising, (rises_at, job_id))
        at = _lane_of(key)
        if at not in self._lanes:
            self._lanes[at] = _LaneOfJobs()
            self._fitting.clear()
        lane = self._lanes[at]
        line = lane.lines.get(key.project_id)
        if line is None:
            line = lane.lines[key.project_id] = _Line(key)
            self._lanes_of.setdefault(key.project_id, set()).add(at)
        line.enter(job_id, priority)
        heapq.heappush(line.jobs, (-priority, job_id))
        self._rank(lane, key.project_id)

    def put_back(self, job_id: JobId, waiting: Waiting) -> None:
        """The job that was taken waits again, as if nothing had been."""
        self.add(job_id, waiting.key, priority=waiting.priority, since=waiting.since)

    def prioritize(self, job_id: JobId, priority: int) -> None:
        """The job, if it waits, has this priority; it goes on waiting since when it did."""
        waiting = self._jobs.get(job_id)
        if waiting is not None and waiting.priority != priority:
            self.take(job_id)
            self.add(job_id, waiting.key, priority=priority, since=waiting.since)

    def discard(self, job_id: JobId) -> bool:
        """The job waits no longer; whether it did."""
        return self.take(job_id) is not None

    def take(self, job_id: JobId) -> Waiting | None:
        """The job waits no longer; how it waited, None when it did not."""
        waiting = self._jobs.pop(job_id, None)
        if waiting is None:
            return None
        key = waiting.key
        at = _lane_of(key)
        lane = self._lanes[at]
        line = lane.lines[key.project_id]
        line.leave(job_id, waiting.level)
        if line.levels:
            self._rank(lane, key.project_id)
            return waiting
        del lane.lines[key.project_id]
        self._lanes_of[key.project_id].discard(at)
        if not self._lanes_of[key.project_id]:
            del self._lanes_of[key.project_id]
        if not lane.lines:
            del self._lanes[at]
            self._fitting.clear()
        return waiting

    def occupy(self, project_id: int, jobs: int) -> None:
        """How many jobs of the project are with runners now."""
        if self._busy.get(project_id, 0) == jobs:
            return
        if jobs:
            self._busy[project_id] = jobs
        else:
            self._busy.pop(project_id, None)
        for at in self._lanes_of.get(project_id, ()):
            self._rank(self._lanes[at], project_id)

    def choose(self, fingerprint: Fingerprint, now: float = 0.0) -> JobId | None:
        """The job this runner should get, or None."""
        self._rise(now)
        ranks = (rank for lane in self._lanes_for(fingerprint) for rank in _firsts(lane, fingerprint))
        best = min(ranks, default=None)
        return best[2] if best else None

    def waiting(self) -> dict[CapabilityKey, int]:
        """How many jobs wait per key."""
        return {line.key: len(line) for lane in self._lanes.values() for line in lane.lines.values()}

    def place(self, job_id: JobId, fingerprints: Iterable[Fingerprint], now: float = 0.0) -> Place | None:
        """Where a job stands among all that these runners could take, or among its own kind where there are none.

        Looks once at each of those jobs with the same priority. Of a project the n-th job to go finds n jobs more with
        runners than now.
        """
        self._rise(now)
        own = self._jobs.get(job_id)
        if own is None:
            return None
        tallies: dict[int, _Tally] = {}
        competing = 0
        for line in self._competing(own.key, fingerprints):
            tally = tallies.setdefault(line.key.project_id, _Tally())
            competing += len(line)
            equal = line.levels.get(own.level, set())
            tally.higher += sum(len(ids) for level, ids in line.levels.items() if level > own.level)
            tally.equal += len(equal)
            tally.older += sum(map(job_id.__gt__, equal))
        mine = tallies.pop(own.key.project_id)
        running = self._busy.get(own.key.project_id, 0)
        turn = running + mine.higher + mine.older
        ahead = mine.higher + mine.older
        for project_id, tally in tallies.items():
            first = self._busy.get(project_id, 0) + tally.higher
            ahead += tally.higher + (tally.before(turn - first) if self._is_fair else tally.older)
        return Place(ahead=ahead, competing=competing, level=own.level, running=running)

    def _competing(self, key: CapabilityKey, fingerprints: Iterable[Fingerprint]) -> Iterator[_Line]:
        """The lines of all jobs that one of the runners could take, and the job's own."""
        own = self._lanes[_lane_of(key)]
        served: dict[int, set[Pool]] = {id(own): set()}
        for fingerprint in set(fingerprints):
            for lane in self._lanes_for(fingerprint):
                served.setdefault(id(lane), set()).update(fingerprint.pools)
        served[id(own)] = served[id(own)] or set(key.pools())
        for lane in self._lanes.values():
            pools = served.get(id(lane), ())
            for project_id, line in lane.lines.items():
                is_own = lane is own and project_id == key.project_id
                if is_own or (pools and not pools.isdisjoint(line.pools)):
                    yield line

    def _lanes_for(self, fingerprint: Fingerprint) -> list[_LaneOfJobs]:
        fitting = self._fitting.get(fingerprint)
        if fitting is None:
            fitting = [
                lane
                for (tags, is_protected), lane in self._lanes.items()
                if lacks(fingerprint, tags, is_protected=is_protected) is None
            ]
            self._fitting[fingerprint] = fitting
        return fitting

    def _rank(self, lane: _LaneOfJobs, project_id: int) -> None:
        """Find the first job of a line, and tell its pools if the line's rank has changed."""
        line = lane.lines[project_id]
        while line.jobs:
            level, job_id = line.jobs[0]
            waiting = self._jobs.get(job_id)
            if waiting is not None and -waiting.level == level and waiting.key.project_id == project_id:
                break
            heapq.heappop(line.jobs)
        level, job_id = line.jobs[0]
        rank = (level, self._busy.get(project_id, 0) if self._is_fair else 0, job_id)
        if rank != line.rank:
            line.rank = rank
            lane.push(project_id, line)

    def _rise(self, now: float) -> None:
        """Let those rise that have waited long enough."""
        while self._rising and self._rising[0][0] <= now:
            due, job_id = heapq.heappop(self._rising)
            waiting = self._jobs.get(job_id)
            if waiting is None or waiting.rises_at != due or not waiting.may_rise:
                continue
            lane = self._lanes[_lane_of(waiting.key)]
            line = lane.lines[waiting.key.project_id]
            line.leave(job_id, waiting.level)
            waiting.level += 1
            line.enter(job_id, waiting.level)
            waiting.rises_at = due + AGE_STEP_SECONDS
            if waiting.may_rise:
                heapq.heappush(self._rising, (waiting.rises_at, job_id))
            heapq.heappush(line.jobs, (-waiting.level, job_id))
            self._rank(lane, waiting.key.project_id)


def _lane_of(key: CapabilityKey) -> _Lane:
    return key.tags, key.protected


def _firsts(lane: _LaneOfJobs, fingerprint: Fingerprint) -> Iterator[_Rank]:
    """The first line of each pool of the lane that the runner serves."""
    served = fingerprint.pools
    pools = [pool for pool in lane.firsts if pool in served] if len(lane.firsts) < len(served) else served
    for pool in pools:
        rank = lane.first(pool)
        if rank is not None:
            yield rank
