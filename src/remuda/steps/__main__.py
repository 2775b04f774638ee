"""The agent's command line: `remuda-agent COMMAND`, `python -m remuda.steps COMMAND`, or the one-file program.

Exit code 75 means that another agent uses the data folder, 1 any other error of the agent. Each command imports only
the modules it needs, because the commands `proxy` and `step` are started often and must start fast."""

import argparse
import base64
import binascii
import gc
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from remuda.lib import event_loop
from remuda.steps.errors import EXIT_IN_USE, AgentError, BadRequestError, DataInUseError
from remuda.steps.job_files.data_folder import default_data
from remuda.steps.pack import program

ARGUMENTS = "REMUDA_AGENT_ARGUMENTS"
"""Variable with the arguments, as base64 of a JSON list; used if there are none on the command line, because some ways
to start the agent drop them."""


def main(arguments: Sequence[str] | None = None) -> int:
    program.leave_loader()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if not words and ARGUMENTS in os.environ:
            words = _decode_arguments(os.environ.pop(ARGUMENTS))
        if words[:1] == ["step"] and "-h" not in words and "--help" not in words:
            return _step(words[1:])
        if words[:1] == ["enclose"]:
            from remuda.steps.process.enclosure_entry import main as enter

            enter(words[1:])
        options = _parser().parse_args(words)
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="remuda-agent",
        description="Runs the steps of CI jobs, and keeps their logs and results until they are fetched.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        subparser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        subparser.set_defaults(run=run)
        return subparser

    serve = command("serve", _serve, "serve jobs until SIGTERM or SIGINT; running jobs continue without the agent")
    _add_data(serve)
    serve.add_argument("--socket", type=Path, help="socket to listen on (default: agent.sock in the data folder)")
    serve.add_argument(
        "--listen",
        metavar="HOW",
        help="unix (default), or tcp or tcp:HOST:PORT on the loopback address, with a token in the data folder",
    )
    serve.add_argument(
        "--idle-exit", type=float, metavar="SECONDS", help="exit after this time without jobs and clients"
    )
    serve.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="WORDS",
        help="a command to start with stdin when the first byte arrives; the agent ends with it, or when stdin ends",
    )
    proxy = command("proxy", _proxy, "connect stdin and stdout to the agent of this machine")
    _add_data(proxy)
    proxy.add_argument("--socket", type=Path, help="socket of the agent (default: the one recorded in the data folder)")
    proxy.add_argument("--start", action="store_true", help="start an agent first if none answers")
    proxy.add_argument(
        "--idle-exit",
        type=float,
        metavar="SECONDS",
        default=program.IDLE_EXIT_SECONDS,
        help="--idle-exit of the started agent",
    )
    bootstrap = command("bootstrap", _bootstrap, "install the agent as a file, on this machine or on another one")
    bootstrap.add_argument(
        "file", metavar="FILE", help="path of the program; replaced atomically, not changed if it is correct"
    )
    bootstrap.add_argument(
        "--through",
        metavar="COMMAND",
        help="command that runs its last argument, a shell command line, on the other machine, such as `ssh HOST`",
    )
    bootstrap.add_argument("--frozen", type=Path, help="the frozen agent, for a machine without Python 3.11")
    delegate = command("delegate", _delegate, "let another agent run a part of a job; the engine calls this")
    delegate.add_argument("file", type=Path, metavar="FILE", help="file with the order")
    delegate.add_argument(
        "--end", action="store_true", help="end the delegated job on the other agent and remove it there"
    )
    command("version", _version, "print version, protocol, form and digest of this program")
    pack = command("pack", _pack, "write the agent as one zip file for Python 3.11 or newer")
    pack.add_argument("-o", "--output", type=Path, default=Path("remuda-agent.pyz"))
    commands.add_parser("step", help="run one standard step by its name; the engine calls this")
    return parser


def _add_data(parser: argparse.ArgumentParser) -> None:
    default = default_data(os.environ)
    parser.add_argument("--data", type=Path, default=default, help=f"folder of the agent (default: {default})")


def _serve(options: argparse.Namespace) -> int:
    from remuda.steps.process.fork_server import ForkServer

    with closing(ForkServer()) as fork_server:
        # Imported modules stay: collecting garbage during the imports finds nothing.
        gc.disable()
        from remuda.steps.agent.server import serve

        gc.freeze()
        # Jobs make almost no reference cycles, so the collector may run seldom.
        gc.set_threshold(20_000, 50, 100)
        gc.enable()
        return event_loop.run(
            serve(
                options.data,
                fork_server,
                listen_at=options.listen,
                socket=options.socket,
                idle_exit_seconds=options.idle_exit,
                command=options.words,
            )
        )


def _proxy(options: argparse.Namespace) -> int:
    from remuda.steps.agent.proxy import proxy

    start = ["--idle-exit", str(options.idle_exit)] if options.start else None
    proxy(options.data, socket=options.socket, start=start)
    return 0


def _bootstrap(options: argparse.Namespace) -> int:
    from remuda.steps.agent.bootstrap import bootstrap

    sys.stdout.write(f"{bootstrap(options.file, through=options.through, frozen=options.frozen)}\n")
    sys.stdout.flush()
    return 0


def _delegate(options: argparse.Namespace) -> int:
    from remuda.steps.delegation.client import delegate, end
    from remuda.steps.delegation.files import Order

    order = Order.read(options.file)
    return event_loop.run(end(order) if options.end else delegate(order))


def _version(_options: argparse.Namespace) -> int:
    from remuda.steps.agent.bootstrap import own_version

    sys.stdout.write(f"{own_version()}\n")
    sys.stdout.flush()
    return 0


def _pack(options: argparse.Namespace) -> int:
    from remuda.steps.pack.zip_file import pack

    pack(options.output)
    return 0


def _step(words: Sequence[str]) -> int:
    from importlib import import_module

    # By name: standard steps must not be imported by the agent, but are packed into the same program.
    code: int = import_module("remuda.stdsteps.__main__").main(list(words))
    return code


def _decode_arguments(text: str) -> list[str]:
    try:
        words = json.loads(base64.b64decode(text, validate=True))
    except (ValueError, binascii.Error):
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadRequestError(f"{ARGUMENTS} must be a JSON list of strings, encoded as base64")
    return words


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Skip the teardown of modules: somebody may wait for the agent's end.
    os._exit(code)
