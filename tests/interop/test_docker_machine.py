"""The plugin docker-machine drives the real docker-machine (GitLab's fork) on machines of a lab."""

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.built_programs import require_built
from tests.support.machines.machines import Machines

from remuda.fleeting import Connector, InstanceState, Settings, TemporaryError, UnhealthyError
from remuda.fleeting.host import HostedGroup
from remuda_plugin_docker_machine.program import Login, read_login

REAL = Path(__file__).parents[2] / "build" / "interop" / "docker-machine"
PLUGIN = Path(sys.executable).parent / "fleeting-plugin-docker-machine"
RUNNING = InstanceState.RUNNING
WAIT_SECONDS = 60


@pytest.fixture(scope="module")
def lab() -> Iterator[Machines]:
    require_built(REAL)
    if missing := Machines.missing():
        pytest.skip(missing)
    with Machines(1) as lab:
        yield lab


@pytest.fixture
async def group(lab: Machines, tmp_path: Path) -> AsyncIterator[HostedGroup]:
    """The plugin as a process in the network of the lab."""
    program = tmp_path / "plugin"
    program.write_text(f'#!/bin/sh\nexec {shlex.join([*lab.network_prefix, str(PLUGIN)])} "$@"\n')
    program.chmod(0o755)
    group = HostedGroup(str(program))
    yield group
    await group.close()


def a_config(tmp_path: Path, driver: str, *options: str, **more: Any) -> dict[str, Any]:
    return {
        "machine_driver": driver,
        "machine_name": "interop-%s",
        "machine_options": list(options),
        "program": str(REAL),
        "storage_path": str(tmp_path / "store"),
        **more,
    }


async def wait_for_states(group: HostedGroup, *states: InstanceState) -> list[str]:
    """Wait until the instances have these states. Returns their names."""
    async with asyncio.timeout(WAIT_SECONDS):
        while [*(instances := await group.update()).values()] != [*states]:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)
    return list(instances)


async def hostname_over_ssh(lab: Machines, group: HostedGroup, instance: str, key: Path) -> str:
    """Output of `hostname` on an instance, by ssh with the connection data of the plugin."""
    info = await group.connect_info(instance)
    key.write_bytes(info.connector.key)
    key.chmod(0o600)
    options = ["-F", "none", "-i", str(key), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"]
    options += ["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-p", str(info.connector.port)]
    words = [*lab.network_prefix, "ssh", *options, f"{info.connector.username}@{info.address()}", "hostname"]
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return output.decode().strip()


async def test_a_machine_of_the_driver_none(lab: Machines, group: HostedGroup, tmp_path: Path) -> None:
    machine = lab.machines[0]
    config = a_config(tmp_path, "none", f"url=tcp://{machine.address}:2376")
    connector = Connector(username="root", key=lab.key.read_bytes())
    await group.init(config, Settings(connector=connector, owner="s_1/7"))
    assert await group.increase(3) == 3
    names = await wait_for_states(group, RUNNING, RUNNING, RUNNING)
    assert sorted(path.name for path in (tmp_path / "store/machines").iterdir()) == sorted(names)
    await group.heartbeat(names[0])
    info = await group.connect_info(names[0])
    assert (info.address(), info.connector.port, info.connector.username) == (machine.address, 22, "root")
    assert await hostname_over_ssh(lab, group, names[0], tmp_path / "key") == machine.name
    machine.unplug()
    try:
        with pytest.raises(UnhealthyError, match=f"does not answer at {machine.address}; docker-machine says of it: "):
            await group.heartbeat(names[0])
    finally:
        machine.plug()
    assert [instance.owner for instance in await group.recover()] == ["s_1/7"] * 3
    assert await group.decrease(names) == names
    await wait_for_states(group)
    assert list((tmp_path / "store/machines").iterdir()) == []


def read_complete_login(folder: Path) -> Login | None:
    """The login of a machine; None until docker-machine has written all of it."""
    try:
        login = read_login(folder)
    except TemporaryError:
        return None
    return login if login.key_path.is_file() and login.username else None


_FAKE_PROGRAMS = """
set -e
mkdir -p /usr/local/bin
cat >/usr/local/bin/systemctl <<'END'
#!/bin/sh
exit 0
END
cat >/usr/local/bin/sudo <<'END'
#!/bin/sh
while :; do case $1 in -*) shift ;; *=*) export "$1"; shift ;; *) break ;; esac; done
exec "$@"
END
cat >/usr/local/bin/docker <<'END'
#!/bin/sh
echo "Docker version 28.2.2, build stand-in"
END
chmod 755 /usr/local/bin/systemctl /usr/local/bin/sudo /usr/local/bin/docker
"""


async def test_a_failed_create_is_cleaned_up(lab: Machines, group: HostedGroup, tmp_path: Path) -> None:
    """The driver `generic` waits for a container engine that never starts; after create_timeout nothing is left."""
    machine = lab.machines[0]
    machine.run(_FAKE_PROGRAMS)
    options = [f"generic-ip-address={machine.address}", f"generic-ssh-key={lab.key}", "generic-ssh-user=root"]
    config = a_config(tmp_path, "generic", *options, create_timeout=10)
    await group.init(config, Settings(owner="s_1/7"))
    assert await group.increase(1) == 1
    [name] = await wait_for_states(group, InstanceState.CREATING)
    async with asyncio.timeout(WAIT_SECONDS):
        while not (login := read_complete_login(tmp_path / "store/machines" / name)):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    assert (login.address, login.port, login.username) == (machine.address, 22, "root")
    assert login.key_path.read_bytes() == lab.key.read_bytes()
    await wait_for_states(group)
    assert list((tmp_path / "store/machines").iterdir()) == []
