"""How long a job in the manager may wait for what; `life.py` goes by it."""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long things may take; seconds."""

    keep_alive: float = 30.0
    """The server hears something at least this often."""
    acknowledge: float = 3600.0
    """Unconfirmed for so long, a job is dropped: the server has long given it to somebody else."""
    ending: float = 86400.0
    """The final state is offered for so long."""
    agent: float = 900.0
    """An agent that cannot be reached for so long has lost its jobs."""
    gathering: float = 0.0
    """The first bytes of a log, and results of steps, wait so long for more: a short job is told in one go."""
