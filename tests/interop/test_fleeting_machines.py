"""Plugins with machines that are really logged in to, between our side and upstream's.

Plugins in Go under our host and `remuda plugin check`; `fleeting-plugin-local` under upstream's host library and under
upstream's taskscaler, both built by `make interop`. A current gitlab-runner with `executor = "instance"` is not here:
the newest that can be had as a Go module is 12.7, which does not have that executor. It links the same two libraries,
and its connector, which logs in to machines here, too.
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
from tests.support.machines.local_yard import PROGRAM, Yard, on
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
    require_built(BUILT / name)
    return str(BUILT / name)


@pytest.fixture
def program(tmp_path: Path) -> str:
    """`fleeting-plugin-local` by a path of this test's, by which its processes are told from those of others."""
    path = tmp_path / PROGRAM.name
    path.symlink_to(PROGRAM)
    return str(path)


def serving(program: str) -> list[Sequence[str]]:
    """Processes that have it in their command line."""
    return [words for _, words in processes() if program in words]


async def checked(program: str, config: dict[str, Any], folder: Path, *more: str) -> dict[str, str]:
    """What came of each check of `remuda plugin check`, which has to pass."""
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        *(str(REMUDA), "plugin", "check", program, "--config", str(file), "--output", "json", *more),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    answer = json.loads(printed)
    assert answer["passed"], [one for one in answer["checks"] if one["outcome"] == "failed"]
    assert process.returncode == 0
    return {one["name"]: one["outcome"] for one in answer["checks"]}


async def told(program: LineProgram, name: str, is_so: Callable[[Any], bool]) -> Any:
    """Make the same call until the answer is so."""
    async with asyncio.timeout(60):
        while True:
            answer = await program.call(name)
            if is_so(answer):
                return answer
            await asyncio.sleep(0.05)


def noted(outcomes: dict[str, str]) -> set[str]:
    return {name for name, outcome in outcomes.items() if outcome == "noted"}


async def test_the_dummy_plugin_passes_the_check(tmp_path: Path) -> None:
    config = {"MaxSize": 5, "ListenSSH": True, "SimulateDeleting": True}
    outcomes = await checked(built("fleeting-plugin-dummy"), config, tmp_path, "--boot-seconds", "0")
    assert noted(outcomes) == {"instances come to run", "remembers its instances"}


async def test_a_plugin_on_upstreams_sdk_passes_the_check(tmp_path: Path) -> None:
    config = {"max_size": 2, "boot_seconds": 0.2}
    words = ("--instances", "2", "--connect")
    outcomes = await checked(built("fleeting-plugin-ports"), config, tmp_path, *words)
    assert noted(outcomes) == {"remembers its instances"}
    assert outcomes["can be logged in to"] == "passed"


async def test_our_local_plugin_passes_the_same_check(yard: Yard, tmp_path: Path) -> None:
    config = {"name": yard.name, "folder": str(yard.folder)}
    program = tmp_path / PROGRAM.name
    # Asked to begin without any configuration it makes its usual folder, which is the operator's.
    hidden = f'mount -t tmpfs none /var/lib && exec {PROGRAM} "$@"'
    program.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{hidden}' plugin \"$@\"\n")
    program.chmod(0o755)
    outcomes = await checked(str(program), config, tmp_path, "--instances", "2", "--connect")
    assert not noted(outcomes)
    assert outcomes["can be logged in to"] == "passed"


async def test_a_plugin_on_upstreams_sdk_under_our_host() -> None:
    group = HostedGroup(built("fleeting-plugin-ports"))
    try:
        info = await group.init({"max_size": 3}, Settings(connector=Connector(keepalive_seconds=12)))
        assert (info.id, info.max_size, info.version) == ("interop/ports", 3, "1.0.0")
        one, other = await start_machines(group, 2)
        connect = await group.connect_info(one)
        assert (connect.connector.username, connect.connector.keepalive_seconds) == ("ci", 12)
        assert await on(group, one, "echo one; exit 3", check=False) == "one"
        assert await on(group, other, "echo $((6 * 7))") == "42"
        assert await group.increase(2) == 1
        assert await group.decrease([one]) == [one]
        left = await wait_for_states(group, lambda states: one not in states)
        assert len(left) == 2
        assert set((await group.update()).values()) == {InstanceState.RUNNING}
        await group.shutdown()
    finally:
        await group.close()


async def test_our_local_plugin_under_the_real_host_library(yard: Yard, program: str, tmp_path: Path) -> None:
    config = json.dumps({"name": yard.name, "folder": str(yard.folder), "max_size": 3})
    async with line_program(built("fleeting-host"), program, config, log=tmp_path / "host.log") as host:
        info = await host.call("init", settings=SETTINGS)
        assert (info["ID"], info["MaxSize"]) == (f"local/{yard.name}", 3)
        assert await host.call("update") == {}
        assert await host.call("increase", n=2) == 2
        found = await told(host, "update", lambda found: [*found.values()] == ["running"] * 2)
        for name in found:
            await host.call("heartbeat", instance=name)
            connect = await host.call("connect_info", instance=name)
            assert {key: connect[key] for key in SETTINGS} == SETTINGS
            assert (connect["protocol"], connect["os"]) == ("ssh", "linux")
            assert await host.call("run", instance=name, command=WHERE) == f"{name}\nroot\nsshd\n"
            assert "exit code: 7" in (await host.answer("run", instance=name, command="exit 7"))["error"]
        assert "there is no machine nobody" in (await host.answer("heartbeat", instance="nobody"))["error"]
        assert sorted(await host.call("decrease", instances=sorted(found))) == sorted(found)
        await told(host, "update", lambda found: not found)
        await host.call("shutdown")
        assert not yard.left()
    assert not serving(program)


async def test_our_static_plugin_under_the_real_host_library(yard: Yard, tmp_path: Path) -> None:
    local = await yard.group()
    [machine] = await start_machines(local, 1)
    connect = await local.connect_info(machine)
    key = tmp_path / "key"
    key.write_bytes(connect.connector.key)
    listed = {"tower": {"internal_addr": connect.internal_addr, "username": "root", "key_path": str(key)}}
    config = json.dumps({"instances": listed, "folder": str(tmp_path / "loans")})
    program = str(tmp_path / "fleeting-plugin-static")
    Path(program).symlink_to(PROGRAM.with_name("fleeting-plugin-static"))
    async with line_program(built("fleeting-host"), program, config, log=tmp_path / "host.log") as host:
        info = await host.call("init", settings=SETTINGS)
        assert info["MaxSize"] == 1
        assert await host.call("increase", n=1) == 1
        [one] = await told(host, "update", lambda found: [*found.values()] == ["running"])
        await host.call("heartbeat", instance=one)
        assert await host.call("run", instance=one, command=WHERE) == f"{machine}\nroot\nsshd\n"
        assert await host.call("decrease", instances=[one]) == [one]
        await told(host, "update", lambda found: not found)
        await host.call("shutdown")
    assert not serving(program)


async def test_upstreams_taskscaler_on_our_local_plugin(yard: Yard, program: str, tmp_path: Path) -> None:
    keys = [f"job-{number}" for number in range(6)]
    config = json.dumps({"name": yard.name, "folder": str(yard.folder)})
    words = (built("fleeting-taskscaler"), program, config)
    async with line_program(*words, log=tmp_path / "taskscaler.log", end_seconds=60) as scaler:
        assert await scaler.call("capacity") == [0, 6]
        assert not yard.left()
        for _ in range(2):  # from nothing to three machines with two slots each, and back, twice
            await scaler.call("reserve", keys=keys)
            assert "no capacity" in (await scaler.answer("reserve", keys=["one too many"]))["error"]
            held = await scaler.call("acquire", keys=keys, command="hostname")
            assert Counter(one["slot"] for one in held.values()) == {0: 3, 1: 3}
            machines = {path.name for path in yard.folder.glob("machines/*")}
            assert {one["instance"] for one in held.values()} == machines
            assert all(one["printed"].strip() == one["instance"] for one in held.values())
            assert await scaler.call("capacity") == [0, 0]
            await scaler.call("release", keys=keys)
            await until(lambda: not yard.left())
            await told(scaler, "capacity", lambda slots: slots == [0, 6])
    assert not serving(program)


async def test_upstreams_taskscaler_deletes_what_is_left_when_it_ends(yard: Yard, program: str, tmp_path: Path) -> None:
    config = json.dumps({"name": yard.name, "folder": str(yard.folder)})
    words = (built("fleeting-taskscaler"), program, config)
    async with line_program(*words, log=tmp_path / "taskscaler.log", end_seconds=60) as scaler:
        await scaler.call("reserve", keys=["job"])
        held = await scaler.call("acquire", keys=["job"], command=WHERE)
        assert held["job"]["printed"] == f"{held['job']['instance']}\nroot\nsshd\n"
        await scaler.call("release", keys=["job"])
    assert not yard.left()
    assert not serving(program)


async def test_machines_of_a_taskscaler_that_was_killed_are_taken_over_by_the_next(
    yard: Yard, program: str, tmp_path: Path
) -> None:
    config = json.dumps({"name": yard.name, "folder": str(yard.folder)})
    words = (built("fleeting-taskscaler"), program, config)
    async with line_program(*words, log=tmp_path / "first.log") as scaler:
        await scaler.call("reserve", keys=["job"])
        held = await scaler.call("acquire", keys=["job"], command="true")
        await scaler.kill()
        await until(lambda: not serving(program))
    assert [path.name for path in yard.folder.glob("machines/*")] == [held["job"]["instance"]]
    async with line_program(*words, log=tmp_path / "next.log", end_seconds=60):
        await until(lambda: not yard.left())  # it is idle there
