import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
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

    def git(folder: Path, *words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always"]
        done = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def pushed(files: dict[str, str], *, repository: str = "project", submodule: str = "") -> str:
        bare = server.root / f"group/{repository}.git"
        if not bare.exists():
            return a_repository(bare, tmp_path / f"source-{repository}", files)[-1]
        clone = tmp_path / f"clone-{repository}"
        if not clone.exists():
            git(tmp_path, "clone", "--quiet", "--branch", "main", str(bare), str(clone))
        for name, text in files.items():
            (clone / name).write_text(text)
        if submodule:
            git(clone, "submodule", "add", "--quiet", str(bare.parent / Path(submodule).name), "module")
            git(clone, "config", "-f", ".gitmodules", "submodule.module.url", submodule)
        git(clone, "add", "-A")
        git(clone, "commit", "--quiet", "-m", "next")
        git(clone, "push", "--quiet", "origin", "HEAD:main")
        return git(clone, "rev-parse", "HEAD")

    return pushed
