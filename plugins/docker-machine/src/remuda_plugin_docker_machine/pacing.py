"""How fast machines are asked for: as many at once as is allowed while that goes well, one after the other with growing
pauses while it does not.

Every create is calls of a provider's API, and a provider that refuses (a quota, a rate limit, a wrong option) refuses
the next one as well: to go on asking makes it worse. The first machine that is made after failures ends the pauses.
Pure: time comes in as an argument.
"""

from remuda.lib.backoff import Backoff

PAUSES = Backoff(first_seconds=10.0, ceiling_seconds=600.0)


class Pace:
    """Of one group."""

    def __init__(self, at_once: int, pauses: Backoff = PAUSES) -> None:
        self._at_once = at_once
        self._pauses = pauses
        self._until = float("-inf")
        self.failures = 0
        """In a row."""
        self.cause = ""
        """Of the last of them."""
        self.under_way = 0

    def failed(self, cause: str, *, now: float, jitter: float) -> float:
        """A machine could not be made; for how long none is asked for. Failures of machines that were asked for
        together are one: what one of them says, all of them say."""
        if now >= self._until:
            self.failures += 1
            self._until = now + self._pauses.delay(self.failures, jitter=jitter)
        self.cause = cause
        return self._until - now

    def succeeded(self) -> None:
        self.failures, self.cause, self._until = 0, "", float("-inf")

    def pause(self, now: float) -> float:
        """Seconds until another may be asked for."""
        return max(0.0, self._until - now)

    def may_begin(self, now: float) -> bool:
        return self.pause(now) == 0 and self.under_way < (1 if self.failures else self._at_once)

    def room(self, now: float, waiting: int) -> int:
        """How many more may be accepted, with so many that are not made yet; while it fails, one as a trial."""
        if not self.failures:
            return 1 << 31
        return max(0, 1 - waiting) if self.pause(now) == 0 else 0
