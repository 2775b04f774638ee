"""Turns a `Plugin` into a program that Remuda or gitlab-runner starts, with commands such as `version` for people.

The process ends on GRPCController.Shutdown, on SIGTERM, or when its parent is gone. Instances stay in every case."""

import asyncio
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import msgspec
from grpclib.server import Server

from remuda.fleeting.errors import PermanentError
from remuda.fleeting.handshake import (
    CLIENT_CERTIFICATE,
    COOKIE,
    COOKIE_VALUE,
    OFFERED,
    SOCKETS,
    SOCKETS_GROUP,
    Handshake,
    choose_version,
)
from remuda.fleeting.plugin_search import FOLDER
from remuda.fleeting.program_info import CAPABILITIES_KEY
from remuda.fleeting.sdk import Plugin, capabilities, find_mistake
from remuda.fleeting.services import services
from remuda.fleeting.status_details import Details
from remuda.lib import event_loop
from remuda.lib.waiting import wait_for_event
from remuda.plugins.serving import listen, reserve_stdout

LOOK_SECONDS = 0.5
"""Interval between checks that the parent is alive."""
BOOTSTRAP_FOLDER = "/plugins"
PACKED_VERSION = "FLEETING_PLUGIN_PKG_VERSION"
"""Environment variable: version of the image that contains the program."""
_WORDS = "version, schema, serve, bootstrap REPOSITORY"
_LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warn"), (logging.INFO, "info"), (logging.DEBUG, "debug"))


def serve(plugin: Plugin[Any], arguments: Sequence[str] | None = None) -> int:
    """Main function of a plugin: serve a host, or run a command in `arguments` (`version`). Returns the exit code."""
    if wrong := find_mistake(plugin):
        sys.stderr.write(f"remuda.fleeting.serve: {wrong}\n")
        return 2
    words = list(sys.argv[1:] if arguments is None else arguments)
    match words:
        case ["version" | "-version" | "--version"]:
            sys.stdout.write(f"Name: fleeting-plugin-{plugin.name}\nVersion: {plugin.version}\n")
            return 0
        case ["schema"]:
            sys.stdout.write(json.dumps(config_schema(plugin), indent=2) + "\n")
            return 0
        case ["bootstrap", repository]:
            return _bootstrap(plugin, repository)
        case [] | ["serve"]:
            pass
        case _:
            sys.stderr.write(f"Unknown arguments: {' '.join(words)}\nKnown are: {_WORDS}.\n")
            return 2
    if os.environ.get(COOKIE) != COOKIE_VALUE:
        sys.stderr.write(
            f"This is fleeting-plugin-{plugin.name} {plugin.version}, a plugin that makes machines for CI jobs.\n"
            "It is not to be started by hand: a runner manager (Remuda's or gitlab-runner) starts it when its\n"
            f'config.toml says plugin = "fleeting-plugin-{plugin.name}" in [runners.autoscaler].\n'
        )
        return 1
    parent = os.getppid()
    with reserve_stdout() as stdout:
        _log_as_hosts_read(sys.stderr)
        event_loop.run(_serve(plugin, stdout, parent))
    return 0


def config_schema(plugin: Plugin[Any]) -> dict[str, Any]:
    """JSON schema of `plugin_config`, with the plugin's capabilities. It allows no unknown keys."""
    schema = msgspec.json.schema(plugin.config_type)
    for part in _parts(schema):
        if "properties" in part:
            part["additionalProperties"] = False
        if part.get("format") == "duration":
            del part["format"]  # ours are `30s`, which the format does not allow
            part["type"] = ["string", "number"]
    announced = {CAPABILITIES_KEY: sorted(capabilities(plugin))}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, **announced}


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _parts(part)


def _bootstrap(plugin: Plugin[Any], repository: str) -> int:
    """Run a plugin's command `bootstrap`, for container images: install the program itself into the plugin folder, as
    `repository`. Returns the exit code."""
    from remuda.fleeting.install import copy_program, put
    from remuda.fleeting.references import parse_reference, parse_version

    folder = Path(os.environ.get(FOLDER) or BOOTSTRAP_FOLDER)
    packed = os.environ.get(PACKED_VERSION, "")
    version = parse_version(plugin.version) or parse_version(packed)
    try:
        reference = parse_reference(repository)
        if not folder.is_dir():
            raise PermanentError(f"there is no folder {folder}; make it, or name another in {FOLDER}")
        if version is None:
            raise PermanentError(f"the version {plugin.version!r} is not like 1.2.3; {PACKED_VERSION} can name one")
        with tempfile.TemporaryDirectory(prefix=".install-", dir=folder) as work:
            copy_program(Path(sys.argv[0]), Path(work) / "files")
            done = put(Path(work) / "files", reference, version, folder)
    except (PermanentError, OSError) as error:
        sys.stderr.write(f"fleeting-plugin-{plugin.name}: {error}\n")
        return 1
    sys.stdout.write(f"{done.program.parent}\n")
    return 0


async def _serve(plugin: Plugin[Any], stdout: TextIO, parent: int) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    server = Server(services(plugin, ended.set), status_details_codec=Details())
    context, certificate = None, b""
    if client_certificate := os.environ.get(CLIENT_CERTIFICATE):
        # Imported only here: most hosts do not want TLS, and the import takes long.
        from remuda.plugins.certificates import new_identity, server_context

        identity = new_identity()
        context, certificate = server_context(identity, client_certificate), identity.der
    async with listen(server, os.environ.get(SOCKETS), context) as path:
        _share(path)
        version = choose_version(os.environ.get(OFFERED, ""))
        line = Handshake(version=version, network="unix", address=str(path), certificate=certificate).line
        stdout.write(f"{line}\n")
        stdout.flush()
        while not ended.is_set() and os.getppid() == parent:
            await wait_for_event(ended, within_seconds=LOOK_SECONDS)


def _share(path: Path) -> None:
    """Let the Unix group that the host names in the environment, if any, use the socket at `path`."""
    if group := os.environ.get(SOCKETS_GROUP):
        for file, mode in ((path.parent, 0o750), (path, 0o660)):
            shutil.chown(file, group=int(group) if group.isdigit() else group)
            file.chmod(mode)


class _HostFormat(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        level = next((name for number, name in _LEVELS if record.levelno >= number), "trace")
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return json.dumps({"@level": level, "@message": text, "@module": record.name, "@timestamp": at})


def _log_as_hosts_read(stream: TextIO) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_HostFormat())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # At lower levels grpclib logs every stream that a host ends.
    logging.getLogger("grpclib").setLevel(logging.WARNING)
