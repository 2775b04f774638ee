"""Calls to an agent whose connection ends before the first call."""

import asyncio
import socket
from pathlib import Path

import pytest
from grpclib.client import Channel
from grpclib.protocol import H2Protocol

from remuda.wire.agent_client import AgentClient, AgentUnavailableError, tcp_channel, unix_channel


class EndedChannel(Channel):
    """A channel whose peer closes as soon as the connection is made."""

    async def _create_connection(self) -> H2Protocol:
        protocol = await super()._create_connection()
        protocol.connection_lost(None)
        return protocol


async def test_a_connection_that_ends_before_its_first_call(tmp_path: Path) -> None:
    closed = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        closed.set()

    server = await asyncio.start_unix_server(accept, tmp_path / "socket")
    async with server, AgentClient(EndedChannel(path=str(tmp_path / "socket"))) as client:
        with pytest.raises(AgentUnavailableError, match="is lost"):
            await client.hello()
        await closed.wait()


async def test_an_agent_that_has_ended_is_named_with_its_place(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    for name in ("socket", "missing"):
        async with AgentClient(unix_channel(tmp_path / name)) as client:
            with pytest.raises(AgentUnavailableError, match="nothing listens at its socket; it has ended"):
                await client.hello()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with AgentClient(tcp_channel("127.0.0.1", port, "token")) as client:
            with pytest.raises(AgentUnavailableError, match=f"nothing listens at 127.0.0.1:{port}; it has ended"):
                await client.hello()
