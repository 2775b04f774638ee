"""The manager's side of an environment plugin: restarts, connections, protocol versions, hooks, errors and shutdown."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.environment_plugins import a_plugin, plugin_environment
from tests.support.manager_values import a_place

from remuda.environments.host import END_SECONDS, EnvironmentProcess
from remuda.lib.waiting import wait_for_event
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError
from remuda.telemetry.logs import configure
from remuda.testing.agent_process import follow
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobStart

STEPS = '{"spec": {"remuda": 1}}\n---\n{"run": [{"name": "wait", "script": "sleep 60"}]}'
VERSION_1 = {"    async def open(": "    versions = (1,)\n\n    async def open("}
HOST = """
import asyncio, sys
from remuda.environments.host import EnvironmentProcess
async def main():
    process = EnvironmentProcess(sys.argv[1], say=print)
    await process.start()
    print(process.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_a_plugin_that_dies_is_restarted_and_jobs_continue(tmp_path: Path) -> None:
    async with plugin_environment(tmp_path, a_plugin(tmp_path / "program")) as environment:
        place = a_place()
        machine = await environment.acquire(place)
        work_dir = (await environment.prepare(place, machine)).work_dir
        client = await environment.connect(machine)
        await client.start(JobStart(id=place.key, work_dir=work_dir, steps=STEPS))
        first = environment.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: environment.capacity() == 0)
        await until(lambda: environment.capacity() == 2)
        assert environment.pid != first
        client.close()
        # The manager told the new process which job has which machine.
        assert await environment.acquire(place) == machine
        assert await environment.acquire(a_place(2)) != machine
        async with await environment.connect(machine) as client:
            assert place.key in (await client.hello()).jobs
            await client.close_job(place.key)
        await environment.clean_up(place, machine)


async def test_large_data_passes_a_connection_without_loss(tmp_path: Path) -> None:
    async with plugin_environment(tmp_path, a_plugin(tmp_path / "program")) as environment:
        machine = await environment.acquire(a_place())
        work_dir = (await environment.prepare(a_place(), machine)).work_dir
        steps = '{"spec": {"remuda": 1}}\n---\n{"run": [{"name": "much", "script": "seq 300000"}]}'
        async with await environment.connect(machine) as client:
            await client.start(JobStart(id="1-abc", work_dir=work_dir, steps=steps, env={"LARGE": "x" * 3_000_000}))
            result = await follow(client, "1-abc")
            await client.close_job("1-abc")
        assert result.check().status == "success"
        assert b"300000" in result.lines[-1]


@pytest.mark.parametrize(
    ("plugin", "config", "message"),
    [
        ("there-is-none", {}, "no program remuda-environment-there-is-none in PATH"),
        ("/nowhere/plugin", {}, "there is no such program"),
        ("", {"machine": 1}, "machine: unknown; this plugin knows machines and folder"),
    ],
)
async def test_error_messages_for_plugins_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plugin: str, config: dict[str, int], message: str
) -> None:
    monkeypatch.setattr("remuda.manager.environments.plugin.UP_SECONDS", 3.0)
    program = plugin or str(a_plugin(tmp_path / "program"))
    async with plugin_environment(tmp_path, program, config) as environment:
        assert environment.capacity() == 0
        with pytest.raises(EnvironmentTemporaryError, match=message):
            await environment.acquire(a_place())


async def test_error_for_no_common_version_names_both_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.manager.environments.plugin.UP_SECONDS", 3.0)
    newer = {"    async def open(": "    versions = (3, 4)\n\n    async def open("}
    async with plugin_environment(tmp_path, a_plugin(tmp_path / "program", replacing=newer)) as environment:
        with pytest.raises(EnvironmentTemporaryError, match="the plugin speaks 3, 4, this Remuda 1, 2"):
            await environment.usage()


async def test_close_waits_for_the_end_of_the_plugin(tmp_path: Path) -> None:
    program = tmp_path / "program"
    lines = [
        "echo 'remuda-environment|9|unix|/nowhere'",
        "cat > /dev/null",
        f"touch {tmp_path}/ending; sleep 1; touch {tmp_path}/ended",
    ]
    program.write_text("#!/bin/sh\n" + "\n".join(lines))
    program.chmod(0o755)
    async with plugin_environment(tmp_path, program) as environment:
        assert environment.capacity() == 0
        await until((tmp_path / "ending").exists)
    assert (tmp_path / "ended").exists()


async def test_a_plugin_with_version_1_has_no_hooks_and_no_usage(tmp_path: Path) -> None:
    async with plugin_environment(tmp_path, a_plugin(tmp_path / "program", replacing=VERSION_1)) as environment:
        assert (await environment.usage()).disk_free_bytes > 1 << 60
        machine = await environment.acquire(a_place())
        assert await environment.run_hook("before_job", a_place(), machine) == ""
        with pytest.raises(EnvironmentLostError, match="before_job cannot run: the plugin speaks protocol version 1"):
            await environment.run_hook("before_job", a_place(before_job="true"), machine)


async def test_a_plugin_with_version_2_runs_hooks(tmp_path: Path) -> None:
    async with plugin_environment(tmp_path, a_plugin(tmp_path / "program")) as environment:
        machine = await environment.acquire(a_place())
        assert "it is 1" in await environment.run_hook(
            "before_job", a_place(before_job="echo it is $REMUDA_JOB"), machine
        )
        with pytest.raises(EnvironmentLostError, match="after_job ended with 3: no"):
            await environment.run_hook("after_job", a_place(after_job="echo no; exit 3"), machine)


async def test_a_connection_to_an_unknown_machine_is_lost(tmp_path: Path) -> None:
    async with plugin_environment(tmp_path, a_plugin(tmp_path / "program")) as environment:
        environment.adopt(a_place(), "gone")
        with pytest.raises(EnvironmentLostError, match="there is no machine gone"):
            await environment.connect("gone")


async def test_the_plugin_ends_when_the_manager_ends_or_is_killed(tmp_path: Path) -> None:
    program = a_plugin(tmp_path / "program")
    async with plugin_environment(tmp_path, program) as environment:
        await environment.usage()
        pid = environment.pid
        assert pid is not None
    assert is_gone(pid)
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOST, str(program), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert host.stdout is not None
    pid = int(await host.stdout.readline())
    host.kill()
    await host.wait()
    await until(lambda: is_gone(pid))


async def test_output_of_the_plugin_is_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure(level="info", log_format="text", stream=sys.stdout)
    replacing = {"        self.machines = [": '        print("talks of itself")\n        self.machines = ['}
    async with plugin_environment(tmp_path, a_plugin(tmp_path / "program", replacing=replacing)) as environment:
        await environment.usage()
        await wait_for_event(asyncio.Event(), within_seconds=0.2)
    configure(level="error", log_format="text", stream=sys.__stderr__)
    assert "talks of itself" in capsys.readouterr().out


async def test_a_child_that_keeps_the_pipes_open_does_not_delay_the_end(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho 'remuda-environment|1|unix|/nowhere'\nsleep 60 <&0 &\ncat > /dev/null\n")
    program.chmod(0o755)
    process = EnvironmentProcess(str(program), say=print)
    await process.start()
    try:
        async with asyncio.timeout(END_SECONDS):
            assert await process.close()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
