"""Recovery of jobs from agents: the owner note that an agent stores for each job, and the search for lost jobs."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.manager_values import a_row

from remuda.lib.clock import VirtualClock
from remuda.manager.jobs.links import LINGER_SECONDS, Links
from remuda.manager.jobs.recovery import Note, Searches, find_lost_jobs, is_ours, owner_note, read_note
from remuda.testing.environment import FakeEnvironment, FakeJob
from remuda.testing.logs import capture_logs
from remuda.testing.waiting import until
from remuda.wire.proto import agent_pb2 as pb

PAYLOAD = b'{"id": 7, "token": "glcbt-x",\n "job_info": {"name": "build"}}'


ROW = a_row("7-abc", job_id=7, payload=PAYLOAD, settings="0123456789abcdef")


def test_a_note_is_read_as_it_was_written() -> None:
    note = read_note(owner_note(ROW, "s_0123456789ab"))
    assert note == Note(system_id="s_0123456789ab", row=ROW)


@given(st.binary() | st.builds(lambda end: owner_note(ROW, "s")[:end], st.integers(0, 400)))
def test_invalid_notes_are_ignored(data: bytes) -> None:
    note = read_note(data)
    assert note is None or note.row.payload == PAYLOAD


def test_a_note_of_a_later_version_is_ignored() -> None:
    assert read_note(owner_note(ROW, "s").replace(b'"version":1', b'"version":2')) is None


def test_a_job_is_ours_by_the_managers_id_or_by_its_runner() -> None:
    note = Note(system_id="s_mine", row=ROW)
    assert is_ours(note, system_id="s_mine", runners=set())
    assert is_ours(note, system_id="s_other", runners={("abcdefghi", "http://cell")})
    assert not is_ours(note, system_id="s_other", runners={("abcdefghi", "http://elsewhere")})


@pytest.mark.parametrize(
    ("owner", "is_watched", "cause"),
    [
        (b"", False, "it has no note of a manager"),
        (owner_note(ROW, "s_mine"), True, "another manager watches it"),
        (owner_note(ROW, "s_other"), False, "another manager started it"),
        (owner_note(a_row("8-abc", payload=PAYLOAD), "s_mine"), False, "its note is for another job, 8-abc"),
    ],
)
async def test_the_log_says_why_a_job_is_ignored(tmp_path: Path, owner: bytes, is_watched: bool, cause: str) -> None:
    environment = FakeEnvironment(tmp_path)
    environment.agent.jobs[ROW.key] = FakeJob(pb.StartRequest(id=ROW.key, owner=owner))
    environment.agent.attended = {ROW.key} if is_watched else set()
    with capture_logs() as events:
        async with await environment.connect("fake") as client:
            rows = await find_lost_jobs(
                client, "fake", is_known=lambda _: False, is_ours=lambda note: note.system_id == "s_mine"
            )
    assert rows == []
    assert [event["cause"] for event in events] == [cause]
    await environment.remove()


async def test_environments_are_searched_while_they_are_configured(tmp_path: Path) -> None:
    clock = VirtualClock()
    silent, answering = FakeEnvironment(tmp_path / "a"), FakeEnvironment(tmp_path / "b")
    for environment in (silent, answering):
        environment.agent.jobs["7-abc"] = FakeJob(pb.StartRequest(id="7-abc"))
    silent.is_broken = True
    async with asyncio.TaskGroup() as group:

        async def run(work: Callable[[], Awaitable[None]]) -> None:
            await work()

        links = Links(clock, lambda name, work: group.create_task(run(work), name=name))
        searches = Searches(links, lambda name, work: group.create_task(run(work), name=name))
        searches.follow([silent])
        await until(lambda: silent.calls["connect"] > 0)
        # A reload adds one environment and removes the other, whose machine never answers.
        searches.follow([answering])
        await searches.wait(answering, 30)
        assert answering.calls["connect"] == 1
        await clock.advance(LINGER_SECONDS)
        links.close_idle()
        assert list(links) == []
        searches.follow([answering])
        assert list(links) == []
        # An environment that was removed and is configured again is searched again.
        searches.follow([answering, silent])
        silent.is_broken = False
        await searches.wait(silent, 0.01)
        assert [link.environment for link in links] == [silent]
        searches.follow([])
        links.close()
    for environment in (silent, answering):
        await environment.remove()
