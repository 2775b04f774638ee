"""Creation and deletion of machines across restarts of the manager, configuration changes and plugin failures."""

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

ONE_JOB = "one: {script: [hostname]}\n"
ONE_IDLE_MACHINE = 'idle_count = 1\nidle_time = "1s"'


async def test_a_reloaded_policy_is_applied(site: Any) -> None:
    """A reload with idle_count 0 deletes the idle machines; the plugin is not restarted."""
    site.configure(policy=ONE_IDLE_MACHINE)
    async with site.manager() as running:
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        site.configure(policy='idle_count = 0\nidle_time = "1s"')
        running.reload.set()
        await until(lambda: not site.group.instances, seconds=60)
        assert (site.group.created, site.group.events.count("init")) == (1, 1)


async def test_a_new_token_keeps_the_scaler(site: Any) -> None:
    """After a change of the runner's token, plugin, scaler and machines stay."""
    site.configure(policy=ONE_IDLE_MACHINE)
    async with site.manager() as running:
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        response = site.cell.send("POST", "/api/v4/runners/reset_authentication_token", {"token": site.token})
        assert response.status == 201
        site.configure(policy=ONE_IDLE_MACHINE, token=response.json()["token"])
        running.reload.set()
        jobs = await site.jobs(await site.push(ONE_JOB))
        assert jobs["one"]["status"] == "success"
        status = await site.status()
        assert status.fleets[0].runner == status.runners[0].runner
        assert [instance.uses for instance in (await site.scaling()).instances if instance.id.startswith("m1-")] == [1]
    assert site.group.events.count("init") == 1


async def test_a_restart_keeps_machines_jobs_and_use_counts(site: Any, tmp_path: Path) -> None:
    site.configure(autoscaler="capacity_per_instance = 2\nmax_use_count = 10", policy=ONE_IDLE_MACHINE)
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
    async with site.manager():
        assert (await site.jobs(await site.push(ONE_JOB)))["one"]["status"] == "success"
        pipeline = await site.push(f"long: {{script: [touch {tmp_path}/runs, '{wait}', hostname]}}\n")
        await until((tmp_path / "runs").exists, seconds=60)
        before = {instance.name: instance.uses for instance in (await site.scaling()).instances}
    machines = set(site.group.instances)
    assert sum(before.values()) == 2
    async with site.manager():
        (tmp_path / "go").touch()
        jobs = await site.jobs(pipeline)
        assert jobs["long"]["status"] == "success"
        after = {instance.name: instance.uses for instance in (await site.scaling()).instances}
        assert {name: uses for name, uses in after.items() if name in before} == before
        assert machines <= set(site.group.instances)
    assert not any(event.startswith("delete") for event in site.group.events)


async def test_failed_connections_before_the_plugin_runs_replace_no_machine(group: Any, tmp_path: Path) -> None:
    """After a restart the manager connects to machines before the plugin runs; a failure must not replace a machine."""
    scaling = AutoscalerConfig(
        plugin="lab", update_interval_when_expecting="200ms", policy=(AutoscalerPolicy(idle_count=1),)
    )
    runner = RunnerConfig(name="bench", url="http://cell.invalid", executor="instance", autoscaler=scaling)

    def make_environment() -> AutoscaledEnvironment:
        plugins = {"lab": InProcess(group)}
        return AutoscaledEnvironment(
            runner, folder=tmp_path, system_id="s_1", clock=SystemClock(), plugins=plugins.__getitem__
        )

    def is_ready(environment: AutoscaledEnvironment) -> bool:
        return [instance.state for instance in environment.status().instances] == ["ready"]

    for _ in range(2):
        environment = make_environment()
        for machine in environment.status().instances:
            before = machine.state
            for _ in range(5):
                with pytest.raises(EnvironmentTemporaryError):
                    await environment.connect(machine.name)
            assert [instance.state for instance in environment.status().instances] == [before]
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(environment.run(), name="scaler")
            await until(partial(is_ready, environment), seconds=60)
            running.cancel()
        await environment.close()
    assert (group.created, group.events) == (1, ["init", "shutdown", "init", "shutdown"])


async def test_shutdown_deletes_machines_before_it_stops_the_plugin(site: Any) -> None:
    site.configure(
        autoscaler="delete_instances_on_shutdown = true\nshutdown_deletion_interval = 1", policy=ONE_IDLE_MACHINE
    )
    async with site.manager():
        await until(lambda: len(site.group.instances) == 1, seconds=60)
    assert site.group.events == ["init", "delete m1-1", "shutdown"]
    assert not site.group.instances


async def test_machines_of_a_removed_runner_are_deleted(site: Any) -> None:
    site.configure(policy=ONE_IDLE_MACHINE)
    async with site.manager() as running:
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        (site.folder / "config.toml").write_text("concurrent = 2\n")
        running.reload.set()
        await until(lambda: "shutdown" in site.group.events, seconds=60)
        assert not site.group.instances


async def test_a_runner_that_is_added_again_waits_for_the_end_of_its_old_machines(site: Any) -> None:
    """Otherwise two scalers would write the same state file, and one would delete machines that the other uses."""
    site.configure(policy=ONE_IDLE_MACHINE)
    config = (site.folder / "config.toml").read_text()
    async with site.manager() as running:
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        site.group.may_end.clear()
        (site.folder / "config.toml").write_text("concurrent = 2\n")
        running.reload.set()
        await until(lambda: "shutdown" in site.group.events, seconds=60)
        (site.folder / "config.toml").write_text(config)
        running.reload.set()
        async with asyncio.timeout(60):
            while not (status := await site.status()).config.error:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.05)
        assert "its environment is still being closed" in status.config.error
        assert ([fleet.is_ending for fleet in status.fleets], site.group.events) == (
            [True],
            ["init", "delete m1-1", "shutdown"],
        )
        site.group.may_end.set()
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        assert (await site.jobs(await site.push(ONE_JOB)))["one"]["status"] == "success"
        assert not (await site.status()).config.error
    assert site.group.events.count("init") == 2


async def test_leaked_machines_are_swept(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine of a runner that is no longer configured is found by its tag, and removed only with --remove."""
    site.configure(policy=ONE_IDLE_MACHINE)
    async with site.manager():
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        system = (await site.status()).system_id
        await site.group.increase(1)
        leaked = next(name for name in site.group.instances if name.startswith("m2"))
        site.group.owners[leaked] = f"{system}/gone-123456"
        arguments = ["scale", "sweep", "--data", str(site.data)]
        assert await asyncio.to_thread(call, arguments) == 0
        assert f"{system}/gone-123456, is not configured here any more" in capsys.readouterr().out
        assert leaked in site.group.instances
        assert await asyncio.to_thread(call, [*arguments, "--remove"]) == 0
        assert leaked not in site.group.instances
        assert len(site.group.instances) == 1
        assert await asyncio.to_thread(call, arguments) == 0
        assert "there are no machines without an owner" in capsys.readouterr().out


async def test_a_draining_manager_creates_no_idle_machines(site: Any, tmp_path: Path) -> None:
    site.configure(policy=ONE_IDLE_MACHINE)
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
    async with site.manager():
        pipeline = await site.push(f"long: {{script: [touch {tmp_path}/runs, '{wait}']}}\n")
        await until((tmp_path / "runs").exists, seconds=60)
        await ask_drain(site.data, on_begin=lambda _: None, waits=False)
        async with asyncio.timeout(60):
            while "no more jobs are requested" not in (await site.scaling()).explanation:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.05)
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        (tmp_path / "go").touch()
        assert (await site.jobs(pipeline))["long"]["status"] == "success"


async def test_machines_of_runner_removed_between_runs_are_swept(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """No runner with machines is configured; the stored state of the removed runner names its plugin."""
    site.configure(policy=ONE_IDLE_MACHINE)
    async with site.manager(), asyncio.timeout(60):
        while not (await site.scaling()).instances:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.05)
    (machine,) = site.group.instances
    config = site.folder / "config.toml"
    text = config.read_text().partition("[runners.autoscaler]")[0]
    config.write_text(text.replace('executor = "instance"', 'executor = "shell"'))
    logs = io.StringIO()
    # Logging stays like this until the first command configures it again.
    configure(level="warning", log_format="json", stream=logs)
    async with site.manager():
        await until(lambda: "machines exist that belong to no configured runner" in logs.getvalue())
        assert json.loads(logs.getvalue())["machines"] == [f"lab/{machine}"]
        arguments = ["scale", "sweep", "--data", str(site.data)]
        assert await asyncio.to_thread(call, arguments) == 0
        assert "it was created for bench (bench-" in capsys.readouterr().out
        assert machine in site.group.instances
        assert await asyncio.to_thread(call, [*arguments, "--remove"]) == 0
        assert not site.group.instances
    assert not list((site.data / "machines").glob("*.json"))


async def test_a_machine_that_cannot_be_prepared_is_replaced_and_the_reason_is_reported(site: Any) -> None:
    site.configure(
        autoscaler='instance_ready_command = "[ $(hostname) != m1 ]"\nmax_instances = 2', policy=ONE_IDLE_MACHINE
    )
    async with site.manager():
        await until(lambda: "delete m1-1" in site.group.events, seconds=60)
        status = await site.status()
        assert "ended with 1 there" in " ".join(status.fleets[0].problems)


async def test_a_failed_update_does_not_stop_jobs(site: Any) -> None:
    """While the provider does not answer, jobs run in the slots of existing machines."""
    site.configure(autoscaler="max_instances = 2", policy='idle_count = 1\nidle_time = "10m"')
    async with site.manager():
        await until(lambda: len(site.group.instances) == 1, seconds=60)
        await site.jobs(await site.push(ONE_JOB))
        site.group.is_down = True
        assert (await site.jobs(await site.push(ONE_JOB + "two: {script: [hostname]}\n")))["two"]["status"] == "success"
        site.group.is_down = False


@asynccontextmanager
async def run_manager_process(config: Path, data: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    arguments = ["-m", "remuda.manager", "--config", str(config), "--data", str(data)]
    with (config.parent / "out").open("ab") as out:
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=out, stderr=out)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_plugin_ends_when_its_manager_is_killed(tmp_path: Path) -> None:
    """A plugin ends when its manager is killed; the next manager starts it again."""
    program = a_plugin(tmp_path / "program")
    config = tmp_path / "config.toml"
    config.write_text(
        'concurrent = 1\n[[runners]]\nname = "bench"\nurl = "http://127.0.0.1:9"\ntoken = "glrt-x"\n'
        f'executor = "instance"\n[runners.autoscaler]\nplugin = "{program}"\n'
    )
    program_name = str(program).encode()

    def plugin_pids() -> list[int]:
        pids = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and folder.name != str(os.getpid()):
                try:
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if program_name in words and b"exec_plugin.py" not in words[1]:
                    pids.append(int(folder.name))
        return pids

    for _ in range(2):
        async with run_manager_process(config, tmp_path / "data") as process:
            await until(lambda: bool(plugin_pids()), seconds=60)
            process.kill()
        await until(lambda: not plugin_pids(), seconds=10)
