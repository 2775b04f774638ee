"""How fast jobs were picked up lately: the ground on which a wait is estimated.

Decided here: what counts (pick-ups of the last minutes, by runners that can take the job in question) and what an
estimate is: so many jobs go first, and each took so long. How long one *took* is the time since the pick-up before it,
or since it began to wait if that is later; so a queue that is always empty gives a short time, and a long queue the
time between two pick-ups. So long as the job in question has waited since the last one counts, too: what stands still
must not look quick. Pure, bounded, and kept in memory by the process that hands out: it begins with nothing.
"""

from collections import OrderedDict, deque

import msgspec

from remuda.model.runner import CapabilityKey, Fingerprint, fits

WINDOW_SECONDS = 600.0
"""Older pick-ups say nothing about now."""
_EACH = 64
"""How many are kept for runners that are alike."""
_KINDS = 512
"""For how many different kinds of runners."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """How long a job may still wait, and what that is based on."""

    seconds: float
    pick_ups: int
    within_seconds: float = WINDOW_SECONDS


class PickUps:
    """The latest pick-ups, by what the runners offer that made them."""

    def __init__(self) -> None:
        self._made: OrderedDict[Fingerprint, deque[tuple[float, float]]] = OrderedDict()

    def note(self, fingerprint: Fingerprint, *, at: float, since: float) -> None:
        """A runner got a job that had waited since a time."""
        made = self._made.setdefault(fingerprint, deque(maxlen=_EACH))
        made.append((at, since))
        self._made.move_to_end(fingerprint)
        if len(self._made) > _KINDS:
            self._made.popitem(last=False)

    def estimate(self, need: CapabilityKey, ahead: int, now: float, *, since: float | None = None) -> Estimate | None:
        """How long a job will wait before which so many go and that waits `since` then; None when nothing is known."""
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
