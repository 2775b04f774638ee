"""The base class of stored values, and the ids of the organization, user and namespace that every new cell has."""

import msgspec

ORGANIZATION_ID = 1
"""The first organization."""

USER_ID = 1
"""The first administrator."""

NAMESPACE_ID = 1
"""The namespace of the first administrator."""

MAX_PRIORITY = 100
"""Priorities of jobs and runners are between -MAX_PRIORITY and MAX_PRIORITY."""


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of values that are stored as JSON. `version` is the version of the value's format."""

    # A factory, so that it is written even if defaults are omitted.
    version: int = msgspec.field(default_factory=lambda: 1)
