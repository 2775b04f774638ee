"""Client of a cell's endpoints for shells: a runner manager fetches requests and exchanges the bytes of shells.

HTTP statuses come back as values; only network errors raise (`RunnerApiTemporaryError`). `remuda.wire.shell` has the
messages.
"""

from urllib.parse import quote

import msgspec

from remuda.wire.runner_client import OwnReply, RunnerClient
from remuda.wire.runner_server import RunnerApiTemporaryError
from remuda.wire.shell import LookRequest, Wanted

WANTED_SECONDS = 120.0
"""Longest wait for what is wanted; cells hold it for 50 s."""
_SHELL = "/api/remuda/v1/runners/shells"


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """What has come for a command."""

    data: bytes = b""
    is_over: bool = False


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a command's output the cell has."""

    size: int
    is_over: bool = False


class LookingClient:
    """The shell calls of one runner."""

    def __init__(self, client: RunnerClient) -> None:
        self._client = client

    async def fetch_wanted(self, asked: LookRequest) -> Wanted | int:
        """What is wanted; a status when the cell does not say."""
        reply = await self._client.own(
            "POST",
            "/api/remuda/v1/runners/wanted",
            endpoint="wanted",
            body=msgspec.json.encode(msgspec.structs.replace(asked, system_id=self._client.system_id)),
            timeout=WANTED_SECONDS,
        )
        if reply.status != 200:
            return reply.status
        try:
            return msgspec.json.decode(reply.body, type=Wanted)
        except msgspec.MsgspecError:
            return 502

    async def input(self, shell: str, offset: int) -> Piece:
        """Frames for the command from a byte on; waits for some."""
        reply = await self._call("GET", f"{shell}/input", f"&offset={offset}")
        state = reply.headers.get("X-Remuda-Shell-State", "")
        if reply.status == 200:
            return Piece(data=reply.body, is_over=state == "over" and not reply.body)
        return Piece(is_over=_is_final(reply.status))

    async def output(self, shell: str, start: int, data: bytes) -> Taken:
        """Frames of the command, at their place."""
        where = {"Content-Range": f"{start}-{start + len(data) - 1}", "Content-Type": "application/octet-stream"}
        reply = await self._call("PATCH", f"{shell}/output", body=data, headers=where)
        size = reply.headers.get("Range", "").rpartition("-")[2]
        is_over = reply.headers.get("X-Remuda-Shell-State", "") == "over" or _is_final(reply.status)
        return Taken(size=int(size) if size.isascii() and size.isdigit() else start, is_over=is_over)

    async def close(self, shell: str, reason: str) -> None:
        await self._call("DELETE", shell, f"&reason={quote(reason[:500])}")

    async def _call(
        self, method: str, path: str, query: str = "", *, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> OwnReply:
        who = quote(self._client.system_id, safe="")
        where = f"{_SHELL}/{path}?system_id={who}{query}"
        return await self._client.own(method, where, endpoint="shell", body=body, headers=headers or {})


def _is_final(status: int) -> bool:
    """Whether an answer means that there is no such shell for us, now and later."""
    if status in (400, 401, 403, 404, 405, 410, 413):
        return True
    if status in (200, 202, 204, 416):
        return False
    raise RunnerApiTemporaryError(f"the cell answers {status}")
