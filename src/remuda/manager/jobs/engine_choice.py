"""Chooses the container engine of a job whose runner has `host = "auto"`: the first one that answers when the job
starts, so an engine that was started later is used, too. Removes containers that ended jobs left behind in it: the
job's steps cannot do that if the agent runs in a sandbox, which hides the folders of other jobs."""

import asyncio
import os

import msgspec

from remuda.manager.compile.step_entries import CompileError
from remuda.manager.config.docker import AUTO_HOST
from remuda.manager.config.values import RunnerConfig
from remuda.telemetry.logs import logger


async def choose_engine(runner: RunnerConfig) -> tuple[RunnerConfig, str]:
    """Return the runner with the address of the engine that its job uses, and a line for the job's log. The runner
    itself and an empty line if the job uses no container, or the address is configured. Raises CompileError if no
    engine answers."""
    if not runner.has_containers or runner.docker.host != AUTO_HOST:
        return runner, ""
    address, about = await asyncio.to_thread(_find)
    docker = msgspec.structs.replace(runner.docker, host=address)
    return msgspec.structs.replace(runner, docker=docker), f"Using the container engine {about}"


def _find() -> tuple[str, str]:
    # Imported here because most managers run no job in a container.
    from remuda.stdsteps.common.errors import StepError
    from remuda.stdsteps.engine.discovery import find_engine
    from remuda.stdsteps.engine.docker_api import Engine
    from remuda.stdsteps.engine.job_containers import sweep, this_owner

    search = find_engine(os.environ)
    if search.engine is None:
        raise CompileError(
            f"image: or services: needs containers, but {search.explain()}. Or run such jobs on this machine "
            "without their images and services (remuda run and remuda up: --no-containers)"
        )
    log = logger("manager")
    try:
        sweep(
            Engine(search.engine.address),
            this_owner(""),
            note=lambda text: log.info("removing leftovers in the container engine", detail=text),
        )
    except StepError as error:
        log.warning("cannot look for containers that earlier jobs left behind", cause=str(error))
    return search.engine.address, str(search.engine)
