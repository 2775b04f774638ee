"""The delay after which a failed part of the manager is started again."""

from remuda.lib.clock import VirtualClock
from remuda.manager.process.supervision import STEADY_SECONDS, restart_on_failure


class NonWaitingClock(VirtualClock):
    """Returns from `sleep` at once and records the durations."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.jump(seconds)


async def test_delays_grow_with_each_failure_and_start_again_after_a_steady_run() -> None:
    clock = NonWaitingClock()
    run_times = [0.0, 0.0, 0.0, 0.0, STEADY_SECONDS, 0.0]

    async def work() -> None:
        if run_times:
            clock.jump(run_times.pop(0))
            raise RuntimeError("unexpected error")

    await restart_on_failure("part", work, clock)
    first, second, third, fourth, steady, after = clock.waits
    assert first < second < third < fourth
    assert steady == first
    assert after == second
