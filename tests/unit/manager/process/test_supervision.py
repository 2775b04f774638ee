"""How soon a part of the manager that failed is begun anew."""

from remuda.lib.clock import VirtualClock
from remuda.manager.process.supervision import STEADY_SECONDS, restart_on_failure


class HurryingClock(VirtualClock):
    """Keeps nobody waiting, and knows who wanted to."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.jump(seconds)


async def test_what_fails_again_and_again_waits_longer_and_what_went_well_in_between_does_not() -> None:
    clock = HurryingClock()
    lasts = [0.0, 0.0, 0.0, 0.0, STEADY_SECONDS, 0.0]

    async def work() -> None:
        if lasts:
            clock.jump(lasts.pop(0))
            raise RuntimeError("nobody foresaw this")

    await restart_on_failure("part", work, clock)
    first, second, third, fourth, steady, after = clock.waits
    assert first < second < third < fourth
    assert steady == first
    assert after == second
