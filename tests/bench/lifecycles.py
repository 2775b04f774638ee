"""Complete job lifecycles over HTTP (request, running, two traces, success) compared with the database alone.

The reference is the rate at which PostgreSQL claims rows, each claim committed with fsync, over the same number of
connections. Both databases are measured in turns, in several rounds, because the speed of a disk changes from minute to
minute: compare ratios of one round, not rates. SQLite allows only one process, so it is compared with PostgreSQL with
one process; the cell that is compared with the raw claims has as many processes as `--processes` says.
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
    CellAddress,
    Show,
    bench_folder,
    call_all,
    new_project,
    new_runner,
    print_figure,
    request,
    serve_cell,
)
from tests.bench.store import raw_claims
from tests.support.servers.postgres_server import PostgresServer

AT_A_TIME = 16
JOBS_PER_PIPELINE = 20
WARM_UP_JOBS = 400
"""Lifecycles that are not counted: the first ones of a cell take up to a third longer."""
INFO = {"name": "bench", "version": "17.9.0", "executor": "shell", "features": {"cancelable": True, "masking": True}}
PIECE = b"the build goes on and on, line after line after line\n" * 20

_numbers = count(1)


class Payload(msgspec.Struct):
    """The decoded part of a job's payload."""

    id: int
    token: str


_decode_payload = msgspec.json.Decoder(Payload).decode


def run_job(token: str) -> Generator[bytes, Answer, bool]:
    """Requests of a job from its hand-out to its end. Returns False if no job was available."""
    body = msgspec.json.encode({"token": token, "system_id": "s_bench", "info": INFO})
    headers = b"Content-Type: application/json\r\nX-Request-Id: bench-%d\r\n" % next(_numbers)
    answer = yield request(b"POST /api/v4/jobs/request", headers, body)
    if answer.status == 204:
        return False
    assert answer.status == 201, answer
    job = _decode_payload(answer.body)
    key = f"JOB-TOKEN: {job.token}\r\n".encode()
    as_json = key + b"Content-Type: application/json\r\n"
    update = f"PUT /api/v4/jobs/{job.id}".encode()
    trace = f"PATCH /api/v4/jobs/{job.id}/trace?debug_trace=false".encode()

    def state(name: str, **more: object) -> bytes:
        return msgspec.json.encode({"token": job.token, "state": name, **more})

    statuses = [(yield request(update, as_json, state("running"))).status]
    for start in (0, len(PIECE)):
        headers = key + b"Content-Type: text/plain\r\nContent-Range: %d-%d\r\n" % (start, start + len(PIECE) - 1)
        statuses.append((yield request(trace, headers, PIECE)).status)
    last = yield request(update, as_json, state("success", output={"bytesize": 2 * len(PIECE)}))
    assert [*statuses, last.status] == [200, 202, 202, 200], last
    return True


async def enqueue(cell: list[CellAddress], jobs: int) -> str:
    """Enqueue so many jobs. Returns the token of a runner that can take them."""
    caller = await Caller.connect(cell[0].port)
    project = await new_project(
        caller, f"lives{time.monotonic_ns()}", f"job:\n  parallel: {JOBS_PER_PIPELINE}\n  script: make\n"
    )
    for _ in range(jobs // JOBS_PER_PIPELINE - 1):
        await caller.api("POST", f"/api/v4/projects/{project}/pipeline", {"ref": "main"})
    token = await new_runner(caller)
    caller.close()
    return token


def measure_lifecycles(cell: list[CellAddress], jobs: int) -> float:
    """Lifecycles a second."""
    token = asyncio.run(enqueue(cell, jobs))
    done = 0

    def work() -> Calls:
        nonlocal done
        # This process of the cell may not know the last jobs yet, which another process has enqueued.
        while done < jobs:
            if (yield from run_job(token)):
                done += 1

    began = time.perf_counter()
    call_all((cell[number % len(cell)].port, work()) for number in range(AT_A_TIME))
    return done / (time.perf_counter() - began)


def lifecycles(folder: Path, show: Show, *, rounds: int = 3, jobs: int = 1000, processes: int = 2) -> None:
    """Print the figures of each round, and the range of the ratios."""
    postgres_of_raw: list[float] = []
    sqlite_of_one: list[float] = []
    sqlite_of_all: list[float] = []
    with (
        PostgresServer() as server,
        server.database() as url,
        server.database() as single_url,
        server.database() as other,
        serve_cell(folder / "pg", database=url, processes=processes) as postgres,
        serve_cell(folder / "pg1", database=single_url) as single_postgres,
        serve_cell(folder / "lite") as sqlite,
    ):
        for cell in (postgres, single_postgres, sqlite):
            measure_lifecycles(cell, WARM_UP_JOBS)
        for number in range(1, rounds + 1):
            raw = asyncio.run(raw_claims(other))
            with_postgres = measure_lifecycles(postgres, jobs)
            with_one = measure_lifecycles(single_postgres, jobs)
            with_sqlite = measure_lifecycles(sqlite, jobs)
            postgres_of_raw.append(with_postgres / raw)
            sqlite_of_one.append(with_sqlite / with_one)
            sqlite_of_all.append(with_sqlite / with_postgres)
            show(f"round {number}: raw claims of PostgreSQL, fsync", f"{raw:.0f}/s", f"{AT_A_TIME} at a time")
            show(f"  lives through HTTP on PostgreSQL, {processes} processes", f"{with_postgres:.0f}/s", "")
            show("    of the raw claims", f"{postgres_of_raw[-1]:.3f}", "")
            show("  lives through HTTP on PostgreSQL, one process", f"{with_one:.0f}/s", "")
            show("  lives through HTTP on SQLite, one process", f"{with_sqlite:.0f}/s", "")
            note = f"{sqlite_of_all[-1]:.2f} of it with {processes}"
            show("    of PostgreSQL with one", f"{sqlite_of_one[-1]:.2f}", note)
    show("lives on PostgreSQL of raw claims", f"{min(postgres_of_raw):.3f} to {max(postgres_of_raw):.3f}", "")
    ratios = f"{min(sqlite_of_one):.2f} to {max(sqlite_of_one):.2f}"
    note = f"{min(sqlite_of_all):.2f} to {max(sqlite_of_all):.2f} of it with {processes}"
    show("lives on SQLite of those on PostgreSQL, one process", ratios, note)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--jobs", type=int, default=1000)
    options.add_argument("--processes", type=int, default=2, help="of the cell on PostgreSQL")
    chosen = options.parse_args()
    with bench_folder() as folder:
        lifecycles(folder, print_figure, rounds=chosen.rounds, jobs=chosen.jobs, processes=chosen.processes)


if __name__ == "__main__":
    main()
