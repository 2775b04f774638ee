"""Messages of `GET /api/remuda/v1/demand`: how many jobs of a cell run, wait, or will be ready soon.

`remuda.cell.core.waiting.demand` makes these values; runner managers that scale machines read them.
"""

import msgspec


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that are created, and not ready yet."""

    next: int = 0
    """Everything they wait for is under way."""
    later: int = 0
    """Something they wait for has not had its turn either."""
    held: int = 0
    """Nobody knows when: they wait for a person, a time or a resource group, or for a job that does."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What of a demand is one manager's."""

    runner_id: int
    system_id: str
    running: int
    """Jobs that it has."""
    ready: int
    created: Ahead


class KeyDemand(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that the same runners can take."""

    tags: tuple[str, ...]
    protected: bool
    pools: tuple[tuple[str, int], ...]
    """Whose jobs they are: an organization's, and of a group or a project that has runners of its own."""
    running: int
    ready: int
    """They wait for a runner."""
    created: Ahead
    unserved: int
    """Ready ones for which no manager is there."""
    shares: tuple[Share, ...]
    """They sum to the whole, but for what is unserved."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: the demand of the whole cell."""

    version: int = 1
    keys: tuple[KeyDemand, ...] = ()
