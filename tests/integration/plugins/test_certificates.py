"""TLS between a host and a plugin: each side trusts only the certificate of the other."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from remuda.fleeting.errors import PermanentError
from remuda.plugins.certificates import NAME, client_context, new_identity, server_context


async def exchange_greeting(path: Path, server: ssl.SSLContext, client: ssl.SSLContext) -> bytes:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    async with await asyncio.start_unix_server(greet, path, ssl=server):
        reader, writer = await asyncio.open_unix_connection(path, ssl=client, server_hostname=NAME)
        try:
            return await reader.read()
        finally:
            writer.close()


async def test_host_and_plugin_trust_each_other(tmp_path: Path) -> None:
    host, plugin = new_identity(), new_identity()
    server = server_context(plugin, host.certificate.decode())
    assert await exchange_greeting(tmp_path / "a", server, client_context(host, plugin.der)) == b"hello"


async def test_a_stranger_is_refused_by_either_side(tmp_path: Path) -> None:
    host, plugin, stranger = new_identity(), new_identity(), new_identity()
    server = server_context(plugin, host.certificate.decode())
    for number, client in enumerate((client_context(stranger, plugin.der), client_context(host, stranger.der))):
        received = b""
        # A refused host learns this only after its part of the handshake, by an error or by the end of the connection.
        with suppress(ssl.SSLError, ConnectionError):
            received = await exchange_greeting(tmp_path / str(number), server, client)
        assert received == b""


def test_an_invalid_certificate_is_an_error() -> None:
    with pytest.raises(PermanentError, match="cannot be read"):
        client_context(new_identity(), b"nothing of the kind" * 5)
