"""What becomes of machines when managers, configurations and plugins change; named after known complaints."""

import asyncio
import io
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remuda.cli.main import call
from remuda.fleeting import InProcess
from remuda.lib.clock import SystemClock
from remuda.manager.config.autoscaler import AutoscalerConfig, AutoscalerPolicy
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.autoscaled import AutoscaledEnvironment
from remuda.manager.errors import EnvironmentTemporaryError
from remuda.manager.process.control import ask_drain
from remuda.telemetry.logs import configure
from remuda.testing.instance_groups import a_plugin
from remuda.testing.waiting import until

pytestmark = pytest.mark.long

ONE = "one: {script: [hostname]}\n"
IDLE = 'idle_count = 1\nidle_time = "1s"'


async def test_policy_reload_acts(site: Any) -> None:
    """idle_count 0 in a file that is read again empties the pool without a restart."""
    site.configure(policy=IDLE)
    async with site.manager() as running:
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        site.configure(policy='idle_count = 0\nidle_time = "1s"')
        running.reload.set()
        await until(lambda: not site.group.instances, seconds=60)
        assert (site.group.made, site.group.events.count("init")) == (1, 1)


async def test_token_rotation_one_scaler(site: Any) -> None:
    """A new token keeps the plugin, the scaler and all machines."""
    site.configure(policy=IDLE)
    async with site.manager() as running:
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        reset = site.cell.send("POST", "/api/v4/runners/reset_authentication_token", {"token": site.token})
        assert reset.status == 201
        site.configure(policy=IDLE, token=reset.json()["token"])
        running.reload.set()
        jobs = await site.jobs(await site.push(ONE))
        assert jobs["one"]["status"] == "success"
        status = await site.status()
        assert status.fleets[0].runner == status.runners[0].runner
        assert [one.uses for one in (await site.scaling()).instances if one.id.startswith("m1-")] == [1]
    assert site.group.events.count("init") == 1


async def test_restart_keeps_all(site: Any, tmp_path: Path) -> None:
    """Idle and busy machines, their jobs and what they were used for are there after a restart."""
    site.configure(autoscaler="capacity_per_instance = 2\nmax_use_count = 10", policy=IDLE)
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
    async with site.manager():
        assert (await site.jobs(await site.push(ONE)))["one"]["status"] == "success"
        pipeline = await site.push(f"long: {{script: [touch {tmp_path}/runs, '{wait}', hostname]}}\n")
        await until((tmp_path / "runs").exists, seconds=60)
        before = {one.name: one.uses for one in (await site.scaling()).instances}
    machines = set(site.group.instances)
    assert sum(before.values()) == 2
    async with site.manager():
        (tmp_path / "go").touch()
        jobs = await site.jobs(pipeline)
        assert jobs["long"]["status"] == "success"
        after = {one.name: one.uses for one in (await site.scaling()).instances}
        assert {name: uses for name, uses in after.items() if name in before} == before
        assert machines <= set(site.group.instances)
    assert not any(event.startswith("delete") for event in site.group.events)


async def test_a_plugin_that_has_not_begun_speaks_against_no_machine(group: Any, tmp_path: Path) -> None:
    """After a restart links are dialled before the plugin is there; a busy machine is not to be replaced for that."""
    scaling = AutoscalerConfig(
        plugin="lab", update_interval_when_expecting="200ms", policy=(AutoscalerPolicy(idle_count=1),)
    )
    runner = RunnerConfig(name="bench", url="http://cell.invalid", executor="instance", autoscaler=scaling)

    def made() -> AutoscaledEnvironment:
        plugins = {"lab": InProcess(group)}
        return AutoscaledEnvironment(
            runner, folder=tmp_path, system_id="s_1", clock=SystemClock(), plugins=plugins.__getitem__
        )

    def is_ready(environment: AutoscaledEnvironment) -> bool:
        return [one.state for one in environment.status().instances] == ["ready"]

    for _ in range(2):
        environment = made()
        for machine in environment.status().instances:
            before = machine.state
            for _ in range(5):
                with pytest.raises(EnvironmentTemporaryError):
                    await environment.connect(machine.name)
            assert [one.state for one in environment.status().instances] == [before]
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(environment.run(), name="scaler")
            await until(partial(is_ready, environment), seconds=60)
            running.cancel()
        await environment.close()
    assert (group.made, group.events) == (1, ["init", "shutdown", "init", "shutdown"])


async def test_shutdown_order(site: Any) -> None:
    """Machines are deleted before the plugin stops, and nothing is left."""
    site.configure(autoscaler="delete_instances_on_shutdown = true\nshutdown_deletion_interval = 1", policy=IDLE)
    async with site.manager():
        await until(lambda: len(site.group.instances) == 1, seconds=60)
    assert site.group.events == ["init", "delete m1-1", "shutdown"]
    assert not site.group.instances


async def test_a_runner_that_is_taken_out_of_the_file_leaves_nothing(site: Any) -> None:
    site.configure(policy=IDLE)
    async with site.manager() as running:
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        (site.folder / "config.toml").write_text("concurrent = 2\n")
        running.reload.set()
        await until(lambda: "shutdown" in site.group.events, seconds=60)
        assert not site.group.instances


async def test_a_runner_that_is_put_back_while_its_machines_go_waits_for_that(site: Any) -> None:
    """Two scalers would write one file, and one of them would delete what the other hands out."""
    site.configure(policy=IDLE)
    kept = (site.folder / "config.toml").read_text()
    async with site.manager() as running:
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        site.group.may_end.clear()
        (site.folder / "config.toml").write_text("concurrent = 2\n")
        running.reload.set()
        await until(lambda: "shutdown" in site.group.events, seconds=60)
        (site.folder / "config.toml").write_text(kept)
        running.reload.set()
        async with asyncio.timeout(60):
            while not (status := await site.status()).config.error:  # noqa: ASYNC110 - it is asked over a socket
                await asyncio.sleep(0.05)
        assert "its environment is still being closed" in status.config.error
        assert ([one.is_ending for one in status.fleets], site.group.events) == (
            [True],
            ["init", "delete m1-1", "shutdown"],
        )
        site.group.may_end.set()
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        assert (await site.jobs(await site.push(ONE)))["one"]["status"] == "success"
        assert not (await site.status()).config.error
    assert site.group.events.count("init") == 2


async def test_leaked_machines_swept(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine of a runner that is not configured any more is found by its tag; removed only when asked to."""
    site.configure(policy=IDLE)
    async with site.manager():
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        system = (await site.status()).system_id
        await site.group.increase(1)
        leaked = next(one for one in site.group.instances if one.startswith("m2"))
        site.group.owners[leaked] = f"{system}/gone-123456"
        words = ["scale", "sweep", "--data", str(site.data)]
        assert await asyncio.to_thread(call, words) == 0
        assert f"{system}/gone-123456, is not configured here any more" in capsys.readouterr().out
        assert leaked in site.group.instances
        assert await asyncio.to_thread(call, [*words, "--remove"]) == 0
        assert leaked not in site.group.instances
        assert len(site.group.instances) == 1
        assert await asyncio.to_thread(call, words) == 0
        assert "no machine is without an owner" in capsys.readouterr().out


async def test_a_manager_that_drains_makes_no_idle_machines(site: Any, tmp_path: Path) -> None:
    site.configure(policy=IDLE)
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
    async with site.manager():
        pipeline = await site.push(f"long: {{script: [touch {tmp_path}/runs, '{wait}']}}\n")
        await until((tmp_path / "runs").exists, seconds=60)
        await ask_drain(site.data, on_begin=lambda _: None, waits=False)
        async with asyncio.timeout(60):
            while "no more jobs are asked for" not in (await site.scaling()).explanation:  # noqa: ASYNC110 - a socket
                await asyncio.sleep(0.05)
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        (tmp_path / "go").touch()
        assert (await site.jobs(pipeline))["long"]["status"] == "success"


async def test_machines_of_a_runner_that_went_while_no_manager_ran_are_swept(
    site: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any runner left that has machines: what is kept of the one that is gone leads to its plugin."""
    site.configure(policy=IDLE)
    async with site.manager(), asyncio.timeout(60):
        while not (await site.scaling()).instances:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
    (machine,) = site.group.instances
    config = site.folder / "config.toml"
    lines = config.read_text().partition("[runners.autoscaler]")[0]
    config.write_text(lines.replace('executor = "instance"', 'executor = "shell"'))
    said = io.StringIO()
    configure(level="warning", log_format="json", stream=said)  # as it is until the first command sets it anew
    async with site.manager():
        await until(lambda: "machines exist that belong to no configured runner" in said.getvalue())
        assert json.loads(said.getvalue())["machines"] == [f"lab/{machine}"]
        words = ["scale", "sweep", "--data", str(site.data)]
        assert await asyncio.to_thread(call, words) == 0
        assert "it was made for bench (bench-" in capsys.readouterr().out
        assert machine in site.group.instances
        assert await asyncio.to_thread(call, [*words, "--remove"]) == 0
        assert not site.group.instances
    assert not list((site.data / "machines").glob("*.json"))


async def test_a_machine_that_cannot_be_prepared_is_replaced_and_said_why(site: Any) -> None:
    site.configure(autoscaler='instance_ready_command = "[ $(hostname) != m1 ]"\nmax_instances = 2', policy=IDLE)
    async with site.manager():
        await until(lambda: "delete m1-1" in site.group.events, seconds=60)
        status = await site.status()
        assert "ended with 1 there" in " ".join(status.fleets[0].problems)


async def test_failed_update_keeps_scaling(site: Any) -> None:
    """A provider that does not answer for a while costs no job: slots that are there are handed out."""
    site.configure(autoscaler="max_instances = 2", policy='idle_count = 1\nidle_time = "10m"')
    async with site.manager():
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        await site.jobs(await site.push(ONE))
        site.group.is_down = True
        assert (await site.jobs(await site.push(ONE + "two: {script: [hostname]}\n")))["two"]["status"] == "success"
        site.group.is_down = False


@asynccontextmanager
async def a_process(config: Path, data: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    words = ["-m", "remuda.manager", "--config", str(config), "--data", str(data)]
    with (config.parent / "out").open("ab") as out:
        process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=out, stderr=out)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_plugin_orphan_ends(tmp_path: Path) -> None:
    """A manager that is killed takes its plugin along, whatever the plugin does; the next one goes on."""
    program = a_plugin(tmp_path / "program")
    config = tmp_path / "config.toml"
    config.write_text(
        'concurrent = 1\n[[runners]]\nname = "bench"\nurl = "http://127.0.0.1:9"\ntoken = "glrt-x"\n'
        f'executor = "instance"\n[runners.autoscaler]\nplugin = "{program}"\n'
    )
    mark = str(program).encode()

    def plugins() -> list[int]:
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and folder.name != str(os.getpid()):
                try:
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if mark in words and b"launch.py" not in words[1]:
                    found.append(int(folder.name))
        return found

    for _ in range(2):
        async with a_process(config, tmp_path / "data") as process:
            await until(lambda: bool(plugins()), seconds=60)
            process.kill()
        await until(lambda: not plugins(), seconds=10)
