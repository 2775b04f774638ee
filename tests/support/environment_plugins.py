"""Environment plugins for tests: the template as a program, variants of it, and an end to the agents they start."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from remuda.environments.template import files
from remuda.lib.clock import SystemClock
from remuda.manager.config.values import EnvironmentConfig, RemudaConfig, RunnerConfig
from remuda.manager.environments.plugin import PluginEnvironment
from remuda.testing.lab import processes


def a_plugin(folder: Path, *, replacing: dict[str, str] | None = None) -> Path:
    """The program that `remuda environment new` writes; `replacing` changes its text, to break it in some way."""
    name, text = next(iter(files("folders", python=sys.executable).items()))
    for old, new in (replacing or {}).items():
        assert old in text, old
        text = text.replace(old, new)
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(text)
    program.chmod(0o755)
    return program


@asynccontextmanager
async def plugin_environment(
    folder: Path, program: Path | str, config: dict[str, Any] | None = None
) -> AsyncIterator[PluginEnvironment]:
    """The manager's side of it; in the end neither plugin nor agents are left."""
    given = {"machines": ["first", "second"]} if config is None else config
    wanted = EnvironmentConfig(plugin=str(program), config=given)
    runner = RunnerConfig(name="plugged", executor="plugin", remuda=RemudaConfig(environment=wanted))
    environment = PluginEnvironment(runner, folder, clock=SystemClock())
    try:
        yield environment
    finally:
        await environment.close()
        await asyncio.to_thread(kill_agents, folder)


def kill_agents(folder: Path) -> None:
    """kill -9 of all agents with a data folder below this one."""
    for pid, words in processes():
        if "remuda.steps" in words and any(word.startswith(f"{folder}/") for word in words):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
