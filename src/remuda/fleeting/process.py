"""Starts the program of a plugin, does go-plugin's handshake, and returns a channel, with mutual TLS if requested."""

import asyncio
import os
import ssl
from collections.abc import Callable

from grpclib.client import Channel
from grpclib.config import Configuration

from remuda.fleeting.handshake import Handshake, environment, read_handshake
from remuda.fleeting.status_details import Details
from remuda.plugins.errors import PermanentError
from remuda.plugins.output import Line
from remuda.plugins.process import START_SECONDS, PluginProcess
from remuda.wire.http2 import LiveChannel

END_SECONDS = 2.0


class FleetingProcess(PluginProcess):
    def __init__(
        self,
        program: str,
        *,
        say: Callable[[Line], None],
        stray: Callable[[str], None] | None = None,
        auto_mtls: bool = False,
        start_seconds: float = START_SECONDS,
        end_seconds: float = END_SECONDS,
    ) -> None:
        super().__init__(program, say=say, stray=stray, start_seconds=start_seconds, end_seconds=end_seconds)
        self._wants_tls = auto_mtls

    async def start(self) -> Channel:
        """Start the program and return a channel to it. Raises TemporaryError if the program does not start or prints
        no handshake, PermanentError if its handshake is wrong."""
        identity = None
        if self._wants_tls:
            from remuda.plugins.certificates import new_identity

            identity = await asyncio.to_thread(new_identity)
        certificate = identity.certificate.decode() if identity is not None else ""
        line = await self.launch(environment(os.environ, sockets=self.sockets, certificate=certificate))
        try:
            handshake = read_handshake(line, asked_for_certificate=self._wants_tls)
        except PermanentError as error:
            raise PermanentError(f"{self.program}: {error}") from error
        if identity is None:
            return _channel(handshake)
        from remuda.plugins.certificates import client_context

        return _channel(handshake, client_context(identity, handshake.certificate))


def _channel(handshake: Handshake, context: ssl.SSLContext | None = None) -> Channel:
    # Certificates name localhost, wherever the socket is.
    config = Configuration(ssl_target_name_override="localhost") if context is not None else Configuration()
    if handshake.network == "unix":
        return LiveChannel(path=handshake.address, ssl=context, config=config, status_details_codec=Details())
    host, _, port = handshake.address.rpartition(":")
    return LiveChannel(host.strip("[]"), int(port), ssl=context, config=config, status_details_codec=Details())
