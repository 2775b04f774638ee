"""The actions of a job, one type each. `Life` decides on them, `remuda.manager.jobs.job` performs them."""

import msgspec


class Acknowledge(msgspec.Struct, frozen=True):
    """PUT running: acknowledge the hand-out."""


class Acquire(msgspec.Struct, frozen=True):
    """Get a machine for the job."""


class Start(msgspec.Struct, frozen=True):
    """Prepare the environment and give the job to the agent."""


class Subscribe(msgspec.Struct, frozen=True):
    """Ask the agent for log and results from `Life.position` on."""


class CancelSteps(msgspec.Struct, frozen=True):
    """Have the agent end the running step."""


class SendTrace(msgspec.Struct, frozen=True):
    """PATCH log bytes from offset `start` on."""

    start: int
    data: bytes


class SendResults(msgspec.Struct, frozen=True):
    """POST step results from sequence number `first_seq` on."""

    first_seq: int
    results: tuple[bytes, ...]


class KeepAlive(msgspec.Struct, frozen=True):
    """PUT running: the job is alive."""

    bytesize: int
    checksum: str | None


class SendFinal(msgspec.Struct, frozen=True):
    """PUT the final state, success or failed."""

    state: str
    failure_reason: str | None
    exit_code: int
    bytesize: int
    checksum: str | None
    may_have_begun: bool = False


class Close(msgspec.Struct, frozen=True):
    """Have the agent forget the job (`tells_agent`), and clean up its folders."""

    tells_agent: bool = True


class Forget(msgspec.Struct, frozen=True):
    """Remove the job from the journal: it is over."""


class Wait(msgspec.Struct, frozen=True):
    """Wait for an event, or until this moment."""

    until: float


Call = Acknowledge | SendTrace | SendResults | KeepAlive | SendFinal
Action = Call | Acquire | Start | Subscribe | CancelSteps | Close | Forget | Wait
