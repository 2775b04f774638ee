"""One dispatch decision, at ever more waiting jobs: which job a runner gets, and which held poll a job wakes.

The figures of 1,000 jobs are the reference of the others: a decision must cost the same however many jobs wait. No
store and no network take part. `python -m tests.bench.decisions`.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Sequence

from tests.bench.http_calls import Show, shown

from remuda.cell.dispatch.held_polls import HeldPolls
from remuda.lib.clock import SystemClock, settle
from remuda.model.job import JobId
from remuda.model.runner import CapabilityKey, Fingerprint
from remuda.queue import WaitingJobs

SIZES = (1_000, 10_000, 100_000)
RUNNERS = 1_000
PROJECTS = 200
TAGS = [frozenset(tags) for tags in ((), ("linux",), ("linux", "arm"), ("gpu",), ("windows",), ("macos", "m2"))]
SAMPLES = 3_000


def a_queue(jobs: int, chance: random.Random) -> WaitingJobs:
    """Waiting jobs of many projects and needs; some have a priority."""
    waiting = WaitingJobs()
    for number in range(jobs):
        project = chance.randrange(PROJECTS)
        key = CapabilityKey(tags=chance.choice(TAGS), project_id=project, group_ids=(project % 10,))
        waiting.add(JobId(number), key, priority=chance.choice((0, 0, 0, 5)), since=0.0)
    return waiting


def runners(chance: random.Random) -> list[Fingerprint]:
    """A third serve everybody, a third a group, a third a project each: hardly two of these offer the same."""
    found = []
    for number in range(RUNNERS):
        pool = (("organization", 1), ("group", number % 10), ("project", number % PROJECTS))[number % 3]
        tags = frozenset().union(*chance.sample(TAGS, 3))
        found.append(Fingerprint(tags=tags, pools=frozenset({pool})))
    return found


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def choices(waiting: WaitingJobs, offered: Sequence[Fingerprint]) -> list[float]:
    """Seconds that each decision took: choose a job and take it out. Afterwards it waits again."""
    took = []
    for number in range(SAMPLES):
        began = time.perf_counter()
        job_id = waiting.choose(offered[number % len(offered)], 1.0)
        taken = waiting.take(job_id) if job_id is not None else None
        took.append(time.perf_counter() - began)
        if job_id is not None and taken is not None:
            waiting.put_back(job_id, taken)
    return took


async def wakes(offered: Sequence[Fingerprint], jobs: int) -> list[float]:
    """Seconds from a new job in the queue of a cell to the choice of the held poll that it wakes."""
    waiting = WaitingJobs()
    polls = HeldPolls(waiting, SystemClock())
    gone = asyncio.Event()
    took = []
    async with asyncio.TaskGroup() as group:
        held = [group.create_task(polls.hold(one, 600, gone)) for one in offered]
        await settle()
        assert len(polls) == len(offered)
        # Jobs that no runner here can take stand in the queue all the time.
        for number in range(jobs):
            key = CapabilityKey(tags=frozenset({"nobody"}), project_id=number % PROJECTS)
            waiting.add(JobId(number), key, since=time.time())
        for number in range(200):
            job_id = JobId(jobs + number)
            waiting.add(job_id, CapabilityKey(project_id=number % PROJECTS), since=time.time())
            began = time.perf_counter()
            polls.wake()
            took.append(time.perf_counter() - began)
            waiting.take(job_id)
            await asyncio.sleep(0)
        polls.stop()
        await asyncio.gather(*held)
    return took


def decisions(show: Show) -> None:
    """Print the figures."""
    offered = runners(random.Random(1))
    kinds: dict[str, Callable[[int], list[float]]] = {
        "choose and take": lambda size: choices(a_queue(size, random.Random(2)), offered),
        "wake the right poll": lambda size: asyncio.run(wakes(offered, size)),
    }
    for name, timed in kinds.items():
        reference = 0.0
        for size in SIZES:
            took = timed(size)
            median = statistics.median(took)
            reference = reference or median
            note = f"p99 {percentile(took, 0.99) * 1e6:.0f} us, {median / reference:.2f} of {SIZES[0]:,} jobs"
            show(f"{name}, {size:,} jobs x {RUNNERS:,} runners", f"{median * 1e6:.0f} us", note)


if __name__ == "__main__":
    decisions(shown)
