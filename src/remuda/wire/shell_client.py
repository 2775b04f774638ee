"""Client of a cell's endpoints for shells in jobs, for a runner manager: fetches users' requests, exchanges the bytes
of shells. Raises RunnerApiTemporaryError after network errors; `input`, `output` also after a temporary status."""

from urllib.parse import quote

import msgspec

from remuda.wire.runner_client import OwnReply, RunnerClient
from remuda.wire.runner_server import RunnerApiTemporaryError
from remuda.wire.shell import LookRequest, Wanted

WANTED_SECONDS = 120.0
"""Longest wait for the answer to `fetch_wanted`. Cells hold the request for 50 s."""
_SHELL = "/api/remuda/v1/runners/shells"


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a shell's input, a stream of frames (see `wire.shell`). `is_over`: the shell was closed."""

    data: bytes = b""
    is_over: bool = False


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to shell output. `size`: bytes of its stream that the cell has in total. `is_over`: it was closed."""

    size: int
    is_over: bool = False


class ShellClient:
    """Calls the endpoints of a cell for interactive shells, with the token of one runner."""

    def __init__(self, client: RunnerClient) -> None:
        self._client = client

    async def fetch_wanted(self, request: LookRequest) -> Wanted | int:
        """Wait for requests of the cell's users. Returns the HTTP status if the cell answers with an error, and 502 if
        its answer cannot be decoded."""
        reply = await self._client.own(
            "POST",
            "/api/remuda/v1/runners/wanted",
            endpoint="wanted",
            body=msgspec.json.encode(msgspec.structs.replace(request, system_id=self._client.system_id)),
            timeout=WANTED_SECONDS,
        )
        if reply.status != 200:
            return reply.status
        try:
            return msgspec.json.decode(reply.body, type=Wanted)
        except msgspec.MsgspecError:
            return 502

    async def input(self, shell: str, offset: int) -> Piece:
        """Wait for the next bytes of a shell's input, a stream of frames. `offset`: how many were received before."""
        reply = await self._call("GET", f"{shell}/input", f"&offset={offset}")
        state = reply.headers.get("X-Remuda-Shell-State", "")
        if reply.status == 200:
            return Piece(data=reply.body, is_over=state == "over" and not reply.body)
        return Piece(is_over=_is_final(reply.status))

    async def output(self, shell: str, start: int, data: bytes) -> Taken:
        """Send bytes of a shell's output, a stream of frames (`wire.shell`). `start`: offset of `data` in it."""
        headers = {"Content-Range": f"{start}-{start + len(data) - 1}", "Content-Type": "application/octet-stream"}
        reply = await self._call("PATCH", f"{shell}/output", body=data, headers=headers)
        size = reply.headers.get("Range", "").rpartition("-")[2]
        is_over = reply.headers.get("X-Remuda-Shell-State", "") == "over" or _is_final(reply.status)
        return Taken(size=int(size) if size.isascii() and size.isdigit() else start, is_over=is_over)

    async def close(self, shell: str, reason: str) -> None:
        await self._call("DELETE", shell, f"&reason={quote(reason[:500])}")

    async def _call(
        self, method: str, path: str, query: str = "", *, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> OwnReply:
        system_id = quote(self._client.system_id, safe="")
        target = f"{_SHELL}/{path}?system_id={system_id}{query}"
        return await self._client.own(method, target, endpoint="shell", body=body, headers=headers or {})


def _is_final(status: int) -> bool:
    """True for a final error, such as 404 because the shell is gone: give up. False if the call worked or the cell does
    not accept bytes at this offset (416). Raises RunnerApiTemporaryError for other statuses."""
    if status in (400, 401, 403, 404, 405, 410, 413):
        return True
    if status in (200, 202, 204, 416):
        return False
    raise RunnerApiTemporaryError(f"the cell answers {status}")
