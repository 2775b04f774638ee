"""Requests for a job that are held: how fast a job reaches one of a thousand, and what five thousand cost in memory.

The reference is what PostgreSQL needs by itself for a row to be claimed, committed with fsync, and another connection
to hear of it (NOTIFY). A job takes longer: its turn is stored, then its hand-out, and the whole payload goes over HTTP.
It is measured from the moment at which PostgreSQL commits the job's turn (before that is on the disk) to the moment the
runner has the answer, once with all polls at the process that enqueues, once with all at another one. Beside every job
the reference is taken once, so that both have the same other work on the machine. `python -m tests.bench.held_polls`.
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
from tests.bench.http_calls import Answer, Caller, ServedProcess, Show, new_project, new_runner, resident, served, shown
from tests.support.servers.postgres_server import PostgresServer

from remuda.lib.descriptors import raise_limit

JOBS_OF_ONE = 10
SETTLE_SECONDS = 0.02
"""After which the cell has dealt with the last answer: the reference has only the work of others beside it."""
HOLD = {"REMUDA_POLL_HOLD_SECONDS": "600"}
_numbers = count(1)


class HeldPolls:
    """Many runners that wait at one process, each with a connection of its own."""

    def __init__(self, group: asyncio.TaskGroup, process: ServedProcess, tokens: list[str]) -> None:
        self._group = group
        self._process = process
        self._tokens = tokens
        self._callers: list[Caller] = []
        self._polls: set[asyncio.Task[None]] = set()
        self.answers: asyncio.Queue[tuple[Answer, Caller, float]] = asyncio.Queue()

    async def hold(self, many: int) -> None:
        """Let so many wait, and return when all do."""
        for _ in range(many):
            await self._connect()
        await self.until(len(self._callers))

    async def _connect(self) -> None:
        caller = await Caller.connected(self._process.port)
        self._callers.append(caller)
        self.ask(caller)

    async def until(self, many: int) -> None:
        """Return when so many are held."""
        asking = await Caller.connected(self._process.port)
        while True:
            text = (await asking.call(b"GET /-/metrics", b"")).body
            if f"\nremuda_cell_held_polls {float(many)}\n".encode() in text:
                break
            await asyncio.sleep(0.05)
        asking.close()

    def ask(self, caller: Caller) -> None:
        """Let it wait (again)."""
        poll = self._group.create_task(self._poll(caller))
        self._polls.add(poll)
        poll.add_done_callback(self._polls.discard)

    async def _poll(self, caller: Caller) -> None:
        number = next(_numbers)
        token = self._tokens[number % len(self._tokens)]
        asked = {"token": token, "system_id": f"s_{number % 50}", "last_update": "0", "hold_seconds": 600}
        body = json.dumps(asked).encode()
        headers = b"Content-Type: application/json\r\nX-Request-Id: held-%d\r\n" % number
        answer = await caller.call(b"POST /api/v4/jobs/request", headers, body)
        await self.answers.put((answer, caller, time.time()))

    def close(self) -> None:
        for poll in self._polls:
            poll.cancel()
        for caller in self._callers:
            caller.close()


class ClaimAndNotify:
    """The reference."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._writer = writer
        self._reader = reader
        self._heard = asyncio.Event()
        self._numbers = count()

    @classmethod
    async def begun(cls, url: str, samples: int) -> Self:
        """With a table of so many rows to claim."""
        reference = cls(await asyncpg.connect(url), await asyncpg.connect(url))
        writer = reference._writer
        await writer.execute("DROP TABLE IF EXISTS raw_news; CREATE TABLE raw_news (id bigint PRIMARY KEY, state text)")
        rows = [(number,) for number in range(samples)]
        await writer.executemany("INSERT INTO raw_news VALUES ($1, 'pending')", rows)
        await reference._reader.add_listener("raw_news", lambda *_: reference._heard.set())
        return reference

    async def sample(self) -> float:
        """Seconds from a claim to the news of it on another connection."""
        number = next(self._numbers)
        self._heard.clear()
        began = time.perf_counter()
        async with self._writer.transaction():
            await self._writer.execute("UPDATE raw_news SET state = 'leased' WHERE id = $1 RETURNING id", number)
            await self._writer.execute("SELECT pg_notify('raw_news', $1)", str(number))
        await self._heard.wait()
        return time.perf_counter() - began

    async def close(self) -> None:
        await self._writer.close()
        await self._reader.close()


_TURN = (
    "SELECT jobs.body, extract(epoch FROM pg_xact_commit_timestamp(pipelines.xmin))::float8"
    " FROM jobs JOIN pipelines ON pipelines.id = jobs.pipeline_id WHERE jobs.id = $1"
)
"""The job, and when its pipeline was last changed: with the job's turn, and not by its hand-out."""


async def hand_outs(
    url: str, other: str, at: ServedProcess, polls: ServedProcess, *, held: int, samples: int
) -> tuple[list[float], list[float]]:
    """Seconds from a job's turn to its hand-out, with so many idle polls, and those of the reference."""
    caller = await Caller.connected(at.port)
    file = f"job:\n  parallel: {JOBS_OF_ONE}\n  when: manual\n  script: make\n"
    project = await new_project(caller, f"held{time.monotonic_ns()}", file)
    for _ in range(samples // JOBS_OF_ONE - 1):
        await caller.api("POST", f"/api/v4/projects/{project}/pipeline", {"ref": "main"})
    jobs: list[int] = []
    for page in range(1, samples // 100 + 2):
        found = await caller.api("GET", f"/api/v4/projects/{project}/jobs?per_page=100&page={page}")
        jobs += [job["id"] for job in found]
    tokens = [await new_runner(caller, description=f"r{number}") for number in range(20)]
    database, reference = await asyncpg.connect(url), await ClaimAndNotify.begun(other, len(jobs))
    took, raw = [], []
    async with asyncio.TaskGroup() as group:
        waiting = HeldPolls(group, polls, tokens)
        await waiting.hold(held)
        for job_id in jobs:
            await caller.api("POST", f"/api/v4/projects/{project}/jobs/{job_id}/play")
            answer, runner, arrived_at = await waiting.answers.get()
            assert answer.status == 201, answer
            ((body, committed_at),) = await database.fetch(_TURN, job_id)
            took.append(arrived_at - max(committed_at, json.loads(body)["pending_at"]))
            body = json.dumps({"token": json.loads(answer.body)["token"], "state": "success"}).encode()
            await runner.call(f"PUT /api/v4/jobs/{job_id}".encode(), b"Content-Type: application/json\r\n", body)
            waiting.ask(runner)
            await asyncio.sleep(SETTLE_SECONDS)
            raw.append(await reference.sample())
        waiting.close()
    caller.close()
    await reference.close()
    await database.close()
    return took, raw


def latency(folder: Path, show: Show, *, held: int = 1000, samples: int = 200, rounds: int = 3) -> None:
    """Print how long a job takes to a held poll, with the reference of the same minute."""
    raise_limit()
    with (
        PostgresServer(track_commit_timestamp="on") as server,
        server.database() as url,
        server.database() as other,
        served(folder / "held", database=url, processes=2, settings=HOLD) as cell,
    ):
        for number in range(1, rounds + 1):
            for name, process in (("the same", cell[0]), ("another", cell[1])):
                took, raw = asyncio.run(hand_outs(url, other, cell[0], process, held=held, samples=samples))
                for label, ours, theirs in (
                    ("p50", statistics.median(took), statistics.median(raw)),
                    ("p99", percentile(took, 0.99), percentile(raw, 0.99)),
                ):
                    what = f"round {number}: enqueue to hand-out, {held:,} polls at {name} process, {label}"
                    show(what, _ms(ours), f"{ours / theirs:.1f} of a claim and its NOTIFY, {_ms(theirs)}")


def memory(folder: Path, show: Show, *, held: int = 5000) -> None:
    """Print what a held poll costs the cell."""
    raise_limit()
    with served(folder / "many", settings=HOLD) as cell:
        per_poll = asyncio.run(_memory(cell[0], held))
    show(f"{held:,} held polls, memory of the cell", f"{per_poll / 1024:.1f} KiB", "a poll, with its connection")


async def _memory(process: ServedProcess, held: int) -> float:
    caller = await Caller.connected(process.port)
    tokens = [await new_runner(caller, description=f"r{number}") for number in range(20)]
    async with asyncio.TaskGroup() as group:
        # What is made once is there before the first look.
        waiting = HeldPolls(group, process, tokens)
        await waiting.hold(100)
        before = resident(process.pid)
        await waiting.hold(held)
        after = resident(process.pid)
        waiting.close()
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
        memory(Path(folder), shown)
        latency(Path(folder), shown, held=chosen.held, samples=chosen.samples, rounds=chosen.rounds)


if __name__ == "__main__":
    main()
