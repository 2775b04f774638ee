"""Retries calls of the standard steps after transient errors of a server. While the server is unreachable, a step keeps
trying for ten minutes, or for REMUDA_PATIENCE_SECONDS; after other transient errors a call gets `TRIES` attempts."""

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
"""Attempts, if the server can be reached."""
BACKOFF = Backoff(first_seconds=1.0, ceiling_seconds=10.0)
LONGEST_WAIT_SECONDS = 60.0
REMINDER_SECONDS = 60.0

T = TypeVar("T")


class TransientError(Exception):
    """A failed call that may succeed if it is repeated. `unreachable`: the server did not answer, or is unavailable."""

    def __init__(self, text: str, *, unreachable: bool, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.unreachable = unreachable
        self.retry_after = retry_after


def next_wait(
    error: TransientError, *, failures: int, waited: float, patience: float, jitter: float = 1.0
) -> float | None:
    """Return the seconds to wait before the next attempt; None to give up. `failures`: number of failed attempts.
    `waited`: seconds since the first failure. `patience`: the most seconds to wait for an unreachable server. `jitter`:
    a random number from 0 (half the wait) to 1 (the full wait)."""
    if waited >= patience if error.unreachable else failures >= TRIES:
        return None
    delay = BACKOFF.delay(failures, jitter=jitter)
    if error.retry_after is not None:
        delay = min(max(error.retry_after, delay), LONGEST_WAIT_SECONDS)
    return min(delay, patience - waited) if error.unreachable else delay


def retry(what: str, call: Callable[[int], T], *, patience: float | None = None) -> T:
    """Call `call` until it raises no TransientError, and return its result. Raises PlatformError if the attempts or the
    time are used up. `what`: the action, for log lines. `call` gets the number of failures so far. `patience`: seconds
    to wait for an unreachable server, at most REMUDA_PATIENCE_SECONDS."""
    patience = patience_seconds() if patience is None else min(patience, patience_seconds())
    failures, refusals = 0, 0
    failing_since: float | None = None
    logged_at = 0.0
    while True:
        try:
            result = call(failures)
        except TransientError as error:
            now = time.monotonic()
            failures += 1
            refusals += not error.unreachable
            failing_since = now if failing_since is None else failing_since
            waited = now - failing_since
            delay = next_wait(
                error,
                failures=failures if error.unreachable else refusals,
                waited=waited,
                patience=patience,
                jitter=random.random(),
            )
            if delay is None:
                after = f"for {format_duration(waited)}" if error.unreachable else f"{refusals} times"
                raise PlatformError(f"{what} failed {after}: {error}") from None
            if not error.unreachable:
                say(f"WARNING: {what} failed: {error}; trying again in {delay:.0f} s")
            elif not logged_at:
                say(f"WARNING: {what}: {error}; trying again for up to {format_duration(patience)}")
                logged_at = now
            elif now - logged_at >= REMINDER_SECONDS:
                say(f"{what}: still waiting after {format_duration(waited)}: {error}")
                logged_at = now
            time.sleep(delay)
        else:
            if logged_at and failing_since is not None:
                say(f"{what}: the server is back after {format_duration(time.monotonic() - failing_since)}")
            return result


def patience_seconds() -> float:
    """Return REMUDA_PATIENCE_SECONDS (or its default), to wait for unreachable servers. Raises StepError if invalid."""
    text = os.environ.get("REMUDA_PATIENCE_SECONDS", "")
    if not text:
        return PATIENCE_SECONDS
    if not text.isascii() or not text.isdigit():
        raise StepError(f"variable REMUDA_PATIENCE_SECONDS: must be a whole number of seconds, not {text!r}")
    return float(text)


def format_duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes"
