"""Finds blocks such as `$[[ ... ]]` in a text, in linear time: a text can have a million openers without a closer."""

from __future__ import annotations

from collections.abc import Iterator


def find_blocks(text: str, opener: str, closer: str) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end of what is between each opener and the next closer. Blocks do not overlap."""
    begin = text.find(opener)
    while begin >= 0:
        end = text.find(closer, begin + len(opener))
        if end < 0:
            return
        yield begin + len(opener), end
        begin = text.find(opener, end + len(closer))
