"""A name for tests that look-ups of names do not grow faster than a pipeline."""

from typing import ClassVar


class CountingName(str):
    """A name that counts how often it is looked up."""

    __slots__ = ()
    lookups: ClassVar[int] = 0

    def __hash__(self) -> int:
        CountingName.lookups += 1
        return super().__hash__()
