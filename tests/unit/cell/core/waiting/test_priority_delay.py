"""The delay by which a runner leaves a job to runners with a higher priority."""

import pytest

from remuda.cell.core.waiting.priority_delay import DELAY_SECONDS, delay_seconds, offers_of
from remuda.cell.values import Runner, RunnerManager
from remuda.model.job import RunnerId
from remuda.model.runner import CapabilityKey, Fingerprint
from remuda.testing.builders import NOW, a_runner

JOB = CapabilityKey(tags=frozenset({"gpu"}))
GPU = Fingerprint(tags=frozenset({"gpu"}))


@pytest.mark.parametrize(
    ("offers", "age", "seconds"),
    [
        ([(1, GPU)], 0.0, DELAY_SECONDS),
        ([(1, GPU)], -5.0, DELAY_SECONDS),
        ([(1, GPU)], 2 * DELAY_SECONDS, 0.0),
        ([(0, GPU)], 0.0, 0.0),
        ([(1, Fingerprint())], 0.0, 0.0),
        ([], 0.0, 0.0),
    ],
)
def test_delay_for_fitting_higher_priority(offers: list[tuple[int, Fingerprint]], age: float, seconds: float) -> None:
    assert delay_seconds(0, JOB, offers, since=NOW - age, now=NOW) == seconds


def test_only_present_runners_with_different_priorities_count() -> None:
    def a_manager(runner: Runner, ago: float) -> RunnerManager:
        return RunnerManager(runner_id=runner.id, system_id="s", contacted_at=NOW - ago)

    usual, better = a_runner(id=RunnerId(1)), a_runner(id=RunnerId(2), priority=5)
    absent_manager = a_manager(better, 3600)
    assert offers_of([usual, better], [a_manager(usual, 1), absent_manager], NOW) == frozenset()
    assert offers_of([usual], [a_manager(usual, 1)], NOW) == frozenset()
    offers = offers_of([usual, better], [a_manager(usual, 1), a_manager(better, 1)], NOW)
    assert offers == {(0, usual.fingerprint()), (5, better.fingerprint())}
