"""Pieces of logs that are appended without a task, and those that need the ordinary handler."""

import http.client
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

from remuda.cell.http.runner import trace
from remuda.lib.clock import SystemClock
from remuda.wire.runner_api import RunnerInfo
from remuda.wire.runner_client import RunnerClient
from remuda.wire.runner_server import Server, new_session

PIECE = b"a line of the log\n"


@pytest.fixture
def with_task(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries of the requests that the ordinary handler has answered."""
    queries: list[str] = []
    answer = trace.patch_trace

    async def record(edge: Any, job_id: int, scope: Any, receive: Any, send: Any) -> None:
        queries.append(scope["query_string"].decode())
        await answer(edge, job_id, scope, receive, send)

    monkeypatch.setattr(trace, "patch_trace", record)
    return queries


@pytest.fixture
def job(cell: ServedCell) -> "RunningJob":
    runner = cell.new_runner()
    cell.new_project("app", "job: {script: [echo]}\n")
    payload = runner.take()
    assert runner.put(payload, "running").status == 200
    return RunningJob(cell, runner, payload)


class RunningJob:
    def __init__(self, cell: ServedCell, runner: ScriptedRunner, payload: dict[str, Any]) -> None:
        self.cell, self.runner, self.payload = cell, runner, payload
        self.log = b""

    def append(self, query: str, *, token_in_query: bool = False) -> None:
        """Send the next piece, head and body at once as clients of Go and aiohttp do, and check the answer."""
        token = self.payload["token"]
        if token_in_query:
            query += f"&token={token}"
        head = (
            f"PATCH /api/v4/jobs/{self.payload['id']}/trace{query} HTTP/1.1",
            "Host: cell",
            *(() if token_in_query else (f"JOB-TOKEN: {token}",)),
            f"Content-Range: {len(self.log)}-{len(self.log) + len(PIECE) - 1}",
            f"Content-Length: {len(PIECE)}",
        )
        address = urlsplit(self.cell.url)
        with socket.create_connection((address.hostname or "", address.port or 0), timeout=30) as connection:
            connection.sendall("\r\n".join((*head, "", "")).encode() + PIECE)
            answer = http.client.HTTPResponse(connection, method="PATCH")
            answer.begin()
            body = answer.read()
        self.log += PIECE
        assert (answer.status, answer.headers["Range"]) == (202, f"0-{len(self.log)}")
        assert (answer.headers["Job-Status"], body) == ("running", b'"202 Accepted"')

    def read(self) -> tuple[int, bytes]:
        answer = self.cell.api("GET", f"/projects/1/jobs/{self.payload['id']}/trace")
        return answer.status, answer.body


@pytest.mark.parametrize("query", ["", "?debug_trace=false"])
def test_pieces_of_runners_need_no_task(job: RunningJob, with_task: list[str], query: str) -> None:
    job.append(query)
    job.append(query)
    assert with_task == []
    assert job.read() == (200, job.log)


def test_a_trace_is_noted_once_by_the_ordinary_handler(job: RunningJob, with_task: list[str]) -> None:
    for _ in range(3):
        job.append("?debug_trace=true")
    job.append("?debug_trace=false")
    assert with_task == ["debug_trace=true"]
    assert job.read() == (200, job.log)


@pytest.mark.parametrize(
    "query", ["?debug_trace=TRUE", "?debug_trace=1", "?other=1", "?debug_trace=false&other=1", "?"]
)
def test_other_queries_are_for_the_ordinary_handler(job: RunningJob, with_task: list[str], query: str) -> None:
    job.append(query)
    assert with_task == ([] if query == "?" else [query.removeprefix("?")])


def test_a_token_in_the_query_is_for_the_ordinary_handler(job: RunningJob, with_task: list[str]) -> None:
    job.append("?debug_trace=false", token_in_query=True)
    assert len(with_task) == 1


async def test_pieces_of_a_manager_need_no_task(job: RunningJob, with_task: list[str]) -> None:
    async with new_session() as session:
        server = Server(url=job.cell.url, session=session, clock=SystemClock())
        client = RunnerClient(server, token=job.runner.token, system_id="s_1", info=RunnerInfo())
        for _ in range(3):
            reply = await client.patch_trace(job.payload["id"], job.payload["token"], len(job.log), PIECE)
            job.log += PIECE
            assert (reply.status, reply.size) == (202, len(job.log))
    assert with_task == []
    assert job.read() == (200, job.log)
