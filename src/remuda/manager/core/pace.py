"""How soon to ask a server for the next job, given how it answered the last time. Pure; `polling.py` waits."""

import msgspec

from remuda.lib.backoff import Backoff

REFUSED = Backoff(first_seconds=1.0, ceiling_seconds=60.0)
"""After a 403: the runner may be paused or being re-created; a short growing wait instead of an hour's silence."""
TROUBLED = Backoff(first_seconds=0.5, ceiling_seconds=30.0)
"""After a network error or an answer that says nothing."""
HELD_SECONDS = 1.0
"""An answer that took longer was held back by the server."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """What one asker remembers of earlier answers."""

    check_interval_seconds: float
    strict: bool = False
    """Wait the interval after a job, too."""
    refusals: int = 0
    troubles: int = 0
    quick: int = 0
    """Times in a row that the server had nothing and said so at once."""

    def after(
        self, status: int | None, *, took_seconds: float, may_hold: bool = True, jitter: float = 1.0
    ) -> tuple["Pace", float]:
        """The pace from now on and the seconds to wait; `status` is None when nobody answered."""
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
                return msgspec.structs.replace(calm, refusals=refusals), REFUSED.delay(refusals, jitter=jitter)
            case 409:
                return calm, rest
            case _:
                troubles = self.troubles + 1
                return msgspec.structs.replace(calm, troubles=troubles), TROUBLED.delay(troubles, jitter=jitter)
