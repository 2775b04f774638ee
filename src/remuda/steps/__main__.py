"""The agent's command line: `python -m remuda.steps serve|pack`, and the same from the packed file.

Only arguments and exit codes are decided here. 75 means that another agent holds the data folder, 1 any other error.
"""

import argparse
import asyncio
import gc
import os
import sys
from contextlib import closing
from pathlib import Path

from remuda.steps.errors import AgentError, DataInUseError
from remuda.steps.standby import Standby

EXIT_IN_USE = 75


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit code."""
    parser = argparse.ArgumentParser(prog="remuda-agent", description="Runs the steps of CI jobs.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve jobs on a unix socket")
    serve.add_argument("--data", type=Path, required=True, help="folder for jobs and the socket")
    serve.add_argument("--socket", type=Path, help="where to listen (default: agent.sock in the data folder)")
    serve.add_argument("--idle-exit", type=float, metavar="SECONDS", help="exit after that long without work")
    pack = commands.add_parser("pack", help="make the agent one file")
    pack.add_argument("-o", "--output", type=Path, default=Path("remuda-agent.pyz"))
    options = parser.parse_args(arguments)
    try:
        match options.command:
            case "serve":
                with closing(Standby()) as standby:
                    # What is imported stays; to look through it again and again meanwhile finds nothing.
                    gc.disable()
                    from remuda.steps.service import serve as serve_jobs

                    gc.freeze()
                    gc.enable()
                    work = serve_jobs(options.data, standby, socket=options.socket, idle_exit_seconds=options.idle_exit)
                    asyncio.run(work)
            case "pack":
                from remuda.steps.pack import pack as make_pack

                make_pack(options.output)
    except DataInUseError as error:
        sys.stderr.write(f"remuda-agent: {error}\n")
        return EXIT_IN_USE
    except (AgentError, OSError) as error:
        sys.stderr.write(f"remuda-agent: {error}\n")
        return 1
    except ExceptionGroup as group:
        if group.split(OSError)[1] is not None:
            raise
        sys.stderr.write(f"remuda-agent: {group.exceptions[0]}\n")
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Whoever waits for the agent's end need not wait until all modules are taken apart.
    os._exit(code)
