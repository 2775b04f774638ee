"""Estimates how long a job will wait, from the pick-ups of the last minutes by runners that can take it.

It is the number of jobs ahead times the average time per pick-up, counted from the one before or from when the job
began to wait. The time since the last pick-up counts, too: a queue that stands still must not look fast. Pure and
bounded; each process starts without data.
"""

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
    """The latest pick-ups (assignments of waiting jobs to runners), by the fingerprint of the runner."""

    def __init__(self) -> None:
        self._made: OrderedDict[Fingerprint, deque[tuple[float, float]]] = OrderedDict()

    def note(self, fingerprint: Fingerprint, *, at: float, since: float) -> None:
        """Record that a runner got a job at the time `at` that had waited since `since`."""
        made = self._made.setdefault(fingerprint, deque(maxlen=_EACH))
        made.append((at, since))
        self._made.move_to_end(fingerprint)
        if len(self._made) > _KINDS:
            self._made.popitem(last=False)

    def estimate(self, need: CapabilityKey, ahead: int, now: float, *, since: float | None = None) -> Estimate | None:
        """Expected wait of a job behind `ahead` others that waits since `since`. None without pick-ups lately."""
        made = sorted(
            pick_up
            for fingerprint, pick_ups in self._made.items()
            if fits(fingerprint, need)
            for pick_up in pick_ups
            if pick_up[0] > now - WINDOW_SECONDS
        )
        if not made:
            return None
        before = [made[0][1], *(at for at, _ in made)]
        took = sum(max(at - max(earlier, since), 0.0) for (at, since), earlier in zip(made, before, strict=False))
        standing = max(now - max(made[-1][0], since), 0.0) if since is not None else 0.0
        return Estimate(seconds=(ahead + 1) * (took + standing) / len(made), pick_ups=len(made))
