"""Requests and responses with large content: a whole file of a repository, a commit with its files.

A request or response above `LARGE_BYTES` reserves part of the cell's memory budget (`blobs.upload_parsers`) while it is
decoded or encoded. A request is kept on disk until it is complete and enough of the budget is free; a response is sent
from disk. So a slow client occupies no memory."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.blobs.upload_parsers import Parsers
from remuda.cell.errors import StoreError, TooLargeError
from remuda.cell.http.edge.bodies import Body, decode_request
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import too_large
from remuda.cell.http.edge.streaming import Streamed

T = TypeVar("T")

LARGE_BYTES = 1024 * 1024
_COPIES = 6
"""Copies of the content that may be in memory while it is decoded, changed and encoded."""


@contextlib.asynccontextmanager
async def large_parameters(edge: Edge, request: Request, kind: type[T], *, limit_bytes: int) -> AsyncIterator[T]:
    """Context manager: gives the parameters as a `kind`. A body above LARGE_BYTES stays on disk until memory is free in
    the budget of `edge.parsers`, reserved until the block ends. ApiError 413 above `limit_bytes`, 400 if not valid."""
    with tempfile.SpooledTemporaryFile(max_size=LARGE_BYTES, dir=str(edge.settings.data)) as spool:
        size = 0
        async for piece in Body(request.receive).pieces():
            size += len(piece)
            if size > limit_bytes:
                raise too_large(f"the limit for this request is {limit_bytes} bytes")
            await _write(spool, piece, is_on_disk=size > LARGE_BYTES)
        spool.seek(0)
        if size <= LARGE_BYTES:
            yield decode_request(spool.read(), request, kind)
            return
        async with edge.parsers.reserve(_COPIES * size):
            yield await edge.parsers.run(lambda: decode_request(spool.read(), request, kind))


async def _write(spool: "tempfile.SpooledTemporaryFile[bytes]", piece: bytes, *, is_on_disk: bool) -> None:
    try:
        if is_on_disk:
            await asyncio.to_thread(spool.write, piece)
        else:
            spool.write(piece)
    except OSError as error:
        raise StoreError(f"cannot write a large request to disk: {error.strerror}") from error


@contextlib.asynccontextmanager
async def large_content(
    parsers: Parsers,
    read: Callable[[int], Awaitable[T]],
    *,
    limit_bytes: int,
    measure: Callable[[], Awaitable[int]] | None = None,
) -> AsyncIterator[T]:
    """Context manager: gives the content that `read(max_bytes)` returns; `read` must raise TooLargeError if it is
    longer. It is first called with LARGE_BYTES. For longer content memory is reserved in `parsers` until the block
    ends, for the size that `measure` returns, else for `limit_bytes`, and `read` is called with `limit_bytes`."""
    try:
        content = await read(min(LARGE_BYTES, limit_bytes))
    except TooLargeError:
        size = limit_bytes if measure is None else min(await measure(), limit_bytes)
        async with parsers.reserve(_COPIES * size):
            yield await read(limit_bytes)
        return
    yield content


async def large_answer(edge: Edge, body: bytes, media_type: str, headers: Mapping[str, str] | None = None) -> Response:
    """A response with this body. Above LARGE_BYTES it is sent from a file, so that slow clients need no memory."""
    if len(body) <= LARGE_BYTES:
        return Response(body, headers=headers, media_type=media_type)
    answer = await edge.parsers.keep(body)
    return Streamed(answer.pieces(), 200, {**(headers or {}), "Content-Length": str(answer.size)}, media_type)
