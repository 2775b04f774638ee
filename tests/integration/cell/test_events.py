"""Server-sent events over HTTP: their content, who may see them, and how a client resumes after a disconnect."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.cells.people import Person, add_member, create_person
from tests.support.cells.served_cell import ScriptedRunner, ServedCell, commit_file

from remuda.lib.clock import SystemClock
from remuda.wire.user_client import RefusedError, UserClient

ONE_JOB = "build:\n  script: make\n"
EVENTS = "/api/remuda/v1/events"


class Event(NamedTuple):
    id: str
    kind: str
    data: dict[str, Any]


class Stream:
    """The event stream of one client."""

    def __init__(self, cell: ServedCell, query: str = "", token: str = "", last: str = "") -> None:
        self.connection = cell.connect()
        headers = {"PRIVATE-TOKEN": token or cell.token} | ({"Last-Event-ID": last} if last else {})
        self.connection.request("GET", f"{EVENTS}{query}", headers=headers)
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        self.last = last
        if not last:
            assert self.read_block()["retry"] == "1000"

    def read_block(self) -> dict[str, str]:
        """Read the fields up to the next empty line; there are none at the end of the stream."""
        fields: dict[str, str] = {}
        while line := self.answer.readline().decode():
            name, _, value = line.rstrip("\n").partition(":")
            if line == "\n":
                break
            fields[name] = value.lstrip(" ")
        self.last = fields.get("id", self.last)
        return fields

    def next(self) -> Event | None:
        """Return the next event, or None if the cell has ended the stream."""
        while fields := self.read_block():
            if "event" in fields:
                return Event(fields["id"], fields["event"], json.loads(fields["data"]))
        return None

    def until(self, kind: str, status: str) -> list[Event]:
        """Read up to an event of this kind with this status; return all events."""
        seen = []
        while (event := self.next()) is not None:
            seen.append(event)
            if (event.kind, event.data.get("status")) == (kind, status):
                return seen
        raise AssertionError(f"the stream ended before {kind} {status}: {seen}")


@contextmanager
def watch_events(cell: ServedCell, query: str = "", token: str = "", last: str = "") -> Iterator[Stream]:
    stream = Stream(cell, query, token, last)
    try:
        yield stream
    finally:
        stream.connection.close()


def test_events_of_a_pipeline(cell: ServedCell, runner: ScriptedRunner) -> None:
    with watch_events(cell) as stream:
        assert stream.answer.headers["Content-Type"].startswith("text/event-stream")
        project = cell.new_project("app", ONE_JOB)
        first = stream.until("job", "pending")
        assert [event.kind for event in first] == ["pipeline", "job"]
        assert {event.data["project_id"] for event in first} == {project}
        job = runner.take()
        assert stream.until("job", "running")[-1].data["id"] == job["id"]
        runner.put(job, "running")
        runner.put(job, "failed", failure_reason="script_failure", exit_code=3)
        ended = stream.until("pipeline", "failed")
        failed_job = next(event for event in ended if event.kind == "job" and event.data["status"] == "failed")
        assert (failed_job.data["failure_reason"], failed_job.data["exit_code"]) == ("script_failure", 3)


def test_filters(cell: ServedCell, runner: ScriptedRunner) -> None:
    first, second = cell.new_project("one", ONE_JOB), cell.new_project("other", ONE_JOB)
    pipelines = [cell.until_pipelines(1, path)[0]["id"] for path in ("root/one", "root/other")]
    jobs = [cell.api("GET", f"/projects/{project}/jobs").json()[0]["id"] for project in (first, second)]
    queries = {
        "?project=root%2Fother": (second, {"job", "pipeline"}),
        f"?project={second}&kind=pipeline": (second, {"pipeline"}),
        f"?pipeline={pipelines[1]}": (second, {"job", "pipeline"}),
        f"?job={jobs[1]}": (second, {"job"}),
    }
    with ExitStack() as stack:
        streams = {query: stack.enter_context(watch_events(cell, query)) for query in queries}
        for job in (runner.take(), runner.take()):
            runner.put(job, "success")
        for query, stream in streams.items():
            project, kinds = queries[query]
            seen = stream.until("job" if "job" in kinds else "pipeline", "success")
            assert {event.data["project_id"] for event in seen} == {project}
            assert {event.kind for event in seen} <= kinds


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("kind=word", 400),
        ("job=x", 400),
        ("pipeline=99", 404),
        ("job=99", 404),
        ("project=99", 404),
        ("project=a/b", 404),
    ],
)
def test_invalid_filters(cell: ServedCell, query: str, status: int) -> None:
    assert cell.send("GET", f"{EVENTS}?{query}", PRIVATE_TOKEN=cell.token).status == status


def test_a_valid_token_is_required(cell: ServedCell) -> None:
    assert cell.send("GET", EVENTS).status == 401
    assert cell.send("GET", EVENTS, PRIVATE_TOKEN="glpat-wrong-token").status == 401


def test_events_of_runners(cell: ServedCell) -> None:
    with watch_events(cell, "?kind=runner") as stream:
        runner = cell.new_runner(description="new", tag_list="arm")
        event = stream.next()
        assert event is not None
        assert (event.data["description"], event.data["status"], event.data["tags"]) == (
            "new",
            "never_contacted",
            ["arm"],
        )
        cell.api("PUT", f"/runners/{event.data['id']}", {"paused": True})
        assert (changed := stream.next()) is not None
        assert changed.data["paused"] is True
        assert runner.cell.api("DELETE", f"/runners/{event.data['id']}").status == 204
        stream.until("runner", "removed")


def test_a_client_resumes_after_a_disconnect(cell: ServedCell, runner: ScriptedRunner) -> None:
    with watch_events(cell) as stream:
        cell.new_project("app", ONE_JOB)
        stream.until("job", "pending")
        last = stream.last
    job = runner.take()
    runner.put(job, "success")
    with watch_events(cell, last=last) as stream:
        seen = stream.until("pipeline", "success")
        assert [event.data["status"] for event in seen if event.kind == "job"][-1] == "success"


@pytest.mark.parametrize("last", ["elsewhere-7", "7", "no number"])
def test_an_unknown_last_event_id_gets_a_reset(cell: ServedCell, runner: ScriptedRunner, last: str) -> None:
    with watch_events(cell, last=last) as stream:
        event = stream.next()
        assert event is not None
        assert event.kind == "reset"
        assert stream.next() is None
    with watch_events(cell, last=event.id) as stream:
        cell.new_project("app", ONE_JOB)
        stream.until("job", "pending")


class AdvancingClock(SystemClock):
    """A clock that a test can advance."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@pytest.fixture
def clock() -> AdvancingClock:
    return AdvancingClock()


@pytest.fixture
def cell_with_clock(tmp_path: Path, clock: AdvancingClock) -> Iterator[ServedCell]:
    with ServedCell(tmp_path / "cell", clock) as served:
        yield served


def _new_project_for(cell: ServedCell, name: str, person: Person) -> int:
    project = cell.new_project(name)
    add_member(cell, f"projects/{project}", person, 20)
    return project


def _commit(cell: ServedCell, project: int) -> None:
    commit_file(cell, project, ONE_JOB)


def _start(cell: ServedCell, project: int) -> None:
    assert cell.api("POST", f"/projects/{project}/pipeline", {"ref": "main"}).status == 201


def test_users_see_events_of_their_projects_only(cell: ServedCell) -> None:
    ann, ben = create_person(cell, "ann"), create_person(cell, "ben")
    anns, bens = _new_project_for(cell, "anns", ann), _new_project_for(cell, "bens", ben)
    with watch_events(cell, token=ann.token) as hers, watch_events(cell, token=ben.token) as his:
        _commit(cell, anns)
        _commit(cell, bens)
        assert {event.data["project_id"] for event in hers.until("job", "pending")} == {anns}
        assert {event.data["project_id"] for event in his.until("job", "pending")} == {bens}
    path = f"{EVENTS}?project={bens}"
    assert cell.send("GET", path, PRIVATE_TOKEN=ann.token).status == 404
    assert cell.send("GET", EVENTS, PRIVATE_TOKEN=ann.with_scopes("read_user").token).status == 403


def test_lost_access_stops_the_events(cell_with_clock: ServedCell, clock: AdvancingClock) -> None:
    cell = cell_with_clock
    ann = create_person(cell, "ann")
    remaining, lost = _new_project_for(cell, "kept", ann), _new_project_for(cell, "lost", ann)
    with watch_events(cell, token=ann.token) as stream:
        _commit(cell, lost)
        assert stream.until("job", "pending")[-1].data["project_id"] == lost
        assert cell.api("DELETE", f"/projects/{lost}/members/{ann.id}").status == 204
        clock.ahead += 6
        _start(cell, lost)
        _commit(cell, remaining)
        assert {event.data["project_id"] for event in stream.until("job", "pending")} == {remaining}
        assert cell.api("POST", f"/users/{ann.id}/block").status == 201
        clock.ahead += 6
        _start(cell, remaining)
        assert stream.next() is None


def test_a_client_that_does_not_read_is_disconnected(cell: ServedCell) -> None:
    """A thousand jobs change their state several times, which is more than the cell and the kernel buffer."""
    names = "".join(f"{'job' * 60}{number}:\n  script: make\n" for number in range(1000))
    project = cell.new_project("app")
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        silent.settimeout(30)
        silent.connect(("127.0.0.1", cell.service.settings.port))
        silent.sendall(f"GET {EVENTS} HTTP/1.1\r\nHost: cell\r\nPRIVATE-TOKEN: {cell.token}\r\n\r\n".encode())
        assert silent.recv(100)
        commit_file(cell, project, names)
        pipeline = cell.until_pipelines(1)[0]["id"]
        with watch_events(cell) as stream:
            for _ in range(6):
                assert cell.api("POST", f"/projects/{project}/pipelines/{pipeline}/cancel").status < 300
                stream.until("pipeline", "canceled")
                assert cell.api("POST", f"/projects/{project}/pipelines/{pipeline}/retry").status < 300
                stream.until("pipeline", "pending")
        received = b""
        while not received.endswith(b"\r\n0\r\n\r\n"):
            received = (received + silent.recv(1 << 16))[-2000:]
        assert b"event: reset" in received


def test_a_stop_ends_the_streams(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", stop_seconds=20) as cell, watch_events(cell) as stream:
        cell.stop()
        assert stream.next() is None


def test_events_of_other_processes(tmp_path: Path, database: str) -> None:
    with ExitStack() as stack:
        cells = [stack.enter_context(ServedCell(tmp_path / "cell", database=database)) for _ in range(3)]
        runner = cells[1].new_runner()
        streams = [stack.enter_context(watch_events(cell, "?kind=job,pipeline")) for cell in cells]
        cells[0].new_project(
            "app", "stages: [a, b]\nfirst:\n  stage: a\n  script: make\nthen:\n  stage: b\n  script: x\n"
        )
        for stream in streams:
            assert {event.data.get("name") for event in stream.until("job", "pending")} >= {"first"}
        job = runner.take(hold=True)
        ScriptedRunner(cells[2], runner.token).put(job, "failed", failure_reason="script_failure")
        for stream in streams:
            seen = stream.until("pipeline", "failed")
            last = {event.data["name"]: event.data["status"] for event in seen if event.kind == "job"}
            assert last == {"first": "failed", "then": "skipped"}


async def test_the_user_client_reads_events(cell: ServedCell, runner: ScriptedRunner) -> None:
    async with UserClient(cell.url, cell.token) as client:
        project = await asyncio.to_thread(cell.new_project, "app", ONE_JOB)
        seen = [event async for event in client.events(after="elsewhere-1", project=project)]
        assert [event.kind for event in seen] == ["reset"]
        job = await asyncio.to_thread(runner.take)
        async with aclosing(client.events(after=seen[0].id, project="root/app", kind="job")) as events:
            assert (await anext(events)).kind == "heartbeat"
            async for event in events:
                assert (event.kind, event.data["id"]) == ("job", job["id"])
                if event.data["status"] == "success":
                    break
                await asyncio.to_thread(runner.put, job, "success")
        with pytest.raises(RefusedError):
            async for _ in client.events(job=999):
                pass


def test_the_events_command(cell: ServedCell) -> None:
    environment = {**os.environ, "REMUDA_URL": cell.url, "REMUDA_TOKEN": cell.token}
    command = [sys.executable, "-m", "remuda.cli.main", "events", "--kind", "pipeline,job"]
    with (
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as text,
        subprocess.Popen([*command, "--output", "json"], env=environment, stdout=subprocess.PIPE, text=True) as lines,
    ):
        assert text.stdout is not None
        assert lines.stdout is not None
        cell.until_metric("remuda_cell_watchers 2.0")
        cell.new_project("app", ONE_JOB)
        assert "pending" in text.stdout.readline()
        event = json.loads(lines.stdout.readline())
        assert (event["kind"], event["data"]["status"]) == ("pipeline", "pending")
        for process in (text, lines):
            process.terminate()
