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
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from remuda.model.job import JobId
from remuda.model.runner import CapabilityKey, Fingerprint, Pool, lacks

AGE_STEP_SECONDS = 300.0
AGE_STEPS = 3
"""So much priority a job can gain by waiting: one for each step of time, and no more than this."""

_SPARE = 8
"""How many entries beyond twice what is needed a heap may have before it is made anew."""

_Needs = tuple[frozenset[str], bool]
_Rank = tuple[int, int, JobId]
"""Of a line: minus its first job's priority, how many jobs its project has with runners, and that job's id."""


class Waiting(msgspec.Struct):
    """How a job waits."""

    key: CapabilityKey
    line: "_Line"
    priority: int
    since: float
    level: int
    """Its priority now, with what it gained by waiting."""
    rises_at: float

    @property
    def may_rise(self) -> bool:
        """Whether waiting can still gain it something."""
        return self.level - self.priority < AGE_STEPS


class Place(msgspec.Struct, frozen=True, kw_only=True):
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
    """The waiting jobs of one project in one lane, all with the same key."""

    __slots__ = ("front", "jobs", "key", "lane", "left", "levels", "pools", "rank")

    def __init__(self, key: CapabilityKey, lane: "_Lane") -> None:
        self.key = key
        self.lane = lane
        self.pools = key.pools()
        self.jobs: list[tuple[int, JobId]] = []
        self.front: list[tuple[int, JobId]] = []
        """What comes first in the heap, in order: nothing that is not here comes before the last of these."""
        self.left = 0
        """How many jobs have left since then: so many of the front may be out of date."""
        self.levels: dict[int, set[JobId]] = {}
        """All of them, by their priority now."""
        self.rank: _Rank | None = None

    def __len__(self) -> int:
        return sum(map(len, self.levels.values()))

    def enter(self, job_id: JobId, level: int) -> None:
        self.levels.setdefault(level, set()).add(job_id)

    def push(self, job_id: JobId, level: int) -> None:
        entry = (-level, job_id)
        heapq.heappush(self.jobs, entry)
        if self.front and entry < self.front[-1]:
            insort(self.front, entry)

    def leave(self, job_id: JobId, level: int) -> None:
        self.left += 1
        self.levels[level].discard(job_id)
        if not self.levels[level]:
            del self.levels[level]


class _Tally(msgspec.Struct):
    """Of one project: how many jobs have a higher level than the one asked about, the same, and are older besides."""

    higher: int = 0
    equal: int = 0
    older: int = 0

    def before(self, turns: int) -> int:
        """How many of the same level go before a job that has as many turns of this project before its own."""
        return min(max(turns, 0), self.equal) + (0 <= turns < self.equal and self.older > turns)


class _Lane:
    """All waiting jobs with the same needs."""

    __slots__ = ("firsts", "lines", "needs", "sizes")

    def __init__(self, needs: _Needs) -> None:
        self.needs = needs
        self.lines: dict[tuple[Pool, ...], _Line] = {}
        """By all pools that each is of: a project that is in other groups by now has another line."""
        self.firsts: dict[Pool, list[tuple[_Rank, tuple[Pool, ...]]]] = {}
        """For each pool, a heap of its lines by rank."""
        self.sizes: Counter[Pool] = Counter()
        """How many lines a pool has."""

    def open(self, key: CapabilityKey) -> _Line:
        line = _Line(key, self)
        self.lines[line.pools] = line
        self.sizes.update(line.pools)
        return line

    def close(self, line: _Line) -> None:
        del self.lines[line.pools]
        for pool in line.pools:
            self.sizes[pool] -= 1
            if not self.sizes[pool]:
                del self.sizes[pool], self.firsts[pool]

    def push(self, line: _Line) -> None:
        if line.rank is None:
            return
        for pool in line.pools:
            heap = self.firsts.setdefault(pool, [])
            heapq.heappush(heap, (line.rank, line.pools))
            if len(heap) > 2 * self.sizes[pool] + _SPARE:
                heap[:] = {entry for entry in heap if self._is_current(*entry)}
                heapq.heapify(heap)

    def first(self, pool: Pool) -> _Rank | None:
        heap = self.firsts.get(pool)
        while heap:
            if self._is_current(*heap[0]):
                return heap[0][0]
            heapq.heappop(heap)
        return None

    def _is_current(self, rank: _Rank, pools: tuple[Pool, ...]) -> bool:
        line = self.lines.get(pools)
        return line is not None and line.rank == rank


class WaitingJobs:
    """The pending jobs of a cell, by what they need."""

    def __init__(self, *, is_fair: bool = True) -> None:
        self._is_fair = is_fair
        self._jobs: dict[JobId, Waiting] = {}
        self._lanes: dict[_Needs, _Lane] = {}
        self._lines_of: dict[int, set[_Line]] = {}
        """Where a project has jobs."""
        self._busy: dict[int, int] = {}
        self._rising: list[tuple[float, JobId]] = []
        self._fitting: dict[Fingerprint, list[_Lane]] = {}
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
        line = self._line(key)
        rises_at = since + AGE_STEP_SECONDS
        self._jobs[job_id] = Waiting(key, line, priority, since, priority, rises_at)
        heapq.heappush(self._rising, (rises_at, job_id))
        line.enter(job_id, priority)
        line.push(job_id, priority)
        self._rank(line)

    def _line(self, key: CapabilityKey) -> _Line:
        """Where jobs with this key wait; made where there are none yet."""
        needs = (key.tags, key.protected)
        lane = self._lanes.get(needs)
        if lane is None:
            lane = self._lanes[needs] = _Lane(needs)
            self._fitting.clear()
        line = lane.lines.get(key.pools())
        if line is None:
            line = lane.open(key)
            self._lines_of.setdefault(key.project_id, set()).add(line)
        return line

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
        line = waiting.line
        line.leave(job_id, waiting.level)
        if line.levels:
            self._rank(line)
        else:
            self._close(line)
        return waiting

    def _close(self, line: _Line) -> None:
        lane, project_id = line.lane, line.key.project_id
        lane.close(line)
        self._lines_of[project_id].discard(line)
        if not self._lines_of[project_id]:
            del self._lines_of[project_id]
        if not lane.lines:
            del self._lanes[lane.needs]
            self._fitting.clear()

    def occupy(self, project_id: int, jobs: int) -> None:
        """How many jobs of the project are with runners now."""
        if self._busy.get(project_id, 0) == jobs:
            return
        if jobs:
            self._busy[project_id] = jobs
        else:
            self._busy.pop(project_id, None)
        for line in self._lines_of.get(project_id, ()):
            self._rank(line)

    def how(self, job_id: JobId) -> Waiting | None:
        """How a job waits; None when it does not."""
        return self._jobs.get(job_id)

    def choose(self, fingerprint: Fingerprint, now: float = 0.0) -> JobId | None:
        """The job this runner should get, or None."""
        self._rise(now)
        ranks = (rank for lane in self._lanes_for(fingerprint) for rank in _firsts(lane, fingerprint))
        best = min(ranks, default=None)
        return best[2] if best else None

    def as_good(self, job_id: JobId) -> int:
        """How many jobs wait that are as good as this one, itself included: see `alike`."""
        waiting = self._jobs[job_id]
        return len(waiting.line.levels[waiting.level])

    def alike(self, job_id: JobId, many: int) -> Iterator[JobId]:
        """A job that was chosen and those after it that are as good: of its project, with its needs and its priority.

        The oldest first, at most so many; fewer where much of what is looked at is out of date. Each is looked for when
        it is asked for.
        """
        level, line = self._jobs[job_id].level, self._jobs[job_id].line
        if len(line.front) - line.left < many:
            entries = islice(_in_order(line.jobs), 4 * many)
            line.front, line.left = [entry for entry in entries if self._is_in(line, entry[1], -entry[0])], 0
        found, last = 0, None
        for minus, other in line.front:
            if minus > -level or found == many:
                break
            if other != last and self._is_in(line, other, level):
                found, last = found + 1, other
                yield other

    def _is_in(self, line: _Line, job_id: JobId, level: int) -> bool:
        waiting = self._jobs.get(job_id)
        return waiting is not None and waiting.line is line and waiting.level == level

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
        for line in self._competing(own.line, fingerprints):
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

    def _competing(self, own: _Line, fingerprints: Iterable[Fingerprint]) -> Iterator[_Line]:
        """The lines of all jobs that one of the runners could take, and the job's own."""
        served: dict[_Needs, set[Pool]] = {}
        for fingerprint in set(fingerprints):
            for lane in self._lanes_for(fingerprint):
                served.setdefault(lane.needs, set()).update(fingerprint.pools)
        if not served.get(own.lane.needs):
            served[own.lane.needs] = set(own.pools)
        for needs, pools in served.items():
            for line in self._lanes[needs].lines.values():
                if line is own or not pools.isdisjoint(line.pools):
                    yield line

    def _lanes_for(self, fingerprint: Fingerprint) -> list[_Lane]:
        fitting = self._fitting.get(fingerprint)
        if fitting is None:
            fitting = [
                lane
                for (tags, is_protected), lane in self._lanes.items()
                if lacks(fingerprint, tags, is_protected=is_protected) is None
            ]
            self._fitting[fingerprint] = fitting
        return fitting

    def _rank(self, line: _Line) -> None:
        """Find the first job of a line, and tell its pools if the line's rank has changed."""
        level, job_id = line.jobs[0]
        while not self._is_in(line, job_id, -level):
            heapq.heappop(line.jobs)
            level, job_id = line.jobs[0]
        rank = (level, self._busy.get(line.key.project_id, 0) if self._is_fair else 0, job_id)
        if rank != line.rank:
            line.rank = rank
            line.lane.push(line)

    def _rise(self, now: float) -> None:
        """Let those rise that have waited long enough."""
        while self._rising and self._rising[0][0] <= now:
            due, job_id = heapq.heappop(self._rising)
            waiting = self._jobs.get(job_id)
            if waiting is None or waiting.rises_at != due or not waiting.may_rise:
                continue
            line = waiting.line
            line.leave(job_id, waiting.level)
            waiting.level += 1
            line.enter(job_id, waiting.level)
            waiting.rises_at = due + AGE_STEP_SECONDS
            if waiting.may_rise:
                heapq.heappush(self._rising, (waiting.rises_at, job_id))
            line.push(job_id, waiting.level)
            self._rank(line)


def _in_order(heap: list[tuple[int, JobId]]) -> Iterator[tuple[int, JobId]]:
    """What is in a heap, the smallest first, without taking anything out; the first few cost little."""
    next_ones = [(heap[0], 0)]
    while next_ones:
        entry, at = heapq.heappop(next_ones)
        yield entry
        for child in range(2 * at + 1, min(2 * at + 3, len(heap))):
            heapq.heappush(next_ones, (heap[child], child))


def _firsts(lane: _Lane, fingerprint: Fingerprint) -> Iterator[_Rank]:
    """The first line of each pool of the lane that the runner serves."""
    served = fingerprint.pools
    pools = [pool for pool in lane.firsts if pool in served] if len(lane.firsts) < len(served) else served
    for pool in pools:
        rank = lane.first(pool)
        if rank is not None:
            yield rank
