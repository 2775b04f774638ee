"""Limits on what git would hold in memory of a request: the lists of refs, commits and options.

Decided here: how much of them is passed on to git. The pack of a push goes to the disk, where git limits it by itself
(`receive.maxInputSize`); it also limits how long a fetch's list is (`http.maxRequestBuffer`), but not what comes out of
a compressed one. So bodies are unpacked here. Used by `remuda.cell.git.smart_http`.
"""

import zlib
from collections.abc import AsyncIterator

LISTS_LIMIT_BYTES = 64 * 1024 * 1024
"""The most bytes of refs and commits that a git request may list: enough for about half a million refs."""
_PIECE_BYTES = 65536
_HEAD_BYTES = 4


async def unpack(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What a gzip'd body holds, in small pieces; it ends where that ends or is damaged."""
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
    """A push; it ends where its lists, which stand before the pack, are beyond the limit, and then git fails.

    They are packets: four hexadecimal digits with the length, themselves included, and so many bytes.
    """
    head, skipped, seen, is_list = b"", 0, 0, True
    async for piece in pieces:
        at = 0
        while is_list and at < len(piece):
            if skipped:
                step = min(skipped, len(piece) - at)
                skipped -= step
            else:
                step = min(_HEAD_BYTES - len(head), len(piece) - at)
                head += piece[at : at + step]
                if len(head) == _HEAD_BYTES:
                    is_list = _is_hexadecimal(head)
                    skipped = max(int(head, 16) - _HEAD_BYTES, 0) if is_list else 0
                    head = b""
            at += step
        seen += len(piece) if is_list else 0
        if seen > limit_bytes:
            return
        yield piece


def _is_hexadecimal(head: bytes) -> bool:
    """False where the pack begins."""
    return all(byte in b"0123456789abcdefABCDEF" for byte in head)
