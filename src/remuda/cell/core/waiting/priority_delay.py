"""How long a runner leaves a job to a better one, which may wait at another process of the cell and hear of it later.

Decided here: for how long, and to whom: runners that are there, fit the job and have a higher priority. Where all
runners have the same one, nobody waits for anybody. Within one process `remuda.cell.dispatch.held_polls` wakes the best
one first, and no time is needed. Pure; `remuda.cell.dispatch.handout` asks.
"""

from collections.abc import Iterable

from remuda.cell.values import Runner, RunnerManager
from remuda.cell.values.people import PRESENT_SECONDS
from remuda.model.runner import CapabilityKey, Fingerprint, fits

DELAY_SECONDS = 0.1
"""From the moment a job's turn has come: a hint takes some milliseconds from one process to another."""

Offer = tuple[int, Fingerprint]
"""A runner's priority, and what it offers."""


def offers_of(runners: Iterable[Runner], managers: Iterable[RunnerManager], now: float) -> frozenset[Offer]:
    """What the runners offer that are there; nothing where all have the same priority."""
    heard = {manager.runner_id for manager in managers if now - manager.contacted_at < PRESENT_SECONDS}
    there = [runner for runner in runners if not runner.paused and runner.id in heard]
    if len({runner.priority for runner in there}) < 2:
        return frozenset()
    return frozenset((runner.priority, runner.fingerprint()) for runner in there)


def delay_seconds(priority: int, need: CapabilityKey, offers: Iterable[Offer], *, since: float, now: float) -> float:
    """How long a runner of this priority still leaves a job to others whose turn came at `since`."""
    left = DELAY_SECONDS - max(now - since, 0.0)
    is_for_others = left > 0 and any(better > priority and fits(offer, need) for better, offer in offers)
    return left if is_for_others else 0.0
