"""How long a standard step goes on when what it needs from a server fails.

A server that is away (no connection, or an answer that says so) comes back: a step waits for it, ten minutes unless
the variable REMUDA_PATIENCE_SECONDS says otherwise. Other failures that may pass get a few tries. Which failure is
which is known to the callers, `transfer` and `checkout`; what is final they do not bring here. How long to wait is a
pure decision (`next_wait`).
"""

import os
import random
import time
from collections.abc import Callable
from typing import TypeVar

from remuda.lib.backoff import Backoff
from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.log import say

PATIENCE_SECONDS = 600.0
TRIES = 3
"""For failures of a server that is there."""
BACKOFF = Backoff(first_seconds=1.0, ceiling_seconds=10.0)
LONGEST_WAIT_SECONDS = 60.0
REMINDER_SECONDS = 60.0

T = TypeVar("T")


class PassingError(Exception):
    """A failure after which the same call may work."""

    def __init__(self, text: str, *, away: bool, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.away = away
        self.retry_after = retry_after


def next_wait(
    error: PassingError, *, failures: int, waited: float, patience: float, jitter: float = 1.0
) -> float | None:
    """Seconds to wait before the next try; None when there is none. Failures are all so far, this one included."""
    if waited >= patience if error.away else failures >= TRIES:
        return None
    delay = BACKOFF.delay(failures, jitter=jitter)
    if error.retry_after is not None:
        delay = min(max(error.retry_after, delay), LONGEST_WAIT_SECONDS)
    return min(delay, patience - waited) if error.away else delay


def patiently(what: str, call: Callable[[int], T], *, patience: float | None = None) -> T:
    """Call until it works or patience ends; the call gets the number of failures so far. Patience may be less than
    what the job's variables say, not more."""
    patience = patience_seconds() if patience is None else min(patience, patience_seconds())
    failures, refusals = 0, 0
    away_since: float | None = None
    spoken_at = 0.0
    while True:
        try:
            result = call(failures)
        except PassingError as error:
            now = time.monotonic()
            failures += 1
            refusals += not error.away
            away_since = now if away_since is None else away_since
            waited = now - away_since
            delay = next_wait(
                error,
                failures=failures if error.away else refusals,
                waited=waited,
                patience=patience,
                jitter=random.random(),
            )
            if delay is None:
                after = f"for {in_words(waited)}" if error.away else f"{refusals} times"
                raise PlatformError(f"{what} failed {after}: {error}") from None
            if not error.away:
                say(f"WARNING: {what} failed: {error}; trying again in {delay:.0f} s")
            elif not spoken_at:
                say(f"WARNING: {what}: {error}; trying again for up to {in_words(patience)}")
                spoken_at = now
            elif now - spoken_at >= REMINDER_SECONDS:
                say(f"{what}: still waiting, for {in_words(waited)} now: {error}")
                spoken_at = now
            time.sleep(delay)
        else:
            if spoken_at and away_since is not None:
                say(f"{what}: the server is back after {in_words(time.monotonic() - away_since)}")
            return result


def patience_seconds() -> float:
    """What the job's variables say."""
    text = os.environ.get("REMUDA_PATIENCE_SECONDS", "")
    if not text:
        return PATIENCE_SECONDS
    if not text.isascii() or not text.isdigit():
        raise StepError(f"variable REMUDA_PATIENCE_SECONDS: a whole number of seconds is needed, not {text!r}")
    return float(text)


def in_words(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes"
