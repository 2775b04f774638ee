"""Fixtures for tests of the custom executor: an agent, a git server and a driver."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.support.git_client import Clone
from tests.support.runners.custom_driver import CustomHarness, Driver
from tests.support.servers.step_server import StepServer, create_repository

from remuda.testing.agent_process import AgentProcess


@pytest.fixture
async def harness(tmp_path: Path, server: StepServer) -> AsyncIterator[CustomHarness]:
    """An agent, a server with one commit, and a driver that runs all scripts with bash."""
    commits = create_repository(server.root / "group/project.git", tmp_path / "source", {"file": "version 1\n"})
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        yield CustomHarness(agent, server, Driver(tmp_path / "driver"), tmp_path, commits[-1])


@pytest.fixture
def push(server: StepServer, harness: CustomHarness, tmp_path: Path) -> Callable[..., str]:
    """A function that adds a commit to a repository of the server, and returns its hash."""

    def push_commit(files: dict[str, str], *, repository: str = "project", submodule: str = "") -> str:
        bare = server.root / f"group/{repository}.git"
        if not bare.exists():
            return create_repository(bare, tmp_path / f"source-{repository}", files)[-1]
        clone = Clone(tmp_path / f"clone-{repository}")
        if not (clone.folder / ".git").exists():
            clone.git("clone", "--quiet", "--branch", "main", str(bare), ".")
        if submodule:
            clone.git("submodule", "add", "--quiet", str(bare.parent / Path(submodule).name), "module")
            clone.git("config", "-f", ".gitmodules", "submodule.module.url", submodule)
        commit = clone.commit("next", **files)
        clone.push("HEAD:main")
        return commit

    return push_commit
