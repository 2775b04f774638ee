"""Computes how long a runner leaves a job to a better runner (online, fitting, of higher priority) that polls another
process of the cell and learns of the job later. Within one process no delay is needed:
`remuda.cell.dispatch.held_polls` wakes the best runner first. A separate module, because decisions in `core` are pure
and the module that uses it does I/O."""

from collections.abc import Iterable

from remuda.cell.values import Runner, RunnerManager
from remuda.cell.values.people import PRESENT_SECONDS
from remuda.model.runner import CapabilityKey, Fingerprint, fits

DELAY_SECONDS = 0.1
"""Counted from when the job became pending: the notification of another process takes some milliseconds."""

Offer = tuple[int, Fingerprint]
"""The priority and fingerprint of a runner."""


def offers_of(runners: Iterable[Runner], managers: Iterable[RunnerManager], now: float) -> frozenset[Offer]:
    """Return priority and fingerprint of online runners that are not paused; empty if all priorities are equal."""
    contacted = {manager.runner_id for manager in managers if now - manager.contacted_at < PRESENT_SECONDS}
    online = [runner for runner in runners if not runner.paused and runner.id in contacted]
    if len({runner.priority for runner in online}) < 2:
        return frozenset()
    return frozenset((runner.priority, runner.fingerprint()) for runner in online)


def delay_seconds(priority: int, need: CapabilityKey, offers: Iterable[Offer], *, since: float, now: float) -> float:
    """Return for how many seconds a runner of this priority must leave a job, which is pending since `since` and
    requires `need`, to better runners (`offers`, from `offers_of`)."""
    remaining = DELAY_SECONDS - max(now - since, 0.0)
    is_for_others = remaining > 0 and any(better > priority and fits(offer, need) for better, offer in offers)
    return remaining if is_for_others else 0.0
