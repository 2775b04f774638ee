"""The HTTP proxy of a step whose policy has a network allow list: it connects only to hosts on that list.

It runs outside of the step's network namespace and accepts connections on a socket inside. CONNECT is tunnelled, an
http:// request is forwarded (one per connection), all else is refused. Each refused host is reported on stderr, which
is the step's log."""

import asyncio
import importlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn
from urllib.parse import urlsplit

from remuda.lib import event_loop

HEAD_BYTES = 64 * 1024
PATIENCE_SECONDS = 30.0
_COPY_BYTES = 64 * 1024


for _late in ("concurrent.futures.thread", "encodings.idna"):
    # asyncio imports these late, when this process may not be able to read them any more.
    importlib.import_module(_late)


def allows(lists: Sequence[Sequence[str]], host: str, port: int) -> bool:
    """Return True if the host and port match a pattern of every allow list."""
    return all(any(_matches(pattern, host, port) for pattern in patterns) for patterns in lists)


def run(listener: socket.socket, lists: Sequence[Sequence[str]], *, until: int) -> NoReturn:
    """Serve proxy requests to hosts on all allow lists until the process of the pidfd `until` has ended, then exit."""
    # All processes of a step that must end get SIGTERM; its cleanup may still need the network.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    event_loop.run(_serve(listener, lists, until))
    os._exit(0)


async def _serve(listener: socket.socket, lists: Sequence[Sequence[str]], until: int) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(until, ended.set)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _handle(reader, writer, lists)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass
        finally:
            writer.close()

    await asyncio.start_server(handle, sock=listener, limit=HEAD_BYTES)
    await ended.wait()


async def _handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lists: Sequence[Sequence[str]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    target = _target(lines[0])
    if target is None:
        return await _answer(writer, "400 Bad Request", "this proxy knows CONNECT and http:// addresses")
    host, port, path = target
    if not allows(lists, host, port):
        sys.stderr.write(f"remuda: network: {host}:{port} is not on the allow list of this step's policy\n")
        sys.stderr.flush()
        return await _answer(writer, "403 Forbidden", f"{host}:{port} is not on the allow list of this step's policy")
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            far_reader, far_writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        return await _answer(writer, "502 Bad Gateway", f"{host}:{port} cannot be reached: {error}")
    try:
        if path is None:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            far_writer.write(_forward_head(lines, path))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_copy(reader, far_writer), name=f"to {host}")
            tasks.create_task(_copy(far_reader, writer), name=f"from {host}")
    except* OSError:
        pass
    finally:
        far_writer.close()
    return None


def _target(line: str) -> tuple[str, int, str | None] | None:
    """Parse the first line of a proxy request into host, port and path (None for CONNECT); None if it is invalid."""
    words = line.split(" ")
    if len(words) != 3:
        return None
    method, address, _ = words
    try:
        if method == "CONNECT":
            parts = urlsplit(f"//{address}")
            return (parts.hostname, parts.port, None) if parts.hostname and parts.port else None
        parts = urlsplit(address)
        if parts.scheme != "http" or not parts.hostname:
            return None
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return parts.hostname, parts.port or 80, path
    except ValueError:
        return None


def _forward_head(lines: list[str], path: str) -> bytes:
    method, _, version = lines[0].split(" ")
    headers = [line for line in lines[1:-2] if line.partition(":")[0].strip().lower() not in _HOP]
    head = [f"{method} {path} {version}", *headers, "Connection: close"]
    return ("\r\n".join(head) + "\r\n\r\n").encode("latin-1")


_HOP = frozenset({"connection", "proxy-connection", "proxy-authorization", "keep-alive", "te", "upgrade"})


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(_COPY_BYTES):
        sink.write(data)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()


async def _answer(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


def _matches(pattern: str, host: str, port: int) -> bool:
    name, colon, port_text = pattern.rpartition(":")
    if not colon or "]" in port_text or not port_text.isdecimal():
        name, port_text = pattern, ""
    name, host = name.strip("[]").lower(), host.rstrip(".").lower()
    is_host = host.endswith(name[1:]) if name.startswith("*.") else name in ("*", host)
    return is_host and (not port_text or int(port_text) == port)
