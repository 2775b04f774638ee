"""The data that the manager stores for a job: as received (`JobRow`), and its progress and outcome (`Record`)."""

import hashlib
from enum import StrEnum

import msgspec
from msgspec.structs import replace

FIRST_RESULT = 1
"""Sequence number of the first result."""


AGAIN_BYTES = 256 * 1024
"""Limit for log bytes that are sent twice after a crash."""
AGAIN_SECONDS = 10.0
"""Progress older than this is stored with the next action, however small."""


class Phase(StrEnum):
    """The phases of a job. In the journal, a job with an outcome keeps ENDED instead of OVER until it is removed."""

    RECEIVED = "received"  # handed out by the server; not yet acknowledged
    ACKNOWLEDGED = "acknowledged"  # acknowledged; the agent may or may not have it
    FOUND = "found"  # recovered from an agent; the server has not confirmed it yet
    STARTED = "started"  # the agent has it
    ENDED = "ended"  # its outcome is known; log, results and final state are being sent
    ON_HOLD = "held"  # the server has everything; the environment stays for shells
    OVER = "over"  # the server needs nothing more


_RELAYED = (Phase.STARTED, Phase.ENDED)
"""Phases in which mostly the positions of log and results change."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The final state of a job, stored until the server has confirmed it."""

    state: str
    """success or failed."""
    reason: str = ""
    exit_code: int = 0
    message: str = ""
    log_bytes: int = 0
    results: int = 0
    checksum: str = ""
    """crc32:… of the whole log; empty if unknown."""
    note: str = ""
    """A line that the manager appends to the log when the agent cannot; it ends at `log_bytes`."""
    held_until: float = 0.0
    """End of the hold of a failed job, in wall time; 0: it is not held."""
    may_have_begun: bool = False
    """The agent had the job, or may have had it, so the script may have begun."""


def job_key(job_id: int, token: str) -> str:
    """Return the id of a job for the agent. It contains a digest of the job token, so that a job which the server
    assigns a second time, with a new token, has another id."""
    return f"{job_id}-{hashlib.sha256(token.encode()).hexdigest()[:16]}"


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was received. Only `slot` can change, before the job starts; progress is in its `Record`."""

    key: str
    """The job's id for the agent (`job_key`)."""
    job_id: int
    url: str
    runner: str
    """Short token of the runner that took it."""
    runner_name: str
    slot: int
    sends_results: bool
    received_at: float
    api_version: int
    payload: bytes
    settings: str = ""
    """Name of the runner's configuration at that time, see `Journal.settings`; empty: unknown."""
    manager: str = ""
    """Mark of the manager in the names of its folders, see `JobPlace.manager`."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a job: the part of its state that a new process needs to continue it."""

    phase: Phase = Phase.RECEIVED
    log_offset: int = 0
    """Log bytes that the server has."""
    log_crc: int | None = 0
    """CRC-32 of those bytes; None: unknown."""
    result_seq: int = FIRST_RESULT
    """The next result that the server needs."""
    cancel_told: bool = False
    """True if the cancel request was sent to the agent."""
    outcome: Outcome | None = None
    machine: str = ""
    """Name of its machine; empty: it has none yet."""

    def is_worth_storing(self, stored: "Record", *, seconds: float = 0.0, again_bytes: int = AGAIN_BYTES) -> bool:
        """True if this record should replace the `stored` one, which is `seconds` old. Small progress is not worth a
        write, because the server ignores data that it gets twice. A running job is stored after `again_bytes` of log or
        AGAIN_SECONDS, because the agent keeps all data after the stored position."""
        is_old = self.phase is not Phase.ENDED and seconds >= AGAIN_SECONDS
        if self.phase not in _RELAYED or is_old or self.log_offset - stored.log_offset >= again_bytes:
            return self != stored
        advanced = replace(stored, log_offset=self.log_offset, log_crc=self.log_crc, result_seq=self.result_seq)
        return self != advanced


def again_bytes(waiting_limit_bytes: int) -> int:
    """Return how many log bytes may be sent to the server before the new offset is stored. The agent keeps the log
    after the stored offset, at most `waiting_limit_bytes` (0: no limit); if that is full, the job's output stops."""
    return min(AGAIN_BYTES, waiting_limit_bytes // 4) if waiting_limit_bytes > 0 else AGAIN_BYTES
