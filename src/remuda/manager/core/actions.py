"""What `Life` can ask for, one value per action; `remuda.manager.jobs` performs them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """PUT running: we have it."""


@dataclass(frozen=True, slots=True)
class Start:
    """Prepare the environment and give the job to the agent."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Ask the agent for log and results from `Life.position` on."""


@dataclass(frozen=True, slots=True)
class CancelSteps:
    """Have the agent end the running step."""


@dataclass(frozen=True, slots=True)
class SendTrace:
    """PATCH bytes of the log."""

    start: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SendResults:
    """POST step results."""

    first_seq: int
    results: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """PUT running: still at it."""

    bytesize: int
    checksum: str | None


@dataclass(frozen=True, slots=True)
class SendFinal:
    """PUT success or failed."""

    state: str
    failure_reason: str | None
    exit_code: int
    bytesize: int
    checksum: str | None


@dataclass(frozen=True, slots=True)
class Close:
    """Have the agent forget the job."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove the job from the journal; there is nothing more to do."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until something happens, or until then."""

    until: float


Call = Acknowledge | SendTrace | SendResults | KeepAlive | SendFinal
Action = Call | Start | Subscribe | CancelSteps | Close | Forget | Wait
