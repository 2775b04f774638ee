"""Plugins and hosts of both sides with real machines, to which the tests log in over SSH.

Plugins in Go run under our host and `remuda plugin check`; `fleeting-plugin-local` runs under upstream's host library
and under upstream's taskscaler, both built by `make interop`. A current gitlab-runner with `executor = "instance"` is
not tested: the newest that is available as a Go module is 12.7, which does not have that executor. A current one links
the same two libraries, and the connector that these programs use to log in.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.built_programs import require_built
from tests.support.machines.local_groups import PROGRAM, LocalGroups, run_on_machine
from tests.support.runners.line_program import LineProgram, line_program

from remuda.fleeting import Connector, InstanceState, Settings
from remuda.fleeting.host import HostedGroup
from remuda.testing.lab import processes
from remuda.testing.plugin_groups import start_machines, wait_for_states
from remuda.testing.waiting import until

BUILT = Path(__file__).parents[2] / "build/interop"
REMUDA = Path(sys.executable).parent / "remuda"
SETTINGS = {"username": "root", "keepalive": 30 * 10**9, "timeout": 60 * 10**9}
WHERE = "hostname; id -un; cat /proc/1/comm"


def built(name: str) -> str:
    """Path of a program that `make interop` has built."""
    require_built(BUILT / name)
    return str(BUILT / name)


@pytest.fixture
def program(tmp_path: Path) -> str:
    """`fleeting-plugin-local` under a path of this test, to tell its processes from those of other tests."""
    path = tmp_path / PROGRAM.name
    path.symlink_to(PROGRAM)
    return str(path)


def processes_of(program: str) -> list[Sequence[str]]:
    """Command lines of processes that contain this program."""
    return [words for _, words in processes() if program in words]


async def run_check(program: str, config: dict[str, Any], folder: Path, *more: str) -> dict[str, str]:
    """Run `remuda plugin check`, which must pass. Returns the outcome of each check."""
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        *(str(REMUDA), "plugin", "check", program, "--config", str(file), "--output", "json", *more),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    report = json.loads(printed)
    assert report["passed"], [check for check in report["checks"] if check["outcome"] == "failed"]
    assert process.returncode == 0
    return {check["name"]: check["outcome"] for check in report["checks"]}


async def call_until(program: LineProgram, name: str, condition: Callable[[Any], bool]) -> Any:
    """Repeat a call until its result satisfies the condition. Returns that result."""
    async with asyncio.timeout(60):
        while True:
            result = await program.call(name)
            if condition(result):
                return result
            await asyncio.sleep(0.05)


def checks_with_notes(outcomes: dict[str, str]) -> set[str]:
    return {name for name, outcome in outcomes.items() if outcome == "noted"}


async def test_the_dummy_plugin_passes_the_check(tmp_path: Path) -> None:
    config = {"MaxSize": 5, "ListenSSH": True, "SimulateDeleting": True}
    outcomes = await run_check(built("fleeting-plugin-dummy"), config, tmp_path, "--boot-seconds", "0")
    assert checks_with_notes(outcomes) == {"instances start", "remembers its instances"}


async def test_a_plugin_on_upstreams_sdk_passes_the_check(tmp_path: Path) -> None:
    config = {"max_size": 2, "boot_seconds": 0.2}
    words = ("--instances", "2", "--connect")
    outcomes = await run_check(built("fleeting-plugin-ports"), config, tmp_path, *words)
    assert checks_with_notes(outcomes) == {"remembers its instances"}
    assert outcomes["can be logged in to"] == "passed"


async def test_our_local_plugin_passes_the_same_check(local_groups: LocalGroups, tmp_path: Path) -> None:
    config = {"name": local_groups.name, "folder": str(local_groups.folder)}
    program = tmp_path / PROGRAM.name
    # The check also starts it without a configuration; it then uses its default folder, which is the operator's.
    command = f'mount -t tmpfs none /var/lib && exec {PROGRAM} "$@"'
    program.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{command}' plugin \"$@\"\n")
    program.chmod(0o755)
    outcomes = await run_check(str(program), config, tmp_path, "--instances", "2", "--connect")
    assert not checks_with_notes(outcomes)
    assert outcomes["can be logged in to"] == "passed"


async def test_a_plugin_on_upstreams_sdk_under_our_host() -> None:
    group = HostedGroup(built("fleeting-plugin-ports"))
    try:
        info = await group.init({"max_size": 3}, Settings(connector=Connector(keepalive_seconds=12)))
        assert (info.id, info.max_size, info.version) == ("interop/ports", 3, "1.0.0")
        first, second = await start_machines(group, 2)
        connect = await group.connect_info(first)
        assert (connect.connector.username, connect.connector.keepalive_seconds) == ("ci", 12)
        assert await run_on_machine(group, first, "echo one; exit 3", check=False) == "one"
        assert await run_on_machine(group, second, "echo $((6 * 7))") == "42"
        assert await group.increase(2) == 1
        assert await group.decrease([first]) == [first]
        remaining = await wait_for_states(group, lambda states: first not in states)
        assert len(remaining) == 2
        assert set((await group.update()).values()) == {InstanceState.RUNNING}
        await group.shutdown()
    finally:
        await group.close()


async def test_local_plugin_under_real_host_library(local_groups: LocalGroups, program: str, tmp_path: Path) -> None:
    config = json.dumps({"name": local_groups.name, "folder": str(local_groups.folder), "max_size": 3})
    async with line_program(built("fleeting-host"), program, config, log=tmp_path / "host.log") as host:
        info = await host.call("init", settings=SETTINGS)
        assert (info["ID"], info["MaxSize"]) == (f"local/{local_groups.name}", 3)
        assert await host.call("update") == {}
        assert await host.call("increase", n=2) == 2
        instances = await call_until(host, "update", lambda states: [*states.values()] == ["running"] * 2)
        for name in instances:
            await host.call("heartbeat", instance=name)
            connect = await host.call("connect_info", instance=name)
            assert {key: connect[key] for key in SETTINGS} == SETTINGS
            assert (connect["protocol"], connect["os"]) == ("ssh", "linux")
            assert await host.call("run", instance=name, command=WHERE) == f"{name}\nroot\nsshd\n"
            assert "exit code: 7" in (await host.call_raw("run", instance=name, command="exit 7"))["error"]
        assert "there is no machine nobody" in (await host.call_raw("heartbeat", instance="nobody"))["error"]
        assert sorted(await host.call("decrease", instances=sorted(instances))) == sorted(instances)
        await call_until(host, "update", lambda states: not states)
        await host.call("shutdown")
        assert not local_groups.leftovers()
    assert not processes_of(program)


async def test_our_static_plugin_under_the_real_host_library(local_groups: LocalGroups, tmp_path: Path) -> None:
    local = await local_groups.group()
    [machine] = await start_machines(local, 1)
    connect = await local.connect_info(machine)
    key = tmp_path / "key"
    key.write_bytes(connect.connector.key)
    instances = {"tower": {"internal_addr": connect.internal_addr, "username": "root", "key_path": str(key)}}
    config = json.dumps({"instances": instances, "folder": str(tmp_path / "loans")})
    program = str(tmp_path / "fleeting-plugin-static")
    Path(program).symlink_to(PROGRAM.with_name("fleeting-plugin-static"))
    async with line_program(built("fleeting-host"), program, config, log=tmp_path / "host.log") as host:
        info = await host.call("init", settings=SETTINGS)
        assert info["MaxSize"] == 1
        assert await host.call("increase", n=1) == 1
        [instance] = await call_until(host, "update", lambda states: [*states.values()] == ["running"])
        await host.call("heartbeat", instance=instance)
        assert await host.call("run", instance=instance, command=WHERE) == f"{machine}\nroot\nsshd\n"
        assert await host.call("decrease", instances=[instance]) == [instance]
        await call_until(host, "update", lambda states: not states)
        await host.call("shutdown")
    assert not processes_of(program)


async def test_upstream_taskscaler_on_our_local_plugin(local_groups: LocalGroups, program: str, tmp_path: Path) -> None:
    keys = [f"job-{number}" for number in range(6)]
    config = json.dumps({"name": local_groups.name, "folder": str(local_groups.folder)})
    words = (built("fleeting-taskscaler"), program, config)
    async with line_program(*words, log=tmp_path / "taskscaler.log", end_seconds=60) as scaler:
        assert await scaler.call("capacity") == [0, 6]
        assert not local_groups.leftovers()
        for _ in range(2):  # twice: scale from zero to three machines with two slots each, and back to zero
            await scaler.call("reserve", keys=keys)
            assert "no capacity" in (await scaler.call_raw("reserve", keys=["one too many"]))["error"]
            acquired = await scaler.call("acquire", keys=keys, command="hostname")
            assert Counter(slot["slot"] for slot in acquired.values()) == {0: 3, 1: 3}
            machines = {path.name for path in local_groups.folder.glob("machines/*")}
            assert {slot["instance"] for slot in acquired.values()} == machines
            assert all(slot["printed"].strip() == slot["instance"] for slot in acquired.values())
            assert await scaler.call("capacity") == [0, 0]
            await scaler.call("release", keys=keys)
            await until(lambda: not local_groups.leftovers())
            await call_until(scaler, "capacity", lambda slots: slots == [0, 6])
    assert not processes_of(program)


async def test_exiting_upstream_taskscaler_deletes_all(local_groups: LocalGroups, program: str, tmp_path: Path) -> None:
    config = json.dumps({"name": local_groups.name, "folder": str(local_groups.folder)})
    words = (built("fleeting-taskscaler"), program, config)
    async with line_program(*words, log=tmp_path / "taskscaler.log", end_seconds=60) as scaler:
        await scaler.call("reserve", keys=["job"])
        acquired = await scaler.call("acquire", keys=["job"], command=WHERE)
        assert acquired["job"]["printed"] == f"{acquired['job']['instance']}\nroot\nsshd\n"
        await scaler.call("release", keys=["job"])
    assert not local_groups.leftovers()
    assert not processes_of(program)


async def test_machines_of_killed_taskscaler_are_kept(local_groups: LocalGroups, program: str, tmp_path: Path) -> None:
    config = json.dumps({"name": local_groups.name, "folder": str(local_groups.folder)})
    words = (built("fleeting-taskscaler"), program, config)
    async with line_program(*words, log=tmp_path / "first.log") as scaler:
        await scaler.call("reserve", keys=["job"])
        acquired = await scaler.call("acquire", keys=["job"], command="true")
        await scaler.kill()
        await until(lambda: not processes_of(program))
    assert [path.name for path in local_groups.folder.glob("machines/*")] == [acquired["job"]["instance"]]
    async with line_program(*words, log=tmp_path / "next.log", end_seconds=60):
        await until(lambda: not local_groups.leftovers())  # the machine that it took over is idle
