"""The status of a running manager and the command to drain it, through its control socket."""

import asyncio
import json
import shutil
import stat
import sys
from pathlib import Path

import pytest
from tests.support.runners.manager_harness import ManagerHarness

from remuda.cli.manager.status import show
from remuda.lib.clock import SystemClock
from remuda.manager.environments.port import JobPlace, PreparedPlace
from remuda.manager.errors import EnvironmentTemporaryError, ManagerError
from remuda.manager.process import control
from remuda.manager.process.control import NAME, NoManagerError, ask_drain, ask_status
from remuda.manager.process.status import ManagerStatus
from remuda.telemetry import logs
from remuda.testing.coordinator import Coordinator
from remuda.testing.environment import FakeEnvironment
from remuda.testing.logs import capture_logs
from remuda.testing.waiting import until


async def start_command(*words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "remuda.cli.main",
        "manager",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def remuda(*words: str) -> tuple[int, str]:
    process = await start_command(*words)
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_status_of_a_manager(
    harness: ManagerHarness, environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    async with harness.manager(environment):
        await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        await environment.agent.add_result(key, event="started", name="step_script")
        await harness.coordinator.until(lambda: harness.coordinator.held)
        status = await ask_status(harness.data)
        while status.jobs[0].stage != "step_script":
            status = await ask_status(harness.data)
        mode = stat.S_IMODE((harness.data / NAME).stat().st_mode)
        await environment.agent.end(key)
    assert mode == 0o600
    assert (status.state, status.config.file) == ("running", str(harness.config))
    assert (status.slots.concurrent, status.slots.running, status.slots.saturation) == (4, 1, 0.25)
    runner = status.runners[0]
    assert (runner.name, runner.url, runner.health, runner.jobs) == ("bench", harness.coordinator.url, "well", 1)
    assert (runner.open_requests, runner.hard_limit) == (status.slots.asking, 2)
    assert runner.answered_at
    job = status.jobs[0]
    assert (job.id, job.state, job.machine) == (101, "running", "fake")
    assert [(machine.machine, machine.is_connected) for machine in status.machines] == [("fake", True)]
    show(status)
    output = capsys.readouterr().out
    assert "1 with jobs" in output
    assert "step_script" in output


async def test_low_disk_space_and_no_server_are_shown(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    harness.write_config(
        extra='[[runners]]\nname = "away"\nurl = "http://127.0.0.1:1"\ntoken = "glrt-away"\nexecutor = "shell"\n'
        '[[runners]]\nname = "full"\nurl = "http://127.0.0.1:1"\ntoken = "glrt-full"\nexecutor = "shell"\n'
        '[runners.remuda]\nleast_disk = "4000t"\n'
    )
    async with harness.manager(environment):
        status = await ask_status(harness.data)
        while not all(runner.problem for runner in status.runners[1:]):
            status = await ask_status(harness.data)
    well, away, full = status.runners
    assert (well.health, well.problem) == ("well", "")
    assert away.health == "troubled"
    assert "cannot be reached" in away.problem
    assert full.is_blocked
    assert "least_disk asks for" in full.problem


async def test_busy_manager_shows_an_unreachable_server(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    harness.write_config(concurrent=1)
    async with harness.manager(environment, keep_alive_seconds=0.1):
        job = await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        await harness.coordinator.stop()
        status = await ask_status(harness.data)
        while status.runners[0].health == "well":
            status = await ask_status(harness.data)
        assert "the server cannot be reached; 1 job waits: " in status.runners[0].problem
        await harness.coordinator.start()
        while status.runners[0].health != "well":
            status = await ask_status(harness.data)
        assert status.runners[0].problem == ""
        await environment.agent.end(key)
        await harness.coordinator.until_over(job)


async def test_the_causes_of_a_waiting_job_and_an_unreachable_machine_are_shown(
    harness: ManagerHarness, environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    async with harness.manager(environment):
        job = await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        environment.is_broken = True
        await environment.die()
        status = await ask_status(harness.data)
        while not (status.jobs[0].waits_for and status.machines[0].problem):
            status = await ask_status(harness.data)
        show(status)
        environment.is_broken = False
        while status.jobs[0].waits_for or status.machines[0].problem:
            status = await ask_status(harness.data)
        await environment.agent.end(key)
        await harness.coordinator.until_over(job)
    output = capsys.readouterr().out
    assert "job 101 waits: " in output
    assert "machine fake: " in output


async def test_the_cause_of_a_delayed_start_is_logged_once(
    harness: ManagerHarness, coordinator: Coordinator, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts, is_full = 0, True
    prepare = environment.prepare

    async def prepare_if_not_full(place: JobPlace, machine: str) -> PreparedPlace:
        nonlocal attempts
        attempts += 1
        if is_full:
            raise EnvironmentTemporaryError("its disk is full")
        return await prepare(place, machine)

    monkeypatch.setattr(environment, "prepare", prepare_if_not_full)
    levels: list[str] = []
    async with harness.manager(environment):
        logs.notify_of_problems("manager", levels.append)
        job = await coordinator.enqueue("true")
        status = await ask_status(harness.data)
        while not status.jobs or not status.jobs[0].waits_for:
            status = await ask_status(harness.data)
        assert (status.jobs[0].state, status.jobs[0].waits_for) == ("pending", "its disk is full")
        await until(lambda: attempts >= 3)
        is_full = False
        key = await environment.agent.job()
        while status.jobs[0].waits_for:
            status = await ask_status(harness.data)
        await environment.agent.end(key)
        await coordinator.until_over(job)
    assert levels.count("warning") == 1


async def test_unusable_configuration_is_shown(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    async with harness.manager(environment):
        harness.config.write_text("concurrent = ")
        status = await ask_status(harness.data)
        while not status.config.error:
            status = await ask_status(harness.data)
        assert "config.toml: not valid TOML" in status.config.error
        assert status.slots.concurrent == 4
        harness.write_config(concurrent=3)
        while status.slots.concurrent != 3:
            status = await ask_status(harness.data)
        assert status.config.error == ""


async def test_draining_waits_for_jobs_and_accepts_none(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    begun: list[int] = []
    async with harness.manager(environment):
        job = await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        async with asyncio.TaskGroup() as group:
            result = group.create_task(ask_drain(harness.data, on_begin=begun.append, waits=True))
            await until(lambda: begun == [1])
            # A request that is still held would get the next job, but its answer would not be read.
            await harness.coordinator.until(lambda: harness.coordinator.held == 0)
            late = await harness.coordinator.enqueue("true")
            assert (await ask_status(harness.data)).state == "draining"
            await environment.agent.end(key)
            assert await result == 0
    assert (job.status, late.status) == ("success", "pending")


async def test_commands_without_a_manager(tmp_path: Path) -> None:
    with pytest.raises(NoManagerError, match=r"no manager uses the data folder .*; or name the folder of another one"):
        await ask_status(tmp_path)
    code, output = await remuda("status", "--data", str(tmp_path))
    assert code == 2
    assert output.startswith("remuda: no manager uses the data folder")
    code, output = await remuda("drain", "--data", str(tmp_path), "--timeout", "5s")
    assert (code, output) == (2, "remuda: --timeout says how long --wait takes; give --wait too\n")


async def test_the_commands_status_and_drain(harness: ManagerHarness, coordinator: Coordinator) -> None:
    process = await harness.spawn()
    job = await coordinator.enqueue("echo started", f"until [ -e {harness.folder}/go ]; do sleep 0.05; done")
    await coordinator.until(lambda: b"started\n" in job.output)
    code, output = await remuda("status", "--data", str(harness.data), "--output", "json")
    assert code == 0
    assert json.loads(output)["jobs"][0]["id"] == job.id
    code, output = await remuda("status", "--data", str(harness.data))
    assert code == 0
    assert "4: 1 with jobs" in output
    code, output = await remuda("drain", "--data", str(harness.data), "--wait", "--timeout", "1s")
    assert code == 1
    assert "it goes on draining" in output
    waiting = await start_command("drain", "--data", str(harness.data), "--wait")
    assert waiting.stdout is not None
    assert await waiting.stdout.readline() == b"no more jobs are taken; 1 job to wait for\n"
    (harness.folder / "go").touch()
    assert await waiting.stdout.read() == b"the manager has ended\n"
    assert await waiting.wait() == 0
    assert await process.wait() == 0
    assert job.status == "success"


async def test_a_manager_that_is_killed_during_a_drain(harness: ManagerHarness, coordinator: Coordinator) -> None:
    process = await harness.spawn()
    job = await coordinator.enqueue("echo started", "sleep 100")
    await coordinator.until(lambda: b"started\n" in job.output)
    begun: list[int] = []
    async with asyncio.TaskGroup() as group:
        result = group.create_task(_drain(harness.data, begun))
        await until(lambda: bool(begun))
        process.kill()
        assert "ended without an answer" in await result
    await process.wait()
    job.status = "canceled"


async def _drain(folder: Path, begun: list[int]) -> str:
    try:
        return str(await ask_drain(folder, on_begin=begun.append, waits=True))
    except ManagerError as error:
        return str(error)


async def test_a_long_path_and_a_removed_data_folder(
    tmp_path: Path, coordinator: Coordinator, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "LOOK_SECONDS", 0.05)
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    harness = ManagerHarness(folder, coordinator)
    async with harness.manager(environment):
        assert (await ask_status(harness.data)).state == "running"
        shutil.rmtree(harness.data)
        await until((harness.data / NAME).exists)
        assert (await ask_status(harness.data)).state == "running"


async def test_invalid_commands_get_no_answer(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    async with harness.manager(environment):
        for line in (b"rubbish\n", b"[]\n", b'{"command": "dance"}\n', b""):
            reader, writer = await asyncio.open_unix_connection(str(harness.data / NAME))
            writer.write(line)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
        assert (await ask_status(harness.data)).state == "running"


async def test_the_error_of_a_failed_command_is_returned(tmp_path: Path) -> None:
    async def fail(_: control.Command) -> control.Refused:
        async with asyncio.TaskGroup():
            raise KeyError("unexpected error")

    def read_status() -> ManagerStatus:
        raise AssertionError("the status is not read")

    manager = control.Control(
        tmp_path, status=read_status, drain=lambda: None, clock=SystemClock(), others={"sweep": fail}
    )
    serving = asyncio.create_task(manager.run(), name="control")
    await until((tmp_path / NAME).exists)
    with (
        capture_logs() as events,
        pytest.raises(ManagerError, match=r"the manager failed \(ExceptionGroup\); its log says why"),
    ):
        await control.ask(tmp_path, control.Command(command="sweep"), control.Refused)
    assert [event["command"] for event in events if event["log_level"] == "error"] == ["sweep"]
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_a_running_command_ends_with_its_manager(tmp_path: Path) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def run_forever(_: control.Command) -> control.Refused:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()
        raise AssertionError("the event is never set")

    def read_status() -> ManagerStatus:
        raise AssertionError("the status is not read")

    manager = control.Control(
        tmp_path, status=read_status, drain=lambda: None, clock=SystemClock(), others={"sweep": run_forever}
    )
    serving = asyncio.create_task(manager.run(), name="control")
    await until((tmp_path / NAME).exists)
    asking = asyncio.create_task(
        control.ask(tmp_path, control.Command(command="sweep"), control.Refused), name="command"
    )
    await begun.wait()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert over.is_set()
    with pytest.raises(ManagerError, match="the manager is stopping"):
        await asking
