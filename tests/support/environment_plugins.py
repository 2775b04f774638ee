"""Environment plugins for tests: the template as a program, modified copies of it, and cleanup of their agents."""

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
    """Write the program of `remuda environment new`. `replacing` maps parts of its text to others, to break it."""
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
    """The manager's environment that uses the plugin. At the end the plugin is closed and its agents are killed."""
    plugin_config = {"machines": ["first", "second"]} if config is None else config
    settings = EnvironmentConfig(plugin=str(program), config=plugin_config)
    runner = RunnerConfig(name="plugged", executor="plugin", remuda=RemudaConfig(environment=settings))
    environment = PluginEnvironment(runner, folder, clock=SystemClock())
    try:
        yield environment
    finally:
        await environment.close()
        await asyncio.to_thread(kill_agents, folder)


def kill_agents(folder: Path) -> None:
    """Kill (SIGKILL) all agents whose data folder is below this folder."""
    for pid, words in processes():
        if "remuda.steps" in words and any(word.startswith(f"{folder}/") for word in words):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
