"""Finds, starts and calls the program of an environment plugin, named by a path, or by NAME for
`remuda-environment-NAME` on PATH."""

import os
from collections.abc import Callable, Collection
from pathlib import Path

from grpclib.client import Channel

from remuda.environments.errors import PluginError
from remuda.environments.handshake import (
    COOKIE,
    SOCKETS,
    VERSIONS,
    Handshake,
    common_version,
    join_versions,
    read_handshake,
)
from remuda.plugins.errors import PermanentError, TemporaryError
from remuda.plugins.process import PluginProcess
from remuda.plugins.programs import find_on_path, is_program
from remuda.wire.agent_client import CHANNEL_CONFIG
from remuda.wire.http2 import LiveChannel

PREFIX = "remuda-environment-"
END_SECONDS = 5.0


def find_plugin(name: str) -> str:
    """Path of a plugin's program, given its name or path. Raises PluginError, which says where it was searched."""
    if "/" in name:
        if not is_program(Path(name)):
            raise PluginError(f"{name}: there is no such program, or it may not be executed")
        return str(Path(name).absolute())
    program = find_on_path(f"{PREFIX}{name}")
    if program is None:
        raise PluginError(
            f"there is no plugin {name}: no program {PREFIX}{name} in PATH; install it, or give the path of its program"
        )
    return str(program)


class EnvironmentProcess(PluginProcess):
    """One process of an environment plugin. It ends when its stdin is closed, so it ends when its host dies."""

    def __init__(self, program: str, *, versions: Collection[int] = VERSIONS, say: Callable[[str], None]) -> None:
        super().__init__(program, say=lambda line: say(line.raw), holds_stdin=True, end_seconds=END_SECONDS)
        self._versions = versions
        self.handshake: Handshake | None = None

    async def start(self) -> int:
        """Start the plugin and return the highest protocol version that it has in common with the host. Raises
        PluginError if the plugin does not start, its handshake is invalid, or there is no such version."""
        env = os.environ | {COOKIE: join_versions(self._versions, ","), SOCKETS: self.sockets}
        try:
            line = await self.launch(env)
        except (TemporaryError, PermanentError) as error:
            raise PluginError(str(error)) from error
        self.handshake = read_handshake(line)
        return common_version(self.handshake.versions, self._versions)

    def channel(self) -> Channel:
        """A new channel to the plugin. A long call needs its own channel: a connection carries at most 100 calls."""
        assert self.handshake is not None
        return LiveChannel(path=self.handshake.path, config=CHANNEL_CONFIG)
