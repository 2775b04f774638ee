"""Server-sent events over real connections: what is told, to whom, and how somebody goes on who was away."""

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
from tests.support.cells.people import Person, a_member, a_person
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

from remuda.lib.clock import SystemClock
from remuda.wire.user_client import RefusedError, UserClient

ONE_JOB = "build:\n  script: make\n"
EVENTS = "/api/remuda/v1/events"


class Told(NamedTuple):
    id: str
    kind: str
    data: dict[str, Any]


class Stream:
    """One caller's events."""

    def __init__(self, cell: ServedCell, query: str = "", token: str = "", last: str = "") -> None:
        self.connection = cell.connect()
        headers = {"PRIVATE-TOKEN": token or cell.token} | ({"Last-Event-ID": last} if last else {})
        self.connection.request("GET", f"{EVENTS}{query}", headers=headers)
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        self.last = last
        if not last:
            assert self.block()["retry"] == "1000"

    def block(self) -> dict[str, str]:
        """The fields up to the next empty line; none at the end."""
        fields: dict[str, str] = {}
        while line := self.answer.readline().decode():
            name, _, value = line.rstrip("\n").partition(":")
            if line == "\n":
                break
            fields[name] = value.lstrip(" ")
        self.last = fields.get("id", self.last)
        return fields

    def next(self) -> Told | None:
        """The next event; None when the cell has ended the stream."""
        while fields := self.block():
            if "event" in fields:
                return Told(fields["id"], fields["event"], json.loads(fields["data"]))
        return None

    def until(self, kind: str, status: str) -> list[Told]:
        """All up to an event of this kind that tells this status."""
        seen = []
        while (told := self.next()) is not None:
            seen.append(told)
            if (told.kind, told.data.get("status")) == (kind, status):
                return seen
        raise AssertionError(f"the stream ended before {kind} {status}: {seen}")


@contextmanager
def watching(cell: ServedCell, query: str = "", token: str = "", last: str = "") -> Iterator[Stream]:
    stream = Stream(cell, query, token, last)
    try:
        yield stream
    finally:
        stream.connection.close()


def test_a_pipeline_is_told_as_it_goes(cell: ServedCell, runner: ScriptedRunner) -> None:
    with watching(cell) as stream:
        assert stream.answer.headers["Content-Type"].startswith("text/event-stream")
        project = cell.new_project("app", ONE_JOB)
        first = stream.until("job", "pending")
        assert [told.kind for told in first] == ["pipeline", "job"]
        assert {told.data["project_id"] for told in first} == {project}
        job = runner.take()
        assert stream.until("job", "running")[-1].data["id"] == job["id"]
        runner.put(job, "running")
        runner.put(job, "failed", failure_reason="script_failure", exit_code=3)
        ended = stream.until("pipeline", "failed")
        over = next(told for told in ended if told.kind == "job" and told.data["status"] == "failed")
        assert (over.data["failure_reason"], over.data["exit_code"]) == ("script_failure", 3)


def test_filters(cell: ServedCell, runner: ScriptedRunner) -> None:
    one, other = cell.new_project("one", ONE_JOB), cell.new_project("other", ONE_JOB)
    pipelines = [cell.until_pipelines(1, path)[0]["id"] for path in ("root/one", "root/other")]
    jobs = [cell.api("GET", f"/projects/{project}/jobs").json()[0]["id"] for project in (one, other)]
    queries = {
        "?project=root%2Fother": (other, {"job", "pipeline"}),
        f"?project={other}&kind=pipeline": (other, {"pipeline"}),
        f"?pipeline={pipelines[1]}": (other, {"job", "pipeline"}),
        f"?job={jobs[1]}": (other, {"job"}),
    }
    with ExitStack() as stack:
        streams = {query: stack.enter_context(watching(cell, query)) for query in queries}
        for job in (runner.take(), runner.take()):
            runner.put(job, "success")
        for query, stream in streams.items():
            project, kinds = queries[query]
            seen = stream.until("job" if "job" in kinds else "pipeline", "success")
            assert {told.data["project_id"] for told in seen} == {project}
            assert {told.kind for told in seen} <= kinds


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
def test_filters_that_name_nothing(cell: ServedCell, query: str, status: int) -> None:
    assert cell.send("GET", f"{EVENTS}?{query}", PRIVATE_TOKEN=cell.token).status == status


def test_without_a_token_nothing_is_told(cell: ServedCell) -> None:
    assert cell.send("GET", EVENTS).status == 401
    assert cell.send("GET", EVENTS, PRIVATE_TOKEN="glpat-wrong-token").status == 401


def test_runners_are_told(cell: ServedCell) -> None:
    with watching(cell, "?kind=runner") as stream:
        runner = cell.new_runner(description="new", tag_list="arm")
        told = stream.next()
        assert told is not None
        assert (told.data["description"], told.data["status"], told.data["tags"]) == ("new", "never_contacted", ["arm"])
        cell.api("PUT", f"/runners/{told.data['id']}", {"paused": True})
        assert (changed := stream.next()) is not None
        assert changed.data["paused"] is True
        assert runner.cell.api("DELETE", f"/runners/{told.data['id']}").status == 204
        stream.until("runner", "removed")


def test_somebody_who_was_away_goes_on(cell: ServedCell, runner: ScriptedRunner) -> None:
    with watching(cell) as stream:
        cell.new_project("app", ONE_JOB)
        stream.until("job", "pending")
        last = stream.last
    job = runner.take()
    runner.put(job, "success")
    with watching(cell, last=last) as stream:
        seen = stream.until("pipeline", "success")
        assert [told.data["status"] for told in seen if told.kind == "job"][-1] == "success"


@pytest.mark.parametrize("last", ["elsewhere-7", "7", "no number"])
def test_somebody_from_elsewhere_reads_again(cell: ServedCell, runner: ScriptedRunner, last: str) -> None:
    with watching(cell, last=last) as stream:
        told = stream.next()
        assert told is not None
        assert told.kind == "reset"
        assert stream.next() is None
    with watching(cell, last=told.id) as stream:
        cell.new_project("app", ONE_JOB)
        stream.until("job", "pending")


class Jumping(SystemClock):
    """A clock whose time a test can let pass."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@pytest.fixture
def clock() -> Jumping:
    return Jumping()


@pytest.fixture
def cell_in_time(tmp_path: Path, clock: Jumping) -> Iterator[ServedCell]:
    with ServedCell(tmp_path / "cell", clock) as served:
        yield served


def _project_of(cell: ServedCell, name: str, person: Person) -> int:
    project = cell.new_project(name)
    a_member(cell, f"projects/{project}", person, 20)
    return project


def _commit(cell: ServedCell, project: int) -> None:
    file = {"action": "create", "file_path": ".gitlab-ci.yml", "content": ONE_JOB}
    body = {"branch": "main", "commit_message": "First", "actions": [file]}
    assert cell.api("POST", f"/projects/{project}/repository/commits", body).status == 201


def _start(cell: ServedCell, project: int) -> None:
    assert cell.api("POST", f"/projects/{project}/pipeline", {"ref": "main"}).status == 201


def test_everybody_sees_their_own_projects_only(cell: ServedCell) -> None:
    ann, ben = a_person(cell, "ann"), a_person(cell, "ben")
    anns, bens = _project_of(cell, "anns", ann), _project_of(cell, "bens", ben)
    with watching(cell, token=ann.token) as hers, watching(cell, token=ben.token) as his:
        _commit(cell, anns)
        _commit(cell, bens)
        assert {told.data["project_id"] for told in hers.until("job", "pending")} == {anns}
        assert {told.data["project_id"] for told in his.until("job", "pending")} == {bens}
    path = f"{EVENTS}?project={bens}"
    assert cell.send("GET", path, PRIVATE_TOKEN=ann.token).status == 404
    assert cell.send("GET", EVENTS, PRIVATE_TOKEN=ann.with_scopes("read_user").token).status == 403


def test_a_right_that_is_gone_opens_nothing_more(cell_in_time: ServedCell, clock: Jumping) -> None:
    cell = cell_in_time
    ann = a_person(cell, "ann")
    kept, lost = _project_of(cell, "kept", ann), _project_of(cell, "lost", ann)
    with watching(cell, token=ann.token) as stream:
        _commit(cell, lost)
        assert stream.until("job", "pending")[-1].data["project_id"] == lost
        assert cell.api("DELETE", f"/projects/{lost}/members/{ann.id}").status == 204
        clock.ahead += 6
        _start(cell, lost)
        _commit(cell, kept)
        assert {told.data["project_id"] for told in stream.until("job", "pending")} == {kept}
        assert cell.api("POST", f"/users/{ann.id}/block").status == 201
        clock.ahead += 6
        _start(cell, kept)
        assert stream.next() is None


def test_one_who_does_not_read_is_sent_away(cell: ServedCell) -> None:
    """The state of a thousand jobs changes again and again: more than the cell and the kernel keep for anybody."""
    names = "".join(f"{'job' * 60}{number}:\n  script: make\n" for number in range(1000))
    project = cell.new_project("app")
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        silent.settimeout(30)
        silent.connect(("127.0.0.1", cell.service.settings.port))
        silent.sendall(f"GET {EVENTS} HTTP/1.1\r\nHost: cell\r\nPRIVATE-TOKEN: {cell.token}\r\n\r\n".encode())
        assert silent.recv(100)
        file = {"action": "create", "file_path": ".gitlab-ci.yml", "content": names}
        body = {"branch": "main", "commit_message": "First", "actions": [file]}
        assert cell.api("POST", f"/projects/{project}/repository/commits", body).status == 201
        pipeline = cell.until_pipelines(1)[0]["id"]
        with watching(cell) as stream:
            for _ in range(6):
                assert cell.api("POST", f"/projects/{project}/pipelines/{pipeline}/cancel").status < 300
                stream.until("pipeline", "canceled")
                assert cell.api("POST", f"/projects/{project}/pipelines/{pipeline}/retry").status < 300
                stream.until("pipeline", "pending")
        whole = b""
        while not whole.endswith(b"\r\n0\r\n\r\n"):
            whole = (whole + silent.recv(1 << 16))[-2000:]
        assert b"event: reset" in whole


def test_a_stop_ends_the_streams(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", stop_seconds=20) as cell, watching(cell) as stream:
        cell.stop()
        assert stream.next() is None


def test_another_process_tells_it_too(tmp_path: Path, database: str) -> None:
    with ExitStack() as stack:
        cells = [stack.enter_context(ServedCell(tmp_path / "cell", database=database)) for _ in range(3)]
        runner = cells[1].new_runner()
        streams = [stack.enter_context(watching(cell, "?kind=job,pipeline")) for cell in cells]
        cells[0].new_project(
            "app", "stages: [a, b]\nfirst:\n  stage: a\n  script: make\nthen:\n  stage: b\n  script: x\n"
        )
        for stream in streams:
            assert {told.data.get("name") for told in stream.until("job", "pending")} >= {"first"}
        job = runner.take(hold=True)
        ScriptedRunner(cells[2], runner.token).put(job, "failed", failure_reason="script_failure")
        for stream in streams:
            seen = stream.until("pipeline", "failed")
            last = {told.data["name"]: told.data["status"] for told in seen if told.kind == "job"}
            assert last == {"first": "failed", "then": "skipped"}


async def test_the_client_reads_them(cell: ServedCell, runner: ScriptedRunner) -> None:
    async with UserClient(cell.url, cell.token) as client:
        project = await asyncio.to_thread(cell.new_project, "app", ONE_JOB)
        seen = [event async for event in client.events(after="elsewhere-1", project=project)]
        assert [event.kind for event in seen] == ["reset"]
        job = await asyncio.to_thread(runner.take)
        async with aclosing(client.events(after=seen[0].id, project="root/app", kind="job")) as events:
            async for event in events:
                assert (event.kind, event.data["id"]) == ("job", job["id"])
                if event.data["status"] == "success":
                    break
                await asyncio.to_thread(runner.put, job, "success")
        with pytest.raises(RefusedError):
            async for _ in client.events(job=999):
                pass


def test_the_command_prints_them(cell: ServedCell) -> None:
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
        told = json.loads(lines.stdout.readline())
        assert (told["kind"], told["data"]["status"]) == ("pipeline", "pending")
        for process in (text, lines):
            process.terminate()
