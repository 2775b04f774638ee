"""Full lives of jobs through HTTP (request, running, two traces, success) against what the database does by itself.

The reference is the rate at which PostgreSQL claims rows, each claim committed with fsync, over as many connections at
a time. Both databases take turns, several rounds, because a machine's disk and its neighbours change from minute to
minute: the ratio of one round is worth comparing, a rate alone is not. SQLite allows one process only, so beside it
stands PostgreSQL with one; the cell that is measured against the raw claims has as many as it is given.
`python -m tests.bench.lifecycles`.
"""

import argparse
import asyncio
import time
from collections.abc import Generator
from itertools import count
from pathlib import Path

import msgspec
from tests.bench.http_calls import (
    Answer,
    Caller,
    Calls,
    ServedProcess,
    Show,
    bench_folder,
    call_all,
    new_project,
    new_runner,
    request,
    served,
    shown,
)
from tests.bench.store import raw_claims
from tests.support.servers.postgres_server import PostgresServer

AT_A_TIME = 16
JOBS_OF_ONE = 20
WARM = 400
"""Lives that are not counted: the first ones of a cell take up to a third more, and a cell runs for months."""
INFO = {"name": "bench", "version": "17.9.0", "executor": "shell", "features": {"cancelable": True, "masking": True}}
PIECE = b"the build goes on and on, line after line after line\n" * 20

_numbers = count(1)


class Taken(msgspec.Struct):
    """What is read of a payload."""

    id: int
    token: str


_taken = msgspec.json.Decoder(Taken).decode


def one_life(token: str) -> Generator[bytes, Answer, bool]:
    """One job from request to end; False when there was none."""
    body = msgspec.json.encode({"token": token, "system_id": "s_bench", "info": INFO})
    headers = b"Content-Type: application/json\r\nX-Request-Id: bench-%d\r\n" % next(_numbers)
    asked = yield request(b"POST /api/v4/jobs/request", headers, body)
    if asked.status == 204:
        return False
    assert asked.status == 201, asked
    job = _taken(asked.body)
    key = f"JOB-TOKEN: {job.token}\r\n".encode()
    as_json = key + b"Content-Type: application/json\r\n"
    update, trace = f"PUT /api/v4/jobs/{job.id}".encode(), f"PATCH /api/v4/jobs/{job.id}/trace".encode()

    def state(name: str, **more: object) -> bytes:
        return msgspec.json.encode({"token": job.token, "state": name, **more})

    statuses = [(yield request(update, as_json, state("running"))).status]
    for at in (0, len(PIECE)):
        lines = key + b"Content-Type: text/plain\r\nContent-Range: %d-%d\r\n" % (at, at + len(PIECE) - 1)
        statuses.append((yield request(trace, lines, PIECE)).status)
    ended = yield request(update, as_json, state("success", output={"bytesize": 2 * len(PIECE)}))
    assert [*statuses, ended.status] == [200, 202, 202, 200], ended
    return True


async def prepared(cell: list[ServedProcess], jobs: int) -> str:
    """Have so many jobs wait; the token of a runner that takes them."""
    first = await Caller.connected(cell[0].port)
    project = await new_project(
        first, f"lives{time.monotonic_ns()}", f"job:\n  parallel: {JOBS_OF_ONE}\n  script: make\n"
    )
    for _ in range(jobs // JOBS_OF_ONE - 1):
        await first.api("POST", f"/api/v4/projects/{project}/pipeline", {"ref": "main"})
    token = await new_runner(first)
    first.close()
    return token


def lives(cell: list[ServedProcess], jobs: int) -> float:
    """Lives a second."""
    token = asyncio.run(prepared(cell, jobs))
    done = 0

    def work() -> Calls:
        nonlocal done
        # Another process of the cell may still have the last jobs that this one has not heard of.
        while done < jobs:
            if (yield from one_life(token)):
                done += 1

    began = time.perf_counter()
    call_all((cell[number % len(cell)].port, work()) for number in range(AT_A_TIME))
    return done / (time.perf_counter() - began)


def lifecycles(folder: Path, show: Show, *, rounds: int = 3, jobs: int = 1000, processes: int = 2) -> None:
    """Print the figures of each round, and the range of the ratios."""
    of_raw: list[float] = []
    of_one: list[float] = []
    of_all: list[float] = []
    with (
        PostgresServer() as server,
        server.database() as url,
        server.database() as url_of_one,
        server.database() as other,
        served(folder / "pg", database=url, processes=processes) as postgres,
        served(folder / "pg1", database=url_of_one) as one,
        served(folder / "lite") as sqlite,
    ):
        for cell in (postgres, one, sqlite):
            lives(cell, WARM)
        for number in range(1, rounds + 1):
            raw = asyncio.run(raw_claims(other))
            with_postgres = lives(postgres, jobs)
            with_one = lives(one, jobs)
            with_sqlite = lives(sqlite, jobs)
            of_raw.append(with_postgres / raw)
            of_one.append(with_sqlite / with_one)
            of_all.append(with_sqlite / with_postgres)
            show(f"round {number}: raw claims of PostgreSQL, fsync", f"{raw:.0f}/s", f"{AT_A_TIME} at a time")
            show(f"  lives through HTTP on PostgreSQL, {processes} processes", f"{with_postgres:.0f}/s", "")
            show("    of the raw claims", f"{of_raw[-1]:.3f}", "")
            show("  lives through HTTP on PostgreSQL, one process", f"{with_one:.0f}/s", "")
            show("  lives through HTTP on SQLite, one process", f"{with_sqlite:.0f}/s", "")
            show("    of PostgreSQL with one", f"{of_one[-1]:.2f}", f"{of_all[-1]:.2f} of it with {processes}")
    show("lives on PostgreSQL of raw claims", f"{min(of_raw):.3f} to {max(of_raw):.3f}", "")
    of_more = f"{min(of_all):.2f} to {max(of_all):.2f} of it with {processes}"
    show("lives on SQLite of those on PostgreSQL, one process", f"{min(of_one):.2f} to {max(of_one):.2f}", of_more)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--jobs", type=int, default=1000)
    options.add_argument("--processes", type=int, default=2, help="of the cell on PostgreSQL")
    chosen = options.parse_args()
    with bench_folder() as folder:
        lifecycles(folder, shown, rounds=chosen.rounds, jobs=chosen.jobs, processes=chosen.processes)


if __name__ == "__main__":
    main()
