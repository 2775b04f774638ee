"""Errors that prevent a manager or its agent from starting, with messages for the operator."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest
from tests.support.runners.manager_harness import ManagerHarness

from remuda.lib.clock import SystemClock
from remuda.manager.environments import local
from remuda.manager.environments.local import LocalEnvironment
from remuda.manager.errors import DataFolderError, EnvironmentTemporaryError, ManagerError
from remuda.manager.process.service import ManagerService
from remuda.testing.agent_process import AgentProcess
from remuda.testing.environment import FakeEnvironment


async def test_data_folder_is_used_by_one_manager_only(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    async with harness.manager(environment):
        with pytest.raises(DataFolderError, match="in use by another manager"):
            await ManagerService(harness.config, harness.data, environment=environment).run(asyncio.Event())


async def test_a_port_in_use_is_named(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        harness.write_config(top=f'listen_address = "{address}"')
        with pytest.raises(ManagerError, match=f"listen_address: {address} cannot be used"):
            await ManagerService(harness.config, harness.data, environment=environment).run(asyncio.Event())


async def test_missing_tls_files_are_an_error(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    harness.write_config(extra='tls-ca-file = "/nowhere/ca.pem"')
    with pytest.raises(ManagerError, match=r"config.toml:\d+: runners\[0\].tls-ca-file: /nowhere/ca.pem: no such file"):
        await ManagerService(harness.config, harness.data, environment=environment).run(asyncio.Event())


async def test_the_command_exits_with_2_and_names_the_error(harness: ManagerHarness) -> None:
    harness.config.write_text("concurrent = 1\n")
    process = await harness.spawn()
    async with asyncio.timeout(20):
        assert await process.wait() == 2
    output = (harness.folder / "manager.out").read_text()
    assert "there is no [[runners]] section" in output
    assert "Traceback" not in output


async def test_an_agent_that_hangs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
