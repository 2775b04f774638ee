"""Computes the pause before a runner's next request for a job, and the health of its server, from the server's answers.
All requests of a runner share one `Pace`. Pure code without I/O."""

from enum import StrEnum

import msgspec

from remuda.lib.backoff import Backoff

REFUSED = Backoff(first_seconds=1.0, ceiling_seconds=60.0)
"""After a 403: the runner may be paused or being re-created, so the pause grows slowly."""
TROUBLED = Backoff(first_seconds=0.5, ceiling_seconds=30.0)
"""After a network error or an unexpected status."""
LONGEST_WAIT_SECONDS = 300.0
"""Longest pause, even if the server asks for more."""
HELD_SECONDS = 1.0
"""A request that took longer was held by the server."""
_JITTER = 0.1
"""Added to a pause that the server asks for, so that many managers do not come back at the same moment."""


class Health(StrEnum):
    """How the server answers requests for jobs: as expected, with a refusal (403), or with an error or not at all."""

    WELL = "well"  # it answers as expected, or was not asked yet
    REFUSED = "refused"  # 403: the token is wrong, or the runner was removed there
    TROUBLED = "troubled"  # unreachable, or an unexpected status


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Counts refusals, errors and empty answers in a row, which determine the pause before the next request."""

    check_interval_seconds: float
    strict: bool = False
    """Wait the interval after a job, too (`strict_check_interval`)."""
    refusals: int = 0
    troubles: int = 0
    quick: int = 0
    """Empty answers in a row that came at once."""

    @property
    def health(self) -> Health:
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
        """Return the new counts after an answer, and the seconds to wait before the next request. `status` is the HTTP
        status (None: no answer); `took_seconds` is the duration of the request. `may_hold`: the server was allowed to
        hold the request open until it has a job (long polling). `asked_seconds` is the pause that the server asked for
        (Retry-After, end of its rate limit), `jitter` a random number from 0 to 1."""
        rest = max(0.0, self.check_interval_seconds - took_seconds)
        calm = msgspec.structs.replace(self, refusals=0, troubles=0, quick=0)
        match status:
            case 201:
                return calm, rest if self.strict else 0.0
            case 204:
                if took_seconds >= HELD_SECONDS:
                    return calm, 0.0
                # The first quick answer brings the cursor that allows the server to hold the next request.
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
    """Return the longer pause. The server's (`asked_seconds`) is cut to LONGEST_WAIT_SECONDS, then jitter is added."""
    if asked_seconds is None:
        return own_seconds
    return max(own_seconds, min(asked_seconds, LONGEST_WAIT_SECONDS) * (1 + _JITTER * jitter))
