"""What stops a manager from starting, in words an operator can act on."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest
from tests.support.runners.manager_bench import ManagerBench

from remuda.lib.clock import SystemClock
from remuda.manager.environments import local
from remuda.manager.environments.local import LocalEnvironment
from remuda.manager.errors import DataFolderError, EnvironmentTemporaryError, ManagerError
from remuda.manager.process.service import ManagerService
from remuda.testing.agent_process import AgentProcess
from remuda.testing.coordinator import Coordinator
from remuda.testing.environment import FakeEnvironment


async def test_one_manager_per_data_folder(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    async with bench.manager(environment):
        with pytest.raises(DataFolderError, match="in use by another manager"):
            await ManagerService(bench.config, bench.data, environment=environment).run(asyncio.Event())


async def test_a_port_in_use_is_named(bench: ManagerBench, environment: FakeEnvironment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        bench.write_config(top=f'listen_address = "{address}"')
        with pytest.raises(ManagerError, match=f"listen_address: {address} cannot be used"):
            await ManagerService(bench.config, bench.data, environment=environment).run(asyncio.Event())


async def test_tls_files_that_are_not_there_are_named(bench: ManagerBench, environment: FakeEnvironment) -> None:
    bench.write_config(extra='tls-ca-file = "/nowhere/ca.pem"')
    with pytest.raises(ManagerError, match="tls files cannot be used"):
        await ManagerService(bench.config, bench.data, environment=environment).run(asyncio.Event())


async def test_the_command_says_what_is_wrong_and_exits_with_2(bench: ManagerBench) -> None:
    bench.config.write_text("concurrent = 1\n")
    process = await bench.spawn()
    async with asyncio.timeout(20):
        assert await process.wait() == 2
    output = (bench.folder / "manager.out").read_text()
    assert "there is no [[runners]] section" in output
    assert "Traceback" not in output


async def test_an_agent_that_hangs_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "HELLO_SECONDS", 0.1)
    monkeypatch.setattr(local, "START_SECONDS", 2.0)
    async with AgentProcess(tmp_path / "agent") as agent:
        await agent.start()
        os.kill(agent.pid, signal.SIGSTOP)
        try:
            with pytest.raises(EnvironmentTemporaryError, match="does not answer"):
                await LocalEnvironment(tmp_path, clock=SystemClock()).connect("local")
        finally:
            os.kill(agent.pid, signal.SIGCONT)
