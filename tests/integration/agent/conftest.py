from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.agent_process import AgentProcess, steps_text
from remuda.wire.agent_client import JobStart


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentProcess]:
    """A running agent."""
    async with AgentProcess(tmp_path / "data") as process:
        await process.start()
        yield process


@pytest.fixture
def a_job(tmp_path: Path) -> Callable[..., JobStart]:
    """A job with a working directory of its own; `script` is short for one step of that name."""

    def build(job_id: str = "1", *, script: str | list[str] | None = None, **values: Any) -> JobStart:
        if script is not None:
            entry = {"name": "script", "step": "builtin://script", "inputs": {"script": script}}
            values["steps"] = steps_text(entry)
        return JobStart(**({"id": job_id, "work_dir": str(tmp_path / "work")} | values))

    return build
