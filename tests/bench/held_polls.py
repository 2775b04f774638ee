"""Held polls: the time until a job reaches one of a thousand held polls, and the memory of five thousand.

The reference is the time that PostgreSQL alone needs to claim a row, commit it with fsync, and NOTIFY another
connection. A hand-out takes longer: the cell stores the job as pending, then stores the hand-out, and sends the payload
over HTTP. It is measured from the moment at which PostgreSQL commits the pending job (before fsync) to the moment at
which the runner has the answer, once with all polls at the process that enqueues, once with all at another one. The
reference is measured once for every job, so that both see the same load. `python -m tests.bench.held_polls`.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any, Self

import asyncpg
from tests.bench.decisions import percentile
from tests.bench.http_calls import (
    Answer,
    Caller,
    CellAddress,
    Show,
    memory_of,
    new_project,
    new_runner,
    print_figure,
    serve_cell,
)
from tests.support.servers.postgres_server import PostgresServer

from remuda.lib.descriptors import raise_limit

JOBS_PER_PIPELINE = 10
SETTLE_SECONDS = 0.02
"""Pause before the reference is measured, in which the cell completes its work for the last answer."""
HOLD = {"REMUDA_POLL_HOLD_SECONDS": "600"}
_numbers = count(1)


class HeldPolls:
    """Many runners with a held poll at one process, each with its own connection."""

    def __init__(self, group: asyncio.TaskGroup, process: CellAddress, tokens: list[str]) -> None:
        self._group = group
        self._process = process
        self._tokens = tokens
        self._callers: list[Caller] = []
        self._polls: set[asyncio.Task[None]] = set()
        self.answers: asyncio.Queue[tuple[Answer, Caller, float]] = asyncio.Queue()

    async def hold(self, count: int) -> None:
        """Add `count` polls, and return when all are held."""
        for _ in range(count):
            await self._connect()
        await self._wait_until_held(len(self._callers))

    async def _connect(self) -> None:
        caller = await Caller.connect(self._process.port)
        self._callers.append(caller)
        self.start_poll(caller)

    async def _wait_until_held(self, count: int) -> None:
        caller = await Caller.connect(self._process.port)
        while True:
            text = (await caller.call(b"GET /-/metrics", b"")).body
            if f"\nremuda_cell_held_polls {float(count)}\n".encode() in text:
                break
            await asyncio.sleep(0.05)
        caller.close()

    def start_poll(self, caller: Caller) -> None:
        poll = self._group.create_task(self._poll(caller))
        self._polls.add(poll)
        poll.add_done_callback(self._polls.discard)

    async def _poll(self, caller: Caller) -> None:
        number = next(_numbers)
        token = self._tokens[number % len(self._tokens)]
        fields = {"token": token, "system_id": f"s_{number % 50}", "last_update": "0", "hold_seconds": 600}
        body = json.dumps(fields).encode()
        headers = b"Content-Type: application/json\r\nX-Request-Id: held-%d\r\n" % number
        answer = await caller.call(b"POST /api/v4/jobs/request", headers, body)
        await self.answers.put((answer, caller, time.time()))

    def close(self) -> None:
        for poll in self._polls:
            poll.cancel()
        for caller in self._callers:
            caller.close()


class ClaimAndNotify:
    """The reference: claims rows with one connection and receives notifications with another."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._writer = writer
        self._reader = reader
        self._notified = asyncio.Event()
        self._numbers = count()

    @classmethod
    async def start(cls, url: str, samples: int) -> Self:
        """Connect, and create a table with one row for each sample."""
        reference = cls(await asyncpg.connect(url), await asyncpg.connect(url))
        writer = reference._writer
        await writer.execute("DROP TABLE IF EXISTS raw_news; CREATE TABLE raw_news (id bigint PRIMARY KEY, state text)")
        rows = [(number,) for number in range(samples)]
        await writer.executemany("INSERT INTO raw_news VALUES ($1, 'pending')", rows)
        await reference._reader.add_listener("raw_news", lambda *_: reference._notified.set())
        return reference

    async def sample(self) -> float:
        """Seconds from a claim to its notification on the other connection."""
        number = next(self._numbers)
        self._notified.clear()
        began = time.perf_counter()
        async with self._writer.transaction():
            await self._writer.execute("UPDATE raw_news SET state = 'leased' WHERE id = $1 RETURNING id", number)
            await self._writer.execute("SELECT pg_notify('raw_news', $1)", str(number))
        await self._notified.wait()
        return time.perf_counter() - began

    async def close(self) -> None:
        await self._writer.close()
        await self._reader.close()


_PENDING_COMMIT = (
    "SELECT jobs.body, extract(epoch FROM pg_xact_commit_timestamp(pipelines.xmin))::float8"
    " FROM jobs JOIN pipelines ON pipelines.id = jobs.pipeline_id WHERE jobs.id = $1"
)
"""The job, and the commit time of its pipeline's last change: when the job became pending. A hand-out changes only
the job."""


async def measure_hand_outs(
    url: str, other: str, enqueuing: CellAddress, polled: CellAddress, *, held: int, samples: int
) -> tuple[list[float], list[float]]:
    """Seconds from pending to hand-out of each job, with `held` idle polls, and those of the reference."""
    caller = await Caller.connect(enqueuing.port)
    file = f"job:\n  parallel: {JOBS_PER_PIPELINE}\n  when: manual\n  script: make\n"
    project = await new_project(caller, f"held{time.monotonic_ns()}", file)
    for _ in range(samples // JOBS_PER_PIPELINE - 1):
        await caller.api("POST", f"/api/v4/projects/{project}/pipeline", {"ref": "main"})
    jobs: list[int] = []
    for page in range(1, samples // 100 + 2):
        rows = await caller.api("GET", f"/api/v4/projects/{project}/jobs?per_page=100&page={page}")
        jobs += [row["id"] for row in rows]
    tokens = [await new_runner(caller, description=f"r{number}") for number in range(20)]
    database, reference = await asyncpg.connect(url), await ClaimAndNotify.start(other, len(jobs))
    took, raw = [], []
    async with asyncio.TaskGroup() as group:
        polls = HeldPolls(group, polled, tokens)
        await polls.hold(held)
        for job_id in jobs:
            await caller.api("POST", f"/api/v4/projects/{project}/jobs/{job_id}/play")
            answer, runner, arrived_at = await polls.answers.get()
            assert answer.status == 201, answer
            ((body, committed_at),) = await database.fetch(_PENDING_COMMIT, job_id)
            took.append(arrived_at - max(committed_at, json.loads(body)["pending_at"]))
            body = json.dumps({"token": json.loads(answer.body)["token"], "state": "success"}).encode()
            await runner.call(f"PUT /api/v4/jobs/{job_id}".encode(), b"Content-Type: application/json\r\n", body)
            polls.start_poll(runner)
            await asyncio.sleep(SETTLE_SECONDS)
            raw.append(await reference.sample())
        polls.close()
    caller.close()
    await reference.close()
    await database.close()
    return took, raw


def latency(folder: Path, show: Show, *, held: int = 1000, samples: int = 200, rounds: int = 3) -> None:
    """Print the time of a hand-out to a held poll, with the reference of the same round."""
    raise_limit()
    with (
        PostgresServer(track_commit_timestamp="on") as server,
        server.database() as url,
        server.database() as other,
        serve_cell(folder / "held", database=url, processes=2, settings=HOLD) as cell,
    ):
        for number in range(1, rounds + 1):
            for name, process in (("the same", cell[0]), ("another", cell[1])):
                took, raw = asyncio.run(measure_hand_outs(url, other, cell[0], process, held=held, samples=samples))
                for label, ours, theirs in (
                    ("p50", statistics.median(took), statistics.median(raw)),
                    ("p99", percentile(took, 0.99), percentile(raw, 0.99)),
                ):
                    what = f"round {number}: enqueue to hand-out, {held:,} polls at {name} process, {label}"
                    show(what, _ms(ours), f"{ours / theirs:.1f} of a claim and its NOTIFY, {_ms(theirs)}")


def memory(folder: Path, show: Show, *, held: int = 5000) -> None:
    """Print the cell's memory for a held poll."""
    raise_limit()
    with serve_cell(folder / "many", settings=HOLD) as cell:
        per_poll = asyncio.run(_memory(cell[0], held))
    show(f"{held:,} held polls, memory of the cell", f"{per_poll / 1024:.1f} KiB", "a poll, with its connection")


async def _memory(process: CellAddress, held: int) -> float:
    caller = await Caller.connect(process.port)
    tokens = [await new_runner(caller, description=f"r{number}") for number in range(20)]
    async with asyncio.TaskGroup() as group:
        # The first polls allocate what is allocated once.
        polls = HeldPolls(group, process, tokens)
        await polls.hold(100)
        before = memory_of(process.pid)
        await polls.hold(held)
        after = memory_of(process.pid)
        polls.close()
    caller.close()
    return (after - before) / held


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--held", type=int, default=1000)
    options.add_argument("--samples", type=int, default=200)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="remuda-bench-") as folder:
        memory(Path(folder), print_figure)
        latency(Path(folder), print_figure, held=chosen.held, samples=chosen.samples, rounds=chosen.rounds)


if __name__ == "__main__":
    main()
