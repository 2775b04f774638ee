"""Asking a running manager how it stands, and telling it to take no more jobs, as an operator does."""

import asyncio
import json
import shutil
import stat
import sys
from pathlib import Path

import pytest
from tests.support.runners.manager_bench import ManagerBench

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


async def started(*words: str) -> asyncio.subprocess.Process:
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
    process = await started(*words)
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_how_a_manager_stands(
    bench: ManagerBench,
    coordinator: Coordinator,
    environment: FakeEnvironment,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with bench.manager(environment):
        await coordinator.enqueue("true")
        key = await environment.agent.job()
        await environment.agent.add_result(key, event="started", name="step_script")
        await coordinator.until(lambda: coordinator.held)
        found = await ask_status(bench.data)
        while found.jobs[0].stage != "step_script":
            found = await ask_status(bench.data)
        mode = stat.S_IMODE((bench.data / NAME).stat().st_mode)
        await environment.agent.end(key)
    assert mode == 0o600
    assert (found.state, found.config.file) == ("running", str(bench.config))
    assert (found.slots.concurrent, found.slots.running, found.slots.saturation) == (4, 1, 0.25)
    runner = found.runners[0]
    assert (runner.name, runner.url, runner.health, runner.jobs) == ("bench", coordinator.url, "well", 1)
    assert (runner.open_requests, runner.hard_limit) == (found.slots.asking, 2)
    assert runner.answered_at
    job = found.jobs[0]
    assert (job.id, job.state, job.machine) == (101, "running", "fake")
    assert [(machine.machine, machine.is_connected) for machine in found.machines] == [("fake", True)]
    show(found)
    output = capsys.readouterr().out
    assert "1 with jobs" in output
    assert "step_script" in output


async def test_too_little_disk_and_a_server_in_trouble_are_shown(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    bench.write_config(
        extra='[[runners]]\nname = "away"\nurl = "http://127.0.0.1:1"\ntoken = "glrt-away"\nexecutor = "shell"\n'
        '[[runners]]\nname = "full"\nurl = "http://127.0.0.1:1"\ntoken = "glrt-full"\nexecutor = "shell"\n'
        '[runners.remuda]\nleast_disk = "4000t"\n'
    )
    async with bench.manager(environment):
        found = await ask_status(bench.data)
        while not all(runner.problem for runner in found.runners[1:]):
            found = await ask_status(bench.data)
    well, away, full = found.runners
    assert (well.health, well.problem) == ("well", "")
    assert away.health == "troubled"
    assert "cannot be reached" in away.problem
    assert full.is_blocked
    assert "least_disk asks for" in full.problem


async def test_a_server_that_is_gone_while_all_slots_have_jobs_is_shown(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    bench.write_config(concurrent=1)
    async with bench.manager(environment, keep_alive_seconds=0.1):
        job = await coordinator.enqueue("true")
        key = await environment.agent.job()
        await coordinator.stop()
        found = await ask_status(bench.data)
        while found.runners[0].health == "well":
            found = await ask_status(bench.data)
        assert "the server cannot be reached; 1 job waits: " in found.runners[0].problem
        await coordinator.start()
        while found.runners[0].health != "well":
            found = await ask_status(bench.data)
        assert found.runners[0].problem == ""
        await environment.agent.end(key)
        await coordinator.until_over(job)


async def test_what_a_job_waits_for_and_why_a_machine_is_not_reached_are_shown(
    bench: ManagerBench,
    coordinator: Coordinator,
    environment: FakeEnvironment,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with bench.manager(environment):
        job = await coordinator.enqueue("true")
        key = await environment.agent.job()
        environment.is_broken = True
        await environment.die()
        found = await ask_status(bench.data)
        while not (found.jobs[0].waits_for and found.machines[0].problem):
            found = await ask_status(bench.data)
        show(found)
        environment.is_broken = False
        while found.jobs[0].waits_for or found.machines[0].problem:
            found = await ask_status(bench.data)
        await environment.agent.end(key)
        await coordinator.until_over(job)
    output = capsys.readouterr().out
    assert "job 101 waits: " in output
    assert "machine fake: " in output


async def test_a_job_that_cannot_be_started_for_the_moment_says_why_once(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts, is_full = 0, True
    prepare = environment.prepare

    async def full(place: JobPlace, machine: str) -> PreparedPlace:
        nonlocal attempts
        attempts += 1
        if is_full:
            raise EnvironmentTemporaryError("its disk is full")
        return await prepare(place, machine)

    monkeypatch.setattr(environment, "prepare", full)
    levels: list[str] = []
    async with bench.manager(environment):
        logs.notify_of_problems("manager", levels.append)
        job = await coordinator.enqueue("true")
        found = await ask_status(bench.data)
        while not found.jobs or not found.jobs[0].waits_for:
            found = await ask_status(bench.data)
        assert (found.jobs[0].state, found.jobs[0].waits_for) == ("pending", "its disk is full")
        await until(lambda: attempts >= 3)
        is_full = False
        key = await environment.agent.job()
        while found.jobs[0].waits_for:
            found = await ask_status(bench.data)
        await environment.agent.end(key)
        await coordinator.until_over(job)
    assert levels.count("warning") == 1


async def test_a_configuration_that_cannot_be_used_is_shown(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    async with bench.manager(environment):
        bench.config.write_text("concurrent = ")
        found = await ask_status(bench.data)
        while not found.config.error:
            found = await ask_status(bench.data)
        assert "config.toml: not valid TOML" in found.config.error
        assert found.slots.concurrent == 4
        bench.write_config(concurrent=3)
        while found.slots.concurrent != 3:
            found = await ask_status(bench.data)
        assert found.config.error == ""


async def test_draining_waits_for_the_jobs_and_takes_no_more(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    begun: list[int] = []
    async with bench.manager(environment):
        job = await coordinator.enqueue("true")
        key = await environment.agent.job()
        async with asyncio.TaskGroup() as group:
            over = group.create_task(ask_drain(bench.data, on_begin=begun.append, waits=True))
            await until(lambda: begun == [1])
            # A request that is still held would get the next job, and nobody would read the answer.
            await coordinator.until(lambda: coordinator.held == 0)
            late = await coordinator.enqueue("true")
            assert (await ask_status(bench.data)).state == "draining"
            await environment.agent.end(key)
            assert await over == 0
    assert (job.status, late.status) == ("success", "pending")


async def test_there_is_no_manager(tmp_path: Path) -> None:
    with pytest.raises(NoManagerError, match=r"no manager uses the data folder .*; or name the folder of another one"):
        await ask_status(tmp_path)
    code, output = await remuda("status", "--data", str(tmp_path))
    assert code == 2
    assert output.startswith("remuda: no manager uses the data folder")
    code, output = await remuda("drain", "--data", str(tmp_path), "--timeout", "5s")
    assert (code, output) == (2, "remuda: --timeout says how long --wait takes; give --wait too\n")


async def test_the_commands(bench: ManagerBench, coordinator: Coordinator) -> None:
    process = await bench.spawn()
    job = await coordinator.enqueue("echo started", f"until [ -e {bench.folder}/go ]; do sleep 0.05; done")
    await coordinator.until(lambda: b"started\n" in job.output)
    code, output = await remuda("status", "--data", str(bench.data), "--output", "json")
    assert code == 0
    assert json.loads(output)["jobs"][0]["id"] == job.id
    code, output = await remuda("status", "--data", str(bench.data))
    assert code == 0
    assert "4: 1 with jobs" in output
    code, output = await remuda("drain", "--data", str(bench.data), "--wait", "--timeout", "1s")
    assert code == 1
    assert "it goes on draining" in output
    waiting = await started("drain", "--data", str(bench.data), "--wait")
    assert waiting.stdout is not None
    assert await waiting.stdout.readline() == b"no more jobs are taken; 1 job to wait for\n"
    (bench.folder / "go").touch()
    assert await waiting.stdout.read() == b"the manager is over\n"
    assert await waiting.wait() == 0
    assert await process.wait() == 0
    assert job.status == "success"


async def test_a_manager_that_is_killed_says_nothing(bench: ManagerBench, coordinator: Coordinator) -> None:
    process = await bench.spawn()
    job = await coordinator.enqueue("echo started", "sleep 100")
    await coordinator.until(lambda: b"started\n" in job.output)
    begun: list[int] = []
    async with asyncio.TaskGroup() as group:
        over = group.create_task(_outcome(bench.data, begun))
        await until(lambda: bool(begun))
        process.kill()
        assert "ended without an answer" in await over
    await process.wait()
    job.status = "canceled"


async def _outcome(folder: Path, begun: list[int]) -> str:
    try:
        return str(await ask_drain(folder, on_begin=begun.append, waits=True))
    except ManagerError as error:
        return str(error)


async def test_a_deep_folder_and_one_that_is_removed(
    tmp_path: Path, coordinator: Coordinator, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "LOOK_SECONDS", 0.05)
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    bench = ManagerBench(folder, coordinator)
    async with bench.manager(environment):
        assert (await ask_status(bench.data)).state == "running"
        shutil.rmtree(bench.data)
        await until((bench.data / NAME).exists)
        assert (await ask_status(bench.data)).state == "running"


async def test_what_is_no_order_gets_no_answer(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    async with bench.manager(environment):
        for line in (b"rubbish\n", b"[]\n", b'{"command": "dance"}\n', b""):
            reader, writer = await asyncio.open_unix_connection(str(bench.data / NAME))
            writer.write(line)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
        assert (await ask_status(bench.data)).state == "running"


async def test_an_order_that_fails_is_said_to_whoever_gave_it(tmp_path: Path) -> None:
    async def fails(_: control.Command) -> control.Refused:
        async with asyncio.TaskGroup():
            raise KeyError("nobody foresaw it")

    def status() -> ManagerStatus:
        raise AssertionError("nobody asks")

    manager = control.Control(tmp_path, status=status, drain=lambda: None, clock=SystemClock(), others={"sweep": fails})
    serving = asyncio.create_task(manager.run(), name="control")
    await until((tmp_path / NAME).exists)
    with (
        capture_logs() as said,
        pytest.raises(ManagerError, match=r"the manager failed \(ExceptionGroup\); its log says why"),
    ):
        await control.ask(tmp_path, control.Command(command="sweep"), control.Refused)
    assert [line["command"] for line in said if line["log_level"] == "error"] == ["sweep"]
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_an_order_ends_with_its_manager(tmp_path: Path) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def lasts(_: control.Command) -> control.Refused:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()
        raise AssertionError("nobody sets it")

    def status() -> ManagerStatus:
        raise AssertionError("nobody asks")

    manager = control.Control(tmp_path, status=status, drain=lambda: None, clock=SystemClock(), others={"sweep": lasts})
    serving = asyncio.create_task(manager.run(), name="control")
    await until((tmp_path / NAME).exists)
    asking = asyncio.create_task(
        control.ask(tmp_path, control.Command(command="sweep"), control.Refused), name="who asks"
    )
    await begun.wait()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert over.is_set()
    with pytest.raises(ManagerError, match="the manager is stopping"):
        await asking
