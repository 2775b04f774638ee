import asyncio

import pytest

from remuda.lib.exits import InterruptedRunError
from remuda.localrun.interrupts import Interrupts


class Work:
    """Waits for ever, and needs a moment to tidy up."""

    def __init__(self, interrupts: Interrupts) -> None:
        self.interrupts = interrupts
        self.tidied = False

    async def run(self, *, impatient: bool) -> None:
        async with self.interrupts.stop_on_interrupt():
            try:
                await asyncio.Event().wait()
            finally:
                if impatient:
                    self.interrupts.arrive()
                await asyncio.sleep(0)
                self.tidied = True


@pytest.mark.parametrize("impatient", [False, True])
async def test_before_the_pipeline_an_interrupt_stops_on_the_spot_and_cleans_up(impatient: bool) -> None:
    interrupts = Interrupts()
    work = Work(interrupts)
    asyncio.get_running_loop().call_soon(interrupts.arrive)
    with pytest.raises(InterruptedRunError):
        await work.run(impatient=impatient)
    assert work.tidied
    assert interrupts.again.is_set() == impatient


async def test_after_hold_the_first_asks_and_the_second_leaves() -> None:
    interrupts = Interrupts()
    async with interrupts.stop_on_interrupt():
        interrupts.hold()
        interrupts.arrive()
        await asyncio.sleep(0)
        assert interrupts.asked.is_set()
        assert not interrupts.again.is_set()
        interrupts.arrive()
    assert interrupts.again.is_set()


async def test_an_interrupt_that_came_before_counts() -> None:
    interrupts = Interrupts()
    interrupts.arrive()
    with pytest.raises(InterruptedRunError):
        async with interrupts.stop_on_interrupt():
            pytest.fail("must not begin")


async def test_other_timeouts_stay_what_they_are() -> None:
    interrupts = Interrupts()
    with pytest.raises(TimeoutError):
        async with interrupts.stop_on_interrupt():
            raise TimeoutError
