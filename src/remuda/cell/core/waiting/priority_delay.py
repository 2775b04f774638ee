"""Computes how long a runner must wait before it may take a job, because a better runner should get it: one that called
recently, fits the job and has a higher priority. That runner may poll another process of the cell, which learns of the
job later. Within one process no delay is needed: `remuda.cell.dispatch.held_polls` wakes the best runner first. A
separate module, because decisions in `core` are pure and the module that uses it does I/O."""

from collections.abc import Iterable

from remuda.cell.values import Runner, RunnerManager
from remuda.cell.values.people import PRESENT_SECONDS
from remuda.model.runner import CapabilityKey, Fingerprint, fits

DELAY_SECONDS = 0.1
"""Counted from when the job became pending: the notification of another process takes some milliseconds."""

Offer = tuple[int, Fingerprint]
"""The priority and fingerprint of a runner."""


def offers_of(runners: Iterable[Runner], managers: Iterable[RunnerManager], now: float) -> frozenset[Offer]:
    """Return priority and fingerprint (tags, protection, whose jobs it runs) of each runner that is not paused and
    called within `PRESENT_SECONDS`; empty if all priorities are equal, since no runner then waits for another."""
    contacted = {manager.runner_id for manager in managers if now - manager.contacted_at < PRESENT_SECONDS}
    present = [runner for runner in runners if not runner.paused and runner.id in contacted]
    if len({runner.priority for runner in present}) < 2:
        return frozenset()
    return frozenset((runner.priority, runner.fingerprint()) for runner in present)


def delay_seconds(priority: int, need: CapabilityKey, offers: Iterable[Offer], *, since: float, now: float) -> float:
    """Return for how many seconds a runner of this priority must leave a job, pending since `since`, to runners of a
    higher priority in `offers` (from `offers_of`) that fit its `need`; 0 if it may take the job now."""
    remaining = DELAY_SECONDS - max(now - since, 0.0)
    is_for_others = remaining > 0 and any(better > priority and fits(offer, need) for better, offer in offers)
    return remaining if is_for_others else 0.0
