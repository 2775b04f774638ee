"""What the manager stores of a job: how far it is, what the server has of it, how it ended.

`life.py` makes these values, `remuda.manager.jobs.journal` stores them; a new process begins with them.
"""

from enum import StrEnum

import msgspec
from msgspec.structs import replace

FIRST_RESULT = 1
"""Sequence numbers of results begin here."""


AGAIN_BYTES = 256 * 1024
"""So much of a log that the server has may be sent once more after a crash."""
AGAIN_SECONDS = 10.0
"""What the server has had for so long is stored when the job next has something to do, be it as little as it may."""


class Phase(StrEnum):
    """How far a job is. Stored; OVER only where there is no outcome to offer."""

    RECEIVED = "received"  # the server handed it out and does not know yet that we have it
    ACKNOWLEDGED = "acknowledged"  # the server knows; the agent may or may not
    FOUND = "found"  # the agent has it, no journal knew it; the server has not said yet that it is ours
    STARTED = "started"  # the agent has it
    ENDED = "ended"  # its outcome is known; log, results and final state are on their way
    HELD = "held"  # the server has everything; its environment stays for those who look into it
    OVER = "over"  # the server needs nothing more from us


_RELAYED = (Phase.STARTED, Phase.ENDED)
"""In these only the server gets further."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended."""

    state: str
    """success or failed."""
    reason: str = ""
    exit_code: int = 0
    message: str = ""
    log_bytes: int = 0
    results: int = 0
    checksum: str = ""
    """crc32:… of the whole log; empty when the agent did not say."""
    note: str = ""
    """A line that the manager itself puts behind the log, because the agent cannot say it; ends at `log_bytes`."""
    held_until: float = 0.0
    """Until when the agent keeps the environment of a failed job; wall time, 0: it does not."""
    may_have_begun: bool = False
    """The agent had the job, or may have had it, and can say no more whether the script began."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a new process must know of a job."""

    phase: Phase = Phase.RECEIVED
    log_offset: int = 0
    """The server has the log up to here."""
    log_crc: int | None = 0
    result_seq: int = FIRST_RESULT
    """The next result the server wants."""
    cancel_told: bool = False
    """The agent knows that the job shall end."""
    outcome: Outcome | None = None
    machine: str = ""
    """Where it runs, in its environment; empty: it has no place yet."""

    def is_worth_storing(self, stored: "Record", *, seconds: float = 0.0, again_bytes: int = AGAIN_BYTES) -> bool:
        """Whether a new process should know it, where it knows what is `stored`, for so many seconds.

        How far the server is with what its agent keeps matters little: it has no harm of what it gets twice, and says
        so. Of a job that has ended the agent keeps all until it is told to forget the job, which comes soon; of one
        that runs it keeps what is not stored here, which must not become much.
        """
        is_old = self.phase is not Phase.ENDED and seconds >= AGAIN_SECONDS
        if self.phase not in _RELAYED or is_old or self.log_offset - stored.log_offset >= again_bytes:
            return self != stored
        reached = replace(stored, log_offset=self.log_offset, log_crc=self.log_crc, result_seq=self.result_seq)
        return self != reached


def again_bytes(waiting_limit_bytes: int) -> int:
    """The same where an agent may keep only so much for us, above 0: it must hear in time what it need not keep, or it
    holds the job's output back."""
    return min(AGAIN_BYTES, waiting_limit_bytes // 4) if waiting_limit_bytes > 0 else AGAIN_BYTES
