"""What every environment promises, whatever kind it is."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.lib.clock import SystemClock
from remuda.manager.adapters.local import LocalEnvironment
from remuda.manager.errors import EnvironmentLostError
from remuda.manager.ports import Environment, JobPlace
from remuda.testing.environment import FakeEnvironment
from remuda.wire.agent_client import JobStart

STEPS = '{"spec": {"remuda": 1}}\n---\n{"run": [{"name": "wait", "script": "sleep 60"}]}'


@dataclass
class Subject:
    """An environment and a way to kill its agent."""

    environment: Environment
    folder: Path
    kill: Callable[[], Awaitable[None]]


@pytest.fixture(params=["local", "fake"])
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    if request.param == "fake":
        fake = FakeEnvironment(tmp_path)
        yield Subject(fake, tmp_path, fake.die)
        await fake.close()
        return
    local = LocalEnvironment(tmp_path, clock=SystemClock(), idle_exit_seconds=5)

    async def kill() -> None:
        async with await local.connect() as client:
            os.kill((await client.hello()).pid, signal.SIGKILL)

    yield Subject(local, tmp_path, kill)
    with suppress(ProcessLookupError):
        await kill()


def a_place(slot: int = 0, project: str = "group/project", builds_dir: str = "") -> JobPlace:
    return JobPlace(runner="abcdefghi", slot=slot, project=project, builds_dir=builds_dir)


async def test_a_prepared_place_is_a_folder_that_can_be_written(subject: Subject) -> None:
    prepared = await subject.environment.prepare(a_place())
    work = Path(prepared.work_dir)
    assert work.is_absolute()
    assert work.is_relative_to(prepared.builds_dir)
    (work / "file").write_text("kept")
    again = await subject.environment.prepare(a_place())
    assert again == prepared
    assert (work / "file").read_text() == "kept"


async def test_no_two_slots_or_projects_share_a_folder(subject: Subject) -> None:
    places = [a_place(), a_place(slot=1), a_place(project="group/other"), a_place(project="group/project/deeper")]
    found = {(await subject.environment.prepare(place)).work_dir for place in places}
    assert len(found) == len(places)


async def test_the_configured_folder_is_used(subject: Subject) -> None:
    prepared = await subject.environment.prepare(a_place(builds_dir=str(subject.folder / "elsewhere")))
    assert Path(prepared.work_dir).is_relative_to(subject.folder / "elsewhere")
    assert Path(prepared.cache_dir).is_relative_to(subject.folder)
    place = replace(a_place(), cache_dir=str(subject.folder / "caches"))
    assert (await subject.environment.prepare(place)).cache_dir == str(subject.folder / "caches")


async def test_a_job_may_have_a_folder_of_its_own_which_goes_with_it(subject: Subject) -> None:
    shared = Path((await subject.environment.prepare(a_place())).work_dir)
    own = replace(a_place(), job=7)
    work = Path((await subject.environment.prepare(own)).work_dir)
    assert work != shared
    assert work != Path((await subject.environment.prepare(replace(own, job=8))).work_dir)
    (work / "file").touch()
    for _ in range(2):
        await subject.environment.clean_up(own)
    assert not work.exists()
    assert shared.exists()


async def test_a_place_that_cannot_be_made_is_lost_with_its_cause(subject: Subject) -> None:
    (subject.folder / "occupied").write_text("a file")
    with pytest.raises(EnvironmentLostError, match="occupied"):
        await subject.environment.prepare(a_place(builds_dir=str(subject.folder / "occupied")))


async def test_connections_lead_to_one_agent(subject: Subject) -> None:
    async with await subject.environment.connect() as first, await subject.environment.connect() as second:
        assert (await first.hello()).pid == (await second.hello()).pid


async def test_many_connections_at_once_start_one_agent(subject: Subject) -> None:
    clients = await asyncio.gather(*(subject.environment.connect() for _ in range(3)))
    assert len({(await client.hello()).pid for client in clients}) == 1
    for client in clients:
        client.close()


async def test_a_job_outlives_connections_and_agent(subject: Subject) -> None:
    work_dir = (await subject.environment.prepare(a_place())).work_dir
    async with await subject.environment.connect() as client:
        await client.start(JobStart(id="1-abc", work_dir=work_dir, steps=STEPS))
    assert await subject.environment.recover()
    await subject.kill()
    async with await subject.environment.connect() as client:
        assert (await client.hello()).jobs == {"1-abc"}
        await client.close_job("1-abc")
        assert (await client.hello()).jobs == frozenset()


async def test_nothing_can_be_recovered_where_nothing_was(subject: Subject) -> None:
    assert not await subject.environment.recover()


async def test_cleaning_up_keeps_the_checkout_and_may_be_repeated(subject: Subject) -> None:
    work = Path((await subject.environment.prepare(a_place())).work_dir)
    (work / "file").write_text("kept")
    temporary = work.with_name(f"{work.name}.tmp")
    (temporary / "secret").write_text("gone")
    for _ in range(2):
        await subject.environment.clean_up(a_place())
    await subject.environment.clean_up(a_place(project="never/prepared"))
    assert (work / "file").exists()
    assert not temporary.exists()


async def test_usage_says_how_much_room_there_is(subject: Subject) -> None:
    assert (await subject.environment.usage()).disk_free_bytes > 0
