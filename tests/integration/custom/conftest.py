from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.support.git_client import Clone
from tests.support.runners.custom_driver import Bench, Driver
from tests.support.servers.step_server import StepServer, a_repository

from remuda.testing.agent_process import AgentProcess


@pytest.fixture
async def bench(tmp_path: Path, server: StepServer) -> AsyncIterator[Bench]:
    """An agent, a server with one commit, a plain driver."""
    commits = a_repository(server.root / "group/project.git", tmp_path / "source", {"file": "version 1\n"})
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        yield Bench(agent, server, Driver(tmp_path / "driver"), tmp_path, commits[-1])


@pytest.fixture
def push(server: StepServer, bench: Bench, tmp_path: Path) -> Callable[..., str]:
    """Add a commit to a repository of the server; its hash."""

    def pushed(files: dict[str, str], *, repository: str = "project", submodule: str = "") -> str:
        bare = server.root / f"group/{repository}.git"
        if not bare.exists():
            return a_repository(bare, tmp_path / f"source-{repository}", files)[-1]
        clone = Clone(tmp_path / f"clone-{repository}")
        if not (clone.folder / ".git").exists():
            clone.git("clone", "--quiet", "--branch", "main", str(bare), ".")
        if submodule:
            clone.git("submodule", "add", "--quiet", str(bare.parent / Path(submodule).name), "module")
            clone.git("config", "-f", ".gitmodules", "submodule.module.url", submodule)
        commit = clone.commit("next", **files)
        clone.push("HEAD:main")
        return commit

    return pushed
