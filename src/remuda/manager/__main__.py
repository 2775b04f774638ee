"""`python -m remuda.manager --config FILE --data FOLDER`: runs the manager, as `remuda manager run` does."""

import argparse
import asyncio
import sys
from pathlib import Path

from remuda.lib import event_loop
from remuda.manager.config.load import load
from remuda.manager.config.value_checks import LOG_FORMATS, LOG_LEVELS
from remuda.manager.errors import ManagerError
from remuda.manager.process.service import ManagerService
from remuda.manager.process.stop_signals import SignalEvents
from remuda.steps.pack.program import IDLE_EXIT_SECONDS
from remuda.telemetry.logs import configure


async def serve(
    config: Path, data: Path, *, jobs: Path | None, agent_idle_exit_seconds: float = IDLE_EXIT_SECONDS
) -> None:
    events = SignalEvents()
    loop = asyncio.get_running_loop()
    for number, handler in events.handlers.items():
        loop.add_signal_handler(number, handler)
    service = ManagerService(config, data, jobs=jobs, agent_idle_exit_seconds=agent_idle_exit_seconds)
    await service.run(events.stop, drain=events.drain, reload=events.reload)


def main(arguments: list[str] | None = None) -> int:
    """Run the manager until a signal stops it. Returns 0, or 2 after an error that the operator can correct."""
    parser = argparse.ArgumentParser(prog="python -m remuda.manager", description="Requests jobs and runs them.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--jobs", type=Path)
    parser.add_argument("--agent-idle-exit", type=float, default=IDLE_EXIT_SECONDS, metavar="SECONDS")
    options = parser.parse_args(arguments)
    try:
        settings = load(options.config).config
        configure(level=LOG_LEVELS[settings.log_level], log_format=LOG_FORMATS[settings.log_format])
        idle = options.agent_idle_exit
        event_loop.run(serve(options.config, options.data, jobs=options.jobs, agent_idle_exit_seconds=idle))
    except ManagerError as error:
        sys.stderr.write(f"remuda: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
