"""Shells between a user and a runner manager, and jobs on hold, with real files and a virtual clock."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.cell.dispatch.stop_requests import StopRequests
from remuda.cell.errors import ConflictError, NotFoundError, StoreError
from remuda.cell.settings import CellSettings
from remuda.cell.shells import shells as module
from remuda.cell.shells.files import ShellFiles
from remuda.cell.shells.port import INPUT, OUTPUT, About, RunnerSession
from remuda.cell.shells.shells import Shells
from remuda.cell.values import Job
from remuda.lib.clock import VirtualClock, settle
from remuda.lib.files import write_whole
from remuda.model.job import JobId, JobState, RunnerId
from remuda.testing.builders import a_job
from remuda.wire.shell import HeldJob, LookRequest, WantedShell, WantedStop

SYSTEM = "s_1"


def a_running_job(number: int = 7, state: JobState = JobState.RUNNING) -> Job:
    return a_job(id=JobId(number), state=state, runner_id=RunnerId(3), system_id=SYSTEM)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def settings(tmp_path: Path) -> CellSettings:
    return CellSettings(data=tmp_path, shell_limit_bytes=1000, poll_hold_seconds=0)


@pytest.fixture
def shells(tmp_path: Path, clock: VirtualClock, settings: CellSettings) -> Shells:
    return Shells(ShellFiles(tmp_path / "looking"), clock, settings)


def open_shell(shells: Shells, job: Job | None = None, user: int = 1) -> About:
    return shells.open(job or a_running_job(), user_id=user, wish=WantedShell(id="", job_id=7, command=("ls",)))


async def poll(
    shells: Shells,
    *,
    runner: int = 3,
    system: str = SYSTEM,
    known_shells: tuple[str, ...] = (),
    held: tuple[int, ...] = (),
) -> tuple[list[str], tuple[int, ...]]:
    held_jobs = tuple(HeldJob(job_id=job_id, seconds=600) for job_id in held)
    request = LookRequest(system_id=system, shells=known_shells, held=held_jobs)
    response = await shells.poll(runner, request, own_job_ids=held)
    return [shell.id for shell in response.shells], response.release


async def test_only_the_manager_that_has_the_job_gets_the_shell(shells: Shells) -> None:
    about = open_shell(shells)
    assert await poll(shells) == ([about.id], ())
    assert await poll(shells, known_shells=(about.id,)) == ([], ())
    assert await poll(shells, runner=4) == ([], ())
    assert await poll(shells, system="s_2") == ([], ())
    with pytest.raises(NotFoundError):
        shells.of_runner(about.id, 3, "s_2")
    with pytest.raises(NotFoundError):
        shells.of_runner(about.id, 4, SYSTEM)
    assert shells.of_runner(about.id, 3, SYSTEM) == about


@pytest.mark.parametrize("forged", ["", "..", "0" * 31, "0" * 32, "../" + "0" * 29, "G" * 32, "0" * 33])
def test_forged_ids_are_not_found(shells: Shells, forged: str) -> None:
    open_shell(shells)
    with pytest.raises(NotFoundError):
        shells.of_user(forged, 7, 1)
    with pytest.raises(NotFoundError):
        shells.of_runner(forged, 3, SYSTEM)


def test_shell_belongs_to_the_user_who_opened_it_and_to_its_job(shells: Shells) -> None:
    about = open_shell(shells)
    assert shells.of_user(about.id, 7, 1) == about
    for job, user in ((8, 1), (7, 2)):
        with pytest.raises(NotFoundError):
            shells.of_user(about.id, job, user)


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.LEASED, JobState.FAILED, JobState.SUCCESS])
async def test_only_running_jobs_and_jobs_on_hold_can_have_a_shell(shells: Shells, state: JobState) -> None:
    with pytest.raises(ConflictError):
        open_shell(shells, a_running_job(state=state))
    if state is JobState.FAILED:
        await poll(shells, held=(7,))
        assert open_shell(shells, a_running_job(state=state)).job_id == 7


async def test_bytes_are_stored_at_their_offsets(shells: Shells, tmp_path: Path, clock: VirtualClock) -> None:
    about = open_shell(shells)
    assert shells.state(about) == ("waiting", "")
    assert (await shells.append(about, INPUT, 0, b"hello ")).taken
    assert (await shells.append(about, INPUT, 6, b"world")).size == 11
    assert (await shells.append(about, INPUT, 3, b"lo wor")).taken, "the same bytes were sent again"
    assert not (await shells.append(about, INPUT, 3, b"other")).taken
    assert not (await shells.append(about, INPUT, 12, b"gap")).taken
    assert (await shells.read(about, INPUT, 6)).data == b"world"
    assert shells.state(about) == ("open", "")
    # Another process of the cell reads the same bytes.
    other = Shells(ShellFiles(tmp_path / "looking"), clock, CellSettings(data=tmp_path))
    assert (await other.read(other.of_runner(about.id, 3, SYSTEM), INPUT, 0)).data == b"hello world"


async def test_reader_is_woken_by_bytes_and_by_the_end(shells: Shells) -> None:
    about = open_shell(shells)

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(shells.read(about, OUTPUT, 0))
        await asyncio.sleep(0)
        await shells.append(about, OUTPUT, 0, b"x")
        assert (await reading).data == b"x"
        reading = tasks.create_task(shells.read(about, OUTPUT, 1))
        await asyncio.sleep(0)
        shells.close(about, "enough")
        assert (await reading).state == "over"
    assert shells.state(about) == ("over", "enough")
    assert (await shells.read(about, OUTPUT, 0)).data == b"x", "the output can be read after the end"
    assert not (await shells.append(about, OUTPUT, 1, b"y")).taken
    shells.close(about, "another reason")
    assert shells.state(about) == ("over", "enough")


async def test_stream_has_a_limit(shells: Shells) -> None:
    about = open_shell(shells)
    assert (await shells.append(about, OUTPUT, 0, b"x" * 1000)).taken
    assert not (await shells.append(about, OUTPUT, 1000, b"y")).taken
    assert "shell_limit_bytes" in shells.state(about)[1]


async def test_writer_waits_for_a_slow_reader(shells: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW_BYTES", 10)
    about = open_shell(shells)
    await shells.append(about, OUTPUT, 0, b"x" * 20)
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(shells.append(about, OUTPUT, 20, b"y"))
        await asyncio.sleep(0)
        assert not writing.done()
        await shells.read(about, OUTPUT, 15)
        assert (await writing).taken


def test_first_process_to_end_a_shell_says_why(tmp_path: Path, shells: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    about = open_shell(shells)
    files = ShellFiles(tmp_path / "looking")
    files_of_other_process = ShellFiles(tmp_path / "looking")

    def write_late(path: Path, data: bytes) -> None:
        if data == b"second":
            files_of_other_process.end(about.id, "first", 2.0)
        write_whole(path, data)

    monkeypatch.setattr("remuda.cell.shells.files.write_whole", write_late)
    files.end(about.id, "second", 3.0)
    assert files.end_of(about.id) == ("first", 2.0)


@pytest.mark.parametrize(
    ("has_user", "has_manager", "reason"),
    [
        (True, True, "shell_idle_seconds"),
        (False, True, "its user has disconnected"),
        (True, False, "runner manager is gone"),
    ],
)
async def test_shell_without_a_user_a_manager_or_input_ends(
    shells: Shells, clock: VirtualClock, *, has_user: bool, has_manager: bool, reason: str
) -> None:
    about = open_shell(shells)
    shells._store.begin(about.id)
    for _ in range(100):
        clock.jump(30)
        for stream, has_reader in ((OUTPUT, has_user), (INPUT, has_manager)):
            if has_reader:
                shells._store.note_reader(about.id, stream, 0, clock.now())
        shells.sweep()
        if shells.state(about)[0] == "over":
            break
    assert reason in shells.state(about)[1]
    clock.jump(module.KEPT_SECONDS + 1)
    shells.sweep()
    assert shells._store.ids() == []


async def test_shell_that_no_manager_picks_up_ends(shells: Shells, clock: VirtualClock) -> None:
    about = open_shell(shells)
    assert not shells.is_connected(a_running_job())
    clock.jump(module.GONE_SECONDS + 1)
    shells._store.note_reader(about.id, OUTPUT, 0, clock.now())
    shells.sweep()
    assert shells.state(about) == ("over", "no runner manager picked it up")
    await poll(shells)
    assert shells.is_connected(a_running_job())


def test_the_number_of_shells_is_limited(shells: Shells) -> None:
    for _ in range(module.MOST_OF_A_JOB):
        open_shell(shells)
    with pytest.raises(StoreError):
        open_shell(shells)
    for number in range(module.MOST_SHELLS - module.MOST_OF_A_JOB):
        open_shell(shells, a_running_job(number + 100))
    with pytest.raises(StoreError):
        open_shell(shells, a_running_job(99))


async def test_jobs_on_hold_are_those_that_their_manager_reports(shells: Shells, clock: VirtualClock) -> None:
    await poll(shells, held=(7, 8))
    await poll(shells, runner=4, held=(9,))
    assert [hold.job_id for hold in shells.holds()] == [7, 8, 9]
    assert shells.hold_of(7) is not None
    await poll(shells, held=(8,))
    assert [hold.job_id for hold in shells.holds()] == [8, 9]
    request = LookRequest(system_id=SYSTEM, held=(HeldJob(job_id=9, seconds=1), HeldJob(job_id=8, seconds=600)))
    await shells.poll(3, request, own_job_ids={8})
    assert [(hold.job_id, hold.runner_id) for hold in shells.holds()] == [(8, 3), (9, 4)], (
        "job 9 belongs to another manager"
    )
    clock.jump(601)
    assert shells.holds() == []
    clock.jump(module.KEPT_SECONDS)
    shells.sweep()
    assert shells._store.hold_of(8) is None


async def test_released_job_is_sent_until_its_manager_confirms(shells: Shells) -> None:
    with pytest.raises(ConflictError):
        shells.release(7)
    await poll(shells, held=(7,))
    shells.release(7)
    assert await poll(shells, held=(7,)) == ([], (7,))
    request = LookRequest(system_id=SYSTEM, held=(HeldJob(job_id=7, seconds=600),), releasing=(7,))
    assert (await shells.poll(3, request, own_job_ids={7})).release == ()
    assert await poll(shells) == ([], ())
    assert shells.hold_of(7) is None


async def test_manager_gets_stop_requests_at_once(tmp_path: Path, clock: VirtualClock) -> None:
    stops = StopRequests(clock)
    shells = Shells(ShellFiles(tmp_path / "looking"), clock, CellSettings(data=tmp_path), stops)
    job = msgspec.structs.replace(a_running_job(), system_id=SYSTEM, leased_at=1.0)
    canceling = WantedStop(job_id=7, status="canceling")
    async with asyncio.timeout(30):
        waiting = asyncio.ensure_future(shells.poll(3, LookRequest(system_id=SYSTEM, stops=()), own_job_ids=()))
        await settle()
        assert not waiting.done()
        stops.note(msgspec.structs.replace(job, state=JobState.CANCELING))
        assert (await waiting).stops == (canceling,)
        assert (await shells.poll(3, LookRequest(system_id=SYSTEM, stops=()), own_job_ids=())).stops == (canceling,)
        # A manager that already knows the stop request waits, and so does one that does not support stop requests.
        informed = asyncio.ensure_future(
            shells.poll(3, LookRequest(system_id=SYSTEM, stops=(canceling,)), own_job_ids=())
        )
        older = asyncio.ensure_future(shells.poll(3, LookRequest(system_id=SYSTEM), own_job_ids=()))
        await settle()
        assert (informed.done(), older.done()) == (False, False)
        stops.note(msgspec.structs.replace(job, state=JobState.CANCELED))
        assert (await informed).stops == (WantedStop(job_id=7, status="canceled"),)
        assert not older.done()
        shells.stop()
        assert (await older).stops == ()


def test_a_shell_in_a_job_of_a_runner_with_a_session_server_is_for_that_server(shells: Shells) -> None:
    job = a_running_job()
    assert not shells.is_connected(job)
    session = {"url": "https://10.0.0.1:8093/session/abc", "certificate": "PEM", "authorization": "secret"}
    shells.store_session(a_running_job(), session)
    shells.store_session(a_running_job(), session | {"authorization": "of a repeated request"})
    assert shells.is_connected(job)
    about = open_shell(shells, job)
    stored = RunnerSession(
        job_id=7,
        runner_id=3,
        system_id=SYSTEM,
        url=session["url"],
        certificate="PEM",
        authorization="of a repeated request",
    )
    assert shells.in_sessions.get_nowait() == (about, stored)
    assert shells.in_sessions.empty()


@pytest.mark.parametrize(
    "session",
    [
        {},
        {"url": "http://10.0.0.1/session/abc"},
        {"url": "https://"},
        {"url": "https://user@host/session"},
        {"url": "https://[/"},
        {"url": 5},
        {"url": "https://host/session", "certificate": "x" * 20_000},
    ],
)
def test_an_invalid_session_is_ignored(shells: Shells, session: dict[str, Any]) -> None:
    shells.store_session(a_running_job(), session)
    assert not shells.is_connected(a_running_job())
    open_shell(shells)
    assert shells.in_sessions.empty()


@pytest.mark.parametrize("other", [{"runner_id": RunnerId(4)}, {"system_id": "s_other"}])
def test_the_session_of_a_runner_that_gave_the_job_back_is_not_used(shells: Shells, other: dict[str, Any]) -> None:
    shells.store_session(a_running_job(), {"url": "https://host/session"})
    job = msgspec.structs.replace(a_running_job(), **other)
    assert not shells.is_connected(job)
    open_shell(shells, job)
    assert shells.in_sessions.empty()


async def test_sessions_are_removed_after_a_while(shells: Shells, clock: VirtualClock) -> None:
    shells.store_session(a_running_job(), {"url": "https://host/session"})
    await clock.advance(module.LONGEST_HOLD_SECONDS - 10)
    shells.sweep()
    assert shells.is_connected(a_running_job())
    await clock.advance(20)
    shells.sweep()
    assert not shells.is_connected(a_running_job())
