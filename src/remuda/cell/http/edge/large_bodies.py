"""Requests and answers that hold something large: a whole file of a repository, a commit with its files.

Decided here: from which size on they take a share of the memory that the cell's parsers have. What comes in waits on
disk until it is whole and its share is free, what goes out is read from disk; so neither a slow sender nor a slow
reader holds any of it, and callers who all want the largest at once wait for each other.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.blobs.upload_parsers import Parsers
from remuda.cell.errors import StoreError, TooLargeError
from remuda.cell.http.edge.bodies import Body, decode
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import too_large
from remuda.cell.http.edge.streaming import Streamed

T = TypeVar("T")

LARGE_BYTES = 1024 * 1024
_COPIES = 6
"""How many times over something may be in memory while it is decoded, changed and encoded."""


@contextlib.asynccontextmanager
async def large_parameters(edge: Edge, request: Request, kind: type[T], *, limit_bytes: int) -> AsyncIterator[T]:
    """The request's parameters, as `bodies.parameters` gives them, with the memory that they take for as long."""
    content_type, query = request.headers.get("content-type", ""), request.scope["query_string"]
    with tempfile.SpooledTemporaryFile(max_size=LARGE_BYTES, dir=str(edge.settings.data)) as spool:
        size = 0
        async for piece in Body(request.receive).pieces():
            size += len(piece)
            if size > limit_bytes:
                raise too_large(f"this request may have {limit_bytes} bytes")
            await _write(spool, piece, is_on_disk=size > LARGE_BYTES)
        spool.seek(0)
        if size <= LARGE_BYTES:
            yield decode(spool.read(), content_type, query, kind)
            return
        async with edge.parsers.reserve(_COPIES * size):
            yield await edge.parsers.run(lambda: decode(spool.read(), content_type, query, kind))


async def _write(spool: "tempfile.SpooledTemporaryFile[bytes]", piece: bytes, *, is_on_disk: bool) -> None:
    try:
        if is_on_disk:
            await asyncio.to_thread(spool.write, piece)
        else:
            spool.write(piece)
    except OSError as error:
        raise StoreError(f"a large request cannot be kept until it is whole: {error.strerror}") from error


@contextlib.asynccontextmanager
async def large_content(
    parsers: Parsers,
    read: Callable[[int], Awaitable[T]],
    *,
    limit_bytes: int,
    measure: Callable[[], Awaitable[int]] | None = None,
) -> AsyncIterator[T]:
    """What is read up to a limit, with the memory that it takes. What is small waits for nobody; of what is large
    `measure` says the size, without it the limit is reserved."""
    try:
        content = await read(min(LARGE_BYTES, limit_bytes))
    except TooLargeError:
        size = limit_bytes if measure is None else min(await measure(), limit_bytes)
        async with parsers.reserve(_COPIES * size):
            yield await read(limit_bytes)
        return
    yield content


async def large_answer(edge: Edge, body: bytes, media_type: str, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that is in memory only for as long as it is made."""
    if len(body) <= LARGE_BYTES:
        return Response(body, headers=headers, media_type=media_type)
    answer = await edge.parsers.keep(body)
    return Streamed(answer.pieces(), 200, {**(headers or {}), "Content-Length": str(answer.size)}, media_type)
