from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.step_server import StepServer, create_repository
from tests.support.step_jobs import Build, RunStep

from remuda.testing.agent_process import AgentProcess, Seen, run_job, steps_text
from remuda.wire.agent_client import JobStart


@pytest.fixture
def a_job(tmp_path: Path) -> Build:
    """Build a job. `script` is short for one step with that name and script."""

    def build(job_id: str = "1", *, script: str | list[str] | None = None, **values: Any) -> JobStart:
        if script is not None:
            entry = {"name": "script", "step": "builtin://script", "inputs": {"script": script}}
            values["steps"] = steps_text(entry)
        return JobStart(**({"id": job_id, "work_dir": str(tmp_path / "work")} | values))

    return build


@pytest.fixture
def run_step(agent: AgentProcess, a_job: Build) -> RunStep:
    """Run a standard step as the only step of a job."""

    async def run(step: str, inputs: dict[str, Any], job_id: str = "1", patience: int = 30, **values: Any) -> Seen:
        entry = {"name": "it", "step": f"builtin://{step}", "inputs": inputs, "origin": "compiled"}
        env = {"REMUDA_PATIENCE_SECONDS": str(patience)}
        return await run_job(agent, a_job(job_id, steps=steps_text(entry), env=env, **values))

    return run


@pytest.fixture
def commits(server: StepServer, tmp_path: Path) -> list[str]:
    """The hashes of three commits on main of a repository."""
    versions = [{"file": f"version {number}\n"} for number in range(3)]
    return create_repository(server.root / "group/project.git", tmp_path / "source", *versions)
