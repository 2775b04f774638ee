"""What every stored value is, and the numbers that a cell begins with."""

import msgspec

ORGANIZATION_ID = 1
"""The organization that every cell begins with."""

USER_ID = 1
"""The first administrator, whom every cell begins with."""

NAMESPACE_ID = 1
"""The first administrator's own namespace."""

MAX_PRIORITY = 100
"""Priorities of jobs and runners go from minus this to this."""


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A stored value."""

    # Not a plain default, so that it is written even where defaults are not.
    version: int = msgspec.field(default_factory=lambda: 1)
