"""Answers with a file (a job log, artifact or LFS object) or the part of it that `Range` asks for, with an ETag for
`If-Range` and `If-None-Match`. One range is answered with 206; several or malformed ones with the whole file, which
HTTP allows. The content is streamed."""

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from starlette.responses import Response

from remuda.cell.http.edge.errors import ApiError
from remuda.cell.http.edge.streaming import Streamed

_BYTES = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Content:
    """A file that can be read from any offset."""

    read: Callable[[int], AsyncGenerator[bytes, None]]
    """Yields the bytes from an offset on. More than `size` bytes in total are not sent."""
    size: int
    tag: str
    """The ETag, with its quotation marks. It must change when the bytes change."""
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


def answer_content(headers: Mapping[str, str], content: Content) -> Response:
    """The response to a GET with these request headers: the whole content, the range that the client asks for, or 304
    if the client has it. Raises ApiError 416 if the content has none of the requested bytes."""
    answered = {**content.headers, "ETag": content.tag, "Accept-Ranges": "bytes"}
    if _has_tag(headers.get("if-none-match", ""), content.tag):
        return Response(status_code=304, headers=answered)
    byte_range = parse_range(headers.get("range", ""), content.size)
    if byte_range is None or headers.get("if-range", content.tag) != content.tag:
        return _part(content, 0, content.size, 200, answered)
    start, end = byte_range
    if start >= end:
        raise ApiError(416, {"message": "416 Range Not Satisfiable"}, Content_Range=f"bytes */{content.size}")
    return _part(content, start, end, 206, {**answered, "Content-Range": f"bytes {start}-{end - 1}/{content.size}"})


def _part(content: Content, start: int, end: int, status: int, headers: Mapping[str, str]) -> Response:
    pieces = limit_bytes(content.read(start), end - start) if end > start else None
    return Streamed(pieces, status, {**headers, "Content-Length": str(end - start)}, content.media_type)


def _has_tag(header: str, tag: str) -> bool:
    return header.strip() == "*" or tag in (part.strip().removeprefix("W/") for part in header.split(","))


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Start and end (exclusive) of the bytes in a `Range` header; start >= end if the file has none of them. None if
    the whole file must be sent: no range, several, or malformed."""
    match = _BYTES.fullmatch(header.replace(" ", ""))
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        return max(size - int(match[2]), 0), size
    start, last = int(match[1]), int(match[2] or size)
    if match[2] and last < start:
        return None
    return start, min(last + 1, size)


async def limit_bytes(pieces: AsyncGenerator[bytes, None], count: int) -> AsyncGenerator[bytes, None]:
    """Yield the first `count` bytes of `pieces`, then close it."""
    async with aclosing(pieces):
        async for piece in pieces:
            yield piece[:count]
            count -= len(piece)
            if count <= 0:
                return
