"""How soon to ask a server for the next job, given how it answered so far, and whether all is well. Pure.

One `Pace` serves all requests of a runner: a server in trouble is asked by one of them at a time, and other runners do
not notice. `polling.py` waits.
"""

from enum import StrEnum

import msgspec

from remuda.lib.backoff import Backoff

REFUSED = Backoff(first_seconds=1.0, ceiling_seconds=60.0)
"""After a 403: the runner may be paused or being re-created; a short growing wait instead of an hour's silence."""
TROUBLED = Backoff(first_seconds=0.5, ceiling_seconds=30.0)
"""After a network error or an answer that says nothing."""
LONGEST_WAIT_SECONDS = 300.0
"""A server that asks for a longer wait is asked again by then all the same."""
HELD_SECONDS = 1.0
"""An answer that took longer was held back by the server."""
_JITTER = 0.1
"""What a server asks for is a least wait; so many managers that heard the same do not come back in step."""


class Health(StrEnum):
    """How a server treats a runner."""

    WELL = "well"  # it answers as it should, or has not been asked yet
    REFUSED = "refused"  # 403: the token is wrong, or the runner was removed there
    TROUBLED = "troubled"  # it cannot be reached, or answers what is no answer


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner remembers of earlier answers."""

    check_interval_seconds: float
    strict: bool = False
    """Wait the interval after a job, too."""
    refusals: int = 0
    troubles: int = 0
    quick: int = 0
    """Times in a row that the server had nothing and said so at once."""

    @property
    def health(self) -> Health:
        """In a word."""
        if self.refusals:
            return Health.REFUSED
        return Health.TROUBLED if self.troubles else Health.WELL

    def after(
        self,
        status: int | None,
        *,
        took_seconds: float,
        may_hold: bool = True,
        asked_seconds: float | None = None,
        jitter: float = 1.0,
    ) -> tuple["Pace", float]:
        """The pace from now on and the seconds to wait; `status` is None when nobody answered.

        The server asked for a wait of `asked_seconds` (Retry-After, the end of its rate limit), if it did.
        """
        rest = max(0.0, self.check_interval_seconds - took_seconds)
        calm = msgspec.structs.replace(self, refusals=0, troubles=0, quick=0)
        match status:
            case 201:
                return calm, rest if self.strict else 0.0
            case 204:
                if took_seconds >= HELD_SECONDS:
                    return calm, 0.0
                # The first quick answer brings the cursor with which the next request is held.
                wait = 0.0 if may_hold and self.quick == 0 else rest
                return msgspec.structs.replace(calm, quick=self.quick + 1), wait
            case 403:
                refusals = self.refusals + 1
                pace = msgspec.structs.replace(calm, refusals=refusals)
                return pace, _at_least(asked_seconds, REFUSED.delay(refusals, jitter=jitter), jitter)
            case 409:
                return calm, rest
            case _:
                troubles = self.troubles + 1
                pace = msgspec.structs.replace(calm, troubles=troubles)
                return pace, _at_least(asked_seconds, TROUBLED.delay(troubles, jitter=jitter), jitter)


def _at_least(asked_seconds: float | None, own_seconds: float, jitter: float) -> float:
    """What the server asked for counts, within reason; a server that always says 0 is not asked without a pause."""
    if asked_seconds is None:
        return own_seconds
    return max(own_seconds, min(asked_seconds, LONGEST_WAIT_SECONDS) * (1 + _JITTER * jitter))
