"""`remuda events` while the cell cannot be reached."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from remuda.cli import events
from remuda.wire.user_client import EventInfo, RefusedError, UserApiError, UserClient


class UnreachableCell:
    """A client whose first call yields one event; the next three cannot reach the cell, and later ones get a 401."""

    def __init__(self) -> None:
        self.calls = 0

    async def events(self, **_: Any) -> AsyncIterator[EventInfo]:
        self.calls += 1
        if self.calls == 1:
            yield EventInfo(id="a-1", kind="runner", data={"id": 1, "description": "x\x1b[2J", "status": "online"})
        elif self.calls < 5:
            raise UserApiError("cannot reach the cell")
        else:
            raise RefusedError("401 Unauthorized", 401)


async def test_cell_failure_is_shown_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "RETRY_SECONDS", 0.0)
    client = UnreachableCell()
    with pytest.raises(RefusedError):
        await events._follow(cast("UserClient", client), {}, as_json=False)
    captured = capsys.readouterr()
    assert captured.out.endswith("runner   1  online  x\\x1b[2J\n")
    assert captured.err.count("trying again") == 1


HEARTBEAT = b": alive\nid: a-7\n\n"
BROKEN = b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + HEARTBEAT
REFUSED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("as_json", [False, True])
async def test_a_restart_before_the_first_event_loses_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    monkeypatch.setattr(events, "RETRY_SECONDS", 0.0)
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(BROKEN if len(requests) == 1 else REFUSED)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with UserClient(f"http://{host}:{port}", "t") as client:
            with pytest.raises(RefusedError):
                await events._follow(client, {}, as_json=as_json)
    assert [b"last-event-id: a-7" in request.lower() for request in requests] == [False, True]
    assert capsys.readouterr().out == ""


async def test_a_cell_that_cannot_be_reached_at_first_is_an_error() -> None:
    client = UnreachableCell()
    client.calls = 1
    with pytest.raises(UserApiError, match="cannot reach the cell"):
        await events._follow(cast("UserClient", client), {}, as_json=False)
