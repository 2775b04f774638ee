"""Time limits of a job in the manager: for calls to the server and for an unreachable agent. `life.py` applies them."""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    keep_alive: float = 30.0
    """Longest time between two calls to the server."""
    acknowledge: float = 3600.0
    """An unacknowledged job is dropped after this time: the server has handed it out again long ago."""
    ending: float = 86400.0
    """How long after a job's end the manager tries to send log, results and final state; then the job is dropped. Also
    how long it tries to acknowledge a job that was recovered from its agent."""
    agent: float = 900.0
    """How long an agent may be unreachable before its jobs fail."""
    gathering: float = 0.0
    """The first log bytes and step results of a running job are sent when the job is this old, so that a short job
    needs few calls. It counts from the job's receipt by this process."""
