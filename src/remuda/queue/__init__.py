"""Queue of waiting jobs in memory: decides which job a runner gets next. Pure; any process can rebuild it.

Order: priority, which grows while a job waits; then the project with the fewest assigned jobs; then age (order of ids).
The caller removes the chosen job from the queue and assigns it to the runner in the store; if that fails, it puts back
a job that may still be pending, and chooses again. Jobs with the same tags and protection form a *lane*; in it, the
jobs of each project form a *line*. A runner serves *pools* (an organization, a group, projects). In each lane that fits
the runner, only the best line of each of its pools is compared, so the cost does not depend on the number of jobs.
Heaps are lazy: outdated entries are dropped when they come to the top."""

import heapq
import math
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from remuda.model.job import JobId
from remuda.model.runner import CapabilityKey, Fingerprint, Pool, lacks

AGE_STEP_SECONDS = 300.0
AGE_STEPS = 3
"""Maximum priority that a job gains by waiting, one for each step of time."""

_SPARE = 8
"""A heap is rebuilt when it has this many entries more than twice the needed ones."""

_Needs = tuple[frozenset[str], bool]
_Rank = tuple[int, int, JobId]
"""Rank of a line: the negative priority of its first job, the assigned jobs of its project, the id of the first job."""


class Waiting(msgspec.Struct):
    """Entry of a waiting job in the queue: its capability key (what it needs), priority and waiting time."""

    key: CapabilityKey
    line: "_Line"
    priority: int
    since: float
    level: int
    """Its priority, plus the increase for the time that it has waited."""
    rises_at: float

    @property
    def may_rise(self) -> bool:
        """True if the job's level (priority, plus an increase for waiting) can still grow."""
        return self.level - self.priority < AGE_STEPS


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Position of a waiting job among all jobs that the same runners can take, and the numbers that decide it."""

    ahead: int
    """Number of jobs that would be handed out before it, if none were added and none ended."""
    competing: int
    """Number of jobs that the same runners can take, itself included."""
    level: int
    """Its priority, plus the increase for the time that it has waited."""
    running: int
    """Number of assigned jobs of its project."""


class LineSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The waiting jobs with one capability key."""

    key: CapabilityKey
    waiting: int
    oldest_since: float


class _Line:
    """The waiting jobs of one project with the same needs (tags, protection): a heap, and all jobs by level."""

    __slots__ = ("departed", "front", "jobs", "key", "lane", "levels", "pools", "rank")

    def __init__(self, key: CapabilityKey, lane: "_Lane") -> None:
        self.key = key
        self.lane = lane
        self.pools = key.pools()
        self.jobs: list[tuple[int, JobId]] = []
        self.front: list[tuple[int, JobId]] = []
        """The first entries of the heap, sorted and without gaps."""
        self.departed = 0
        """Number of jobs that left since `front` was built; an upper bound for its outdated entries."""
        self.levels: dict[int, set[JobId]] = {}
        """All jobs of the line, by level."""
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
        self.departed += 1
        self.levels[level].discard(job_id)
        if not self.levels[level]:
            del self.levels[level]


class _Tally(msgspec.Struct):
    """Counts of one project's waiting jobs, in comparison with a given job: how many have a higher level (priority,
    plus an increase for waiting), how many have the same level, and how many of the latter are older."""

    higher: int = 0
    equal: int = 0
    older: int = 0

    def before(self, turns: int) -> int:
        """Number of this project's jobs of the same level that get a runner before the given job: the project with
        fewer assigned jobs is first, then the older job. `turns`: how many more assigned jobs than this one the given
        job's project has, once all jobs of higher level and its own older ones are assigned."""
        return min(max(turns, 0), self.equal) + (0 <= turns < self.equal and self.older > turns)


class _Lane:
    """All waiting jobs with the same needs (tags and protection), grouped by project: each group is a `_Line`."""

    __slots__ = ("firsts", "lines", "needs", "sizes")

    def __init__(self, needs: _Needs) -> None:
        self.needs = needs
        self.lines: dict[tuple[Pool, ...], _Line] = {}
        """By pools. A project that was moved to another group gets a new line."""
        self.firsts: dict[Pool, list[tuple[_Rank, tuple[Pool, ...]]]] = {}
        """For each pool, a heap of its lines by rank."""
        self.sizes: Counter[Pool] = Counter()
        """Number of lines of each pool."""

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
    """The queue of the pending jobs of a cell. `is_fair`: among jobs of equal priority, prefer those of projects with
    few assigned jobs."""

    def __init__(self, *, is_fair: bool = True) -> None:
        self._is_fair = is_fair
        self._jobs: dict[JobId, Waiting] = {}
        self._lanes: dict[_Needs, _Lane] = {}
        self._lines_of: dict[int, set[_Line]] = {}
        """Lines of each project."""
        self._busy: dict[int, int] = {}
        self._rising: list[tuple[float, JobId]] = []
        self._fitting: dict[Fingerprint, list[_Lane]] = {}
        """Cache of the lanes that fit; cleared when lanes are added or removed."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._jobs)

    def __contains__(self, job_id: JobId) -> bool:
        return job_id in self._jobs

    def add(self, job_id: JobId, key: CapabilityKey, *, priority: int = 0, since: float = 0.0) -> None:
        """Add a job that has waited since the time `since`. A job that is in the queue already is not changed."""
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
        """Add a job again that `take` removed, with its old priority and age. `waiting`: what `take` returned."""
        self.add(job_id, waiting.key, priority=waiting.priority, since=waiting.since)

    def prioritize(self, job_id: JobId, priority: int) -> None:
        """Change the priority of a waiting job. It keeps its waiting time."""
        waiting = self._jobs.get(job_id)
        if waiting is not None and waiting.priority != priority:
            self.take(job_id)
            self.add(job_id, waiting.key, priority=priority, since=waiting.since)

    def discard(self, job_id: JobId) -> bool:
        return self.take(job_id) is not None

    def take(self, job_id: JobId) -> Waiting | None:
        """Remove a job from the queue and return its entry, for `put_back`; None if it was not in the queue."""
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
        """Set the number of a project's jobs that are assigned to runners: projects with fewer of them come first."""
        if self._busy.get(project_id, 0) == jobs:
            return
        if jobs:
            self._busy[project_id] = jobs
        else:
            self._busy.pop(project_id, None)
        for line in self._lines_of.get(project_id, ()):
            self._rank(line)

    def how(self, job_id: JobId) -> Waiting | None:
        """Return the entry of a job, which stays in the queue; None if it is not there."""
        return self._jobs.get(job_id)

    def choose(self, fingerprint: Fingerprint, now: float = 0.0) -> JobId | None:
        """The job that a runner with this fingerprint (tags, projects) should get next, still in the queue; or None."""
        self._rise(now)
        ranks = (rank for lane in self._lanes_for(fingerprint) for rank in _firsts(lane, fingerprint))
        best = min(ranks, default=None)
        return best[2] if best else None

    def as_good(self, job_id: JobId) -> int:
        """Number of jobs a runner could get instead of this one, itself included: same project, needs and level."""
        waiting = self._jobs[job_id]
        return len(waiting.line.levels[waiting.level])

    def alike(self, job_id: JobId, many: int) -> Iterator[JobId]:
        """Yield the jobs that a runner could get instead of this one (same project, needs and level), itself included:
        the oldest first, at most `many`; fewer if many of the `4 * many` heap entries read are outdated."""
        level, line = self._jobs[job_id].level, self._jobs[job_id].line
        if len(line.front) - line.departed < many:
            entries = islice(_in_order(line.jobs), 4 * many)
            line.front = [entry for entry in entries if self._is_in(line, entry[1], -entry[0])]
            line.departed = 0
        count, last = 0, None
        for minus, other in line.front:
            if minus > -level or count == many:
                break
            if other != last and self._is_in(line, other, level):
                count, last = count + 1, other
                yield other

    def _is_in(self, line: _Line, job_id: JobId, level: int) -> bool:
        waiting = self._jobs.get(job_id)
        return waiting is not None and waiting.line is line and waiting.level == level

    def count_by_key(self) -> dict[CapabilityKey, int]:
        return {line.key: len(line) for lane in self._lanes.values() for line in lane.lines.values()}

    def entries(self) -> list[Waiting]:
        """Return the entries of all waiting jobs, for `summarize_lines`, which may run in another thread."""
        return list(self._jobs.values())

    def upcoming(self, keys: Iterable[CapabilityKey]) -> Iterator[JobId]:
        """Yield the waiting jobs with these keys in the order in which one runner that takes no others would get them,
        if none were added and no assigned job ended. The cost grows with the jobs taken only. The queue must not change
        meanwhile."""
        lanes = [(key, self._lanes.get((key.tags, key.protected))) for key in keys]
        lines = [line for key, lane in lanes if lane and (line := lane.lines.get(key.pools()))]
        busy = {line.key.project_id: self._busy.get(line.key.project_id, 0) for line in lines}
        orders = [self._current_jobs(line) for line in lines]
        heap: list[tuple[_Rank, int]] = []

        def push(index: int, first: tuple[int, JobId]) -> None:
            project_id = lines[index].key.project_id
            heapq.heappush(heap, ((first[0], busy[project_id] if self._is_fair else 0, first[1]), index))

        for index, order in enumerate(orders):
            if first := next(order, None):
                push(index, first)
        while heap:
            (minus, jobs, job_id), index = heapq.heappop(heap)
            if self._is_fair and jobs != busy[lines[index].key.project_id]:
                push(index, (minus, job_id))
                continue
            yield job_id
            busy[lines[index].key.project_id] += 1
            if following := next(orders[index], None):
                push(index, following)

    def _current_jobs(self, line: _Line) -> Iterator[tuple[int, JobId]]:
        """Yield the jobs of a line in order, each with its negative level. Outdated heap entries are left out."""
        last = None
        for minus, job_id in _in_order(line.jobs):
            if job_id != last and self._is_in(line, job_id, -minus):
                last = job_id
                yield minus, job_id

    def place(self, job_id: JobId, fingerprints: Iterable[Fingerprint], now: float = 0.0) -> Place | None:
        """Return the position of a job among all jobs that these runners can take; None if it is not in the queue. If
        no runner fits its tags and protection, the jobs of its organization with the same needs are counted as
        competing, too. Assumes that assigned jobs do not end. Visits each job of the same level once."""
        self._rise(now)
        own = self._jobs.get(job_id)
        if own is None:
            return None
        tallies: dict[int, _Tally] = {}
        competing = 0
        for line in self._lines_in_competition(own.line, fingerprints):
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

    def _lines_in_competition(self, own: _Line, fingerprints: Iterable[Fingerprint]) -> Iterator[_Line]:
        """Yield the lines (a project's jobs with equal needs) that one of the runners can take, and `own`, that of the
        compared job. If no runner fits its tags and protection, also those of its organization with equal needs."""
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
        """Compute the rank of a line (a project's jobs with equal needs) for `choose`: level and id of its first job,
        number of assigned jobs. If changed, adds it to the heaps of the pools (organization, groups, project)."""
        level, job_id = line.jobs[0]
        while not self._is_in(line, job_id, -level):
            heapq.heappop(line.jobs)
            level, job_id = line.jobs[0]
        rank = (level, self._busy.get(line.key.project_id, 0) if self._is_fair else 0, job_id)
        if rank != line.rank:
            line.rank = rank
            line.lane.push(line)

    def _rise(self, now: float) -> None:
        """Raise the level (priority plus waiting) of jobs that have waited for another `AGE_STEP_SECONDS`."""
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


def summarize_lines(entries: Iterable[Waiting]) -> list[LineSummary]:
    """Return waiting jobs by capability key: how many, and since when the oldest has waited. Visits each job once."""
    counts: Counter[_Line] = Counter()
    oldest: dict[_Line, float] = {}
    for waiting in entries:
        line = waiting.line
        counts[line] += 1
        if waiting.since < oldest.get(line, math.inf):
            oldest[line] = waiting.since
    return [LineSummary(key=line.key, waiting=count, oldest_since=oldest[line]) for line, count in counts.items()]


def _in_order(heap: list[tuple[int, JobId]]) -> Iterator[tuple[int, JobId]]:
    """Yield the entries of a heap in order, without changing the heap. The cost grows with the entries taken only."""
    candidates = [(heap[0], 0)]
    while candidates:
        entry, index = heapq.heappop(candidates)
        yield entry
        for child in range(2 * index + 1, min(2 * index + 3, len(heap))):
            heapq.heappush(candidates, (heap[child], child))


def _firsts(lane: _Lane, fingerprint: Fingerprint) -> Iterator[_Rank]:
    """Yield the rank of the best line in the lane for each pool (organization, group, project) of the runner."""
    served = fingerprint.pools
    pools = [pool for pool in lane.firsts if pool in served] if len(lane.firsts) < len(served) else served
    for pool in pools:
        rank = lane.first(pool)
        if rank is not None:
            yield rank
