"""Each side trusts exactly the other's certificate."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from remuda.fleeting.errors import PermanentError
from remuda.plugins.certificates import NAME, client_context, new_identity, server_context


async def greeting(path: Path, server: ssl.SSLContext, client: ssl.SSLContext) -> bytes:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    async with await asyncio.start_unix_server(greet, path, ssl=server):
        reader, writer = await asyncio.open_unix_connection(path, ssl=client, server_hostname=NAME)
        try:
            return await reader.read()
        finally:
            writer.close()


async def test_both_know_each_other(tmp_path: Path) -> None:
    host, plugin = new_identity(), new_identity()
    server = server_context(plugin, host.certificate.decode())
    assert await greeting(tmp_path / "a", server, client_context(host, plugin.der)) == b"hello"


async def test_a_stranger_is_refused_by_either_side(tmp_path: Path) -> None:
    host, plugin, stranger = new_identity(), new_identity(), new_identity()
    server = server_context(plugin, host.certificate.decode())
    for number, client in enumerate((client_context(stranger, plugin.der), client_context(host, stranger.der))):
        heard = b""
        # A host learns only after its side of the handshake that it was refused, by an error or by the end.
        with suppress(ssl.SSLError, ConnectionError):
            heard = await greeting(tmp_path / str(number), server, client)
        assert heard == b""


def test_what_is_no_certificate_is_said() -> None:
    with pytest.raises(PermanentError, match="cannot be read"):
        client_context(new_identity(), b"nothing of the kind" * 5)
