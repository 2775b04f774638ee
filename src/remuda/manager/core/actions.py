"""The actions of a job's state machine: `Life.next_action` returns them, `remuda.manager.jobs.job` performs them."""

import msgspec


class Acknowledge(msgspec.Struct, frozen=True):
    """Send PUT with state running, to acknowledge that the server assigned the job to this manager."""


class Acquire(msgspec.Struct, frozen=True):
    """Get a machine for the job."""


class Start(msgspec.Struct, frozen=True):
    """Prepare the environment and give the job to the agent."""


class Subscribe(msgspec.Struct, frozen=True):
    """Ask the agent for the job's log and step results, from `Life.position` on."""


class CancelSteps(msgspec.Struct, frozen=True):
    """Tell the agent to cancel the job, which ends its running step."""


class SendTrace(msgspec.Struct, frozen=True):
    """Send log bytes from offset `start` on to the server (PATCH)."""

    start: int
    data: bytes


class SendResults(msgspec.Struct, frozen=True):
    """Send step results from sequence number `first_seq` on to the server (POST)."""

    first_seq: int
    results: tuple[bytes, ...]


class KeepAlive(msgspec.Struct, frozen=True):
    """Send PUT with state running, so that the server knows that the job is alive."""

    bytesize: int
    checksum: str | None


class SendFinal(msgspec.Struct, frozen=True):
    """Send the job's final state to the server (PUT), success or failed."""

    state: str
    failure_reason: str | None
    exit_code: int
    bytesize: int
    checksum: str | None
    may_have_begun: bool = False
    message: str = ""
    """Why the job failed, for people; empty if `failure_reason` and `exit_code` say all."""


class Close(msgspec.Struct, frozen=True):
    """Tell the agent to delete the job, unless it is unreachable (`tells_agent` is false), and clean up the folders."""

    tells_agent: bool = True


class Forget(msgspec.Struct, frozen=True):
    """Remove the job from the journal, the file of current jobs, because it is over."""


class Wait(msgspec.Struct, frozen=True):
    """Do nothing until an event comes, or until the time `until` of the monotonic clock."""

    until: float


Call = Acknowledge | SendTrace | SendResults | KeepAlive | SendFinal
Action = Call | Acquire | Start | Subscribe | CancelSteps | Close | Forget | Wait
