"""The cost of a dispatch decision with 1,000 to 100,000 waiting jobs: which job a runner gets, which poll a job wakes.

The figures for 1,000 jobs are the reference of the others: a decision must cost the same however many jobs wait. Store
and network are not involved. `python -m tests.bench.decisions`.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Sequence

from tests.bench.http_calls import Show, print_figure

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
    """Waiting jobs with various projects and tags; some have a priority."""
    waiting = WaitingJobs()
    for number in range(jobs):
        project = chance.randrange(PROJECTS)
        key = CapabilityKey(tags=chance.choice(TAGS), project_id=project, group_ids=(project % 10,))
        waiting.add(JobId(number), key, priority=chance.choice((0, 0, 0, 5)), since=0.0)
    return waiting


def make_fingerprints(chance: random.Random) -> list[Fingerprint]:
    """Fingerprints of runners: a third serve all projects, a third a group, a third a project. Few are equal."""
    fingerprints = []
    for number in range(RUNNERS):
        pool = (("cell", 0), ("group", number % 10), ("project", number % PROJECTS))[number % 3]
        tags = frozenset().union(*chance.sample(TAGS, 3))
        fingerprints.append(Fingerprint(tags=tags, pools=frozenset({pool})))
    return fingerprints


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def measure_choices(waiting: WaitingJobs, fingerprints: Sequence[Fingerprint]) -> list[float]:
    """Seconds of each decision: choose a job and remove it from the queue. Afterwards it is put back."""
    took = []
    for number in range(SAMPLES):
        began = time.perf_counter()
        job_id = waiting.choose(fingerprints[number % len(fingerprints)], 1.0)
        taken = waiting.take(job_id) if job_id is not None else None
        took.append(time.perf_counter() - began)
        if job_id is not None and taken is not None:
            waiting.put_back(job_id, taken)
    return took


async def measure_wakes(fingerprints: Sequence[Fingerprint], jobs: int) -> list[float]:
    """Seconds of each choice of the held poll that a new job wakes."""
    waiting = WaitingJobs()
    polls = HeldPolls(waiting, SystemClock())
    disconnected = asyncio.Event()
    took = []
    async with asyncio.TaskGroup() as group:
        held = [group.create_task(polls.hold(fingerprint, 600, disconnected)) for fingerprint in fingerprints]
        await settle()
        assert len(polls) == len(fingerprints)
        # Jobs that no runner can take stay in the queue all the time.
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
    fingerprints = make_fingerprints(random.Random(1))
    kinds: dict[str, Callable[[int], list[float]]] = {
        "choose and take": lambda size: measure_choices(a_queue(size, random.Random(2)), fingerprints),
        "wake the right poll": lambda size: asyncio.run(measure_wakes(fingerprints, size)),
    }
    for name, measure in kinds.items():
        reference = 0.0
        for size in SIZES:
            took = measure(size)
            median = statistics.median(took)
            reference = reference or median
            note = f"p99 {percentile(took, 0.99) * 1e6:.0f} us, {median / reference:.2f} of {SIZES[0]:,} jobs"
            show(f"{name}, {size:,} jobs x {RUNNERS:,} runners", f"{median * 1e6:.0f} us", note)


if __name__ == "__main__":
    decisions(print_figure)
