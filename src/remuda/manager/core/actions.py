"""What `Life` can ask for, one value per action; `remuda.manager.jobs.job` performs them."""

import msgspec


class Acknowledge(msgspec.Struct, frozen=True):
    """PUT running: we have it."""


class Acquire(msgspec.Struct, frozen=True):
    """Get a machine for the job."""


class Start(msgspec.Struct, frozen=True):
    """Prepare the environment and give the job to the agent."""


class Subscribe(msgspec.Struct, frozen=True):
    """Ask the agent for log and results from `Life.position` on."""


class CancelSteps(msgspec.Struct, frozen=True):
    """Have the agent end the running step."""


class SendTrace(msgspec.Struct, frozen=True):
    """PATCH bytes of the log."""

    start: int
    data: bytes


class SendResults(msgspec.Struct, frozen=True):
    """POST step results."""

    first_seq: int
    results: tuple[bytes, ...]


class KeepAlive(msgspec.Struct, frozen=True):
    """PUT running: still at it."""

    bytesize: int
    checksum: str | None


class SendFinal(msgspec.Struct, frozen=True):
    """PUT success or failed."""

    state: str
    failure_reason: str | None
    exit_code: int
    bytesize: int
    checksum: str | None
    may_have_begun: bool = False


class Close(msgspec.Struct, frozen=True):
    """Have the agent forget the job, where there is one, and clean up its place."""

    tells_agent: bool = True


class Forget(msgspec.Struct, frozen=True):
    """Remove the job from the journal; there is nothing more to do."""


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do until something happens, or until then."""

    until: float


Call = Acknowledge | SendTrace | SendResults | KeepAlive | SendFinal
Action = Call | Acquire | Start | Subscribe | CancelSteps | Close | Forget | Wait
