"""Estimates how long a job will wait, from the pick-ups of the last minutes by runners that can take it.

The estimate is the number of jobs ahead, plus one, times the average time per pick-up. The time of a pick-up is counted
from the pick-up before it or, if that is later, from when its job began to wait. The time since the last pick-up
counts, too: a queue that stands still must not look fast. Pure and bounded; each process starts without data."""

from collections import OrderedDict, deque

import msgspec

from remuda.model.runner import CapabilityKey, Fingerprint, fits

WINDOW_SECONDS = 600.0
"""Older pick-ups are ignored."""
_EACH = 64
"""Number of pick-ups kept per fingerprint."""
_KINDS = 512
"""Number of fingerprints that are kept."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    pick_ups: int
    within_seconds: float = WINDOW_SECONDS


class PickUps:
    """The latest pick-ups (assignments of waiting jobs to runners), by the runner's fingerprint (tags, projects)."""

    def __init__(self) -> None:
        self._pick_ups: OrderedDict[Fingerprint, deque[tuple[float, float]]] = OrderedDict()
        """Of each pick-up: its time, and since when the job had waited."""

    def note(self, fingerprint: Fingerprint, *, at: float, since: float) -> None:
        """Record that a runner got a job at the time `at` that had waited since `since`."""
        self._pick_ups.setdefault(fingerprint, deque(maxlen=_EACH)).append((at, since))
        self._pick_ups.move_to_end(fingerprint)
        if len(self._pick_ups) > _KINDS:
            self._pick_ups.popitem(last=False)

    def estimate(self, need: CapabilityKey, ahead: int, now: float, *, since: float | None = None) -> Estimate | None:
        """Expected wait of a job behind `ahead` others; None if no fitting runner picked up a job within
        `WINDOW_SECONDS`. `since`: when the job began to wait; None: do not count the time since the last pick-up."""
        recent = sorted(
            pick_up
            for fingerprint, pick_ups in self._pick_ups.items()
            if fits(fingerprint, need)
            for pick_up in pick_ups
            if pick_up[0] > now - WINDOW_SECONDS
        )
        if not recent:
            return None
        before = [recent[0][1], *(at for at, _ in recent)]
        took = sum(max(at - max(earlier, since), 0.0) for (at, since), earlier in zip(recent, before, strict=False))
        standing = max(now - max(recent[-1][0], since), 0.0) if since is not None else 0.0
        return Estimate(seconds=(ahead + 1) * (took + standing) / len(recent), pick_ups=len(recent))
