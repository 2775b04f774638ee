"""Limits the parts of a fetch or push request that git holds in memory: the lists of refs, commits and options.

git itself limits the pack of a push (`receive.maxInputSize`) and the list of a fetch (`http.maxRequestBuffer`). The
latter limit counts bytes before decompression, so request bodies are decompressed here."""

import zlib
from collections.abc import AsyncIterator

LISTS_LIMIT_BYTES = 64 * 1024 * 1024
"""The most bytes of refs and commits that a git request may list: enough for about half a million refs."""
_PIECE_BYTES = 65536
_HEAD_BYTES = 4


async def unpack(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Decompress a gzip'd body piece by piece. Damaged data ends it without an error: git sees a cut-off request."""
    inflater = zlib.decompressobj(wbits=31)
    async for packed in pieces:
        rest, piece = packed, bytes(_PIECE_BYTES)
        while rest or len(piece) == _PIECE_BYTES:
            try:
                piece = inflater.decompress(rest, _PIECE_BYTES)
            except zlib.error:
                return
            rest = inflater.unconsumed_tail
            if piece:
                yield piece
            if inflater.eof:
                return


async def limit_lists(pieces: AsyncIterator[bytes], limit_bytes: int = LISTS_LIMIT_BYTES) -> AsyncIterator[bytes]:
    """Pass on the body of a push. If the lists of refs and options before the pack are longer than the limit, end the
    body there: git then rejects the push. The lists consist of packets: four hexadecimal digits with the packet's
    length, these digits included, then its bytes."""
    head, skipped, seen, is_list = b"", 0, 0, True
    async for piece in pieces:
        position = 0
        while is_list and position < len(piece):
            if skipped:
                step = min(skipped, len(piece) - position)
                skipped -= step
            else:
                step = min(_HEAD_BYTES - len(head), len(piece) - position)
                head += piece[position : position + step]
                if len(head) == _HEAD_BYTES:
                    is_list = _is_hexadecimal(head)
                    skipped = max(int(head, 16) - _HEAD_BYTES, 0) if is_list else 0
                    head = b""
            position += step
        seen += len(piece) if is_list else 0
        if seen > limit_bytes:
            return
        yield piece


def _is_hexadecimal(head: bytes) -> bool:
    """True if the four bytes are a packet's length; False at the start of the pack, which begins with `PACK`."""
    return all(byte in b"0123456789abcdefABCDEF" for byte in head)
