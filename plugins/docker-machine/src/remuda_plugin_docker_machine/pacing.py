"""Pace of creation: up to the configured limit at once, and after failures one at a time with growing pauses.

A provider that refuses a create (quota, rate limit, wrong option) refuses the next one as well, and more requests make
it worse. The first success ends the pauses. Pure: the caller gives the time."""

from remuda.lib.backoff import Backoff

PAUSES = Backoff(first_seconds=10.0, ceiling_seconds=600.0)


class Pace:
    """Pace of one group: at most `at_once` creates at a time. The caller counts running creates in `under_way`."""

    def __init__(self, at_once: int, pauses: Backoff = PAUSES) -> None:
        self._at_once = at_once
        self._pauses = pauses
        self._until = float("-inf")
        self.failures = 0
        """Failures in a row."""
        self.cause = ""
        """Cause of the last failure."""
        self.under_way = 0

    def note_failure(self, cause: str, *, now: float, jitter: float) -> float:
        """Record a failed create. Returns the seconds until the next one may begin. Failures during a pause do not make
        the pause longer. `jitter`: random number from 0 to 1."""
        if now >= self._until:
            self.failures += 1
            self._until = now + self._pauses.delay(self.failures, jitter=jitter)
        self.cause = cause
        return self._until - now

    def note_success(self) -> None:
        self.failures, self.cause, self._until = 0, "", float("-inf")

    def pause(self, now: float) -> float:
        """Seconds until the next create may begin; 0: now."""
        return max(0.0, self._until - now)

    def may_begin(self, now: float) -> bool:
        return self.pause(now) == 0 and self.under_way < (1 if self.failures else self._at_once)

    def room(self, now: float, waiting: int) -> int:
        """How many more machines may be accepted: after failures one at a time and none during a pause, otherwise any
        number. `waiting`: accepted machines that are not made yet."""
        if not self.failures:
            return 1 << 31
        return max(0, 1 - waiting) if self.pause(now) == 0 else 0
