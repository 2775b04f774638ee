import asyncio

import pytest

from remuda.lib.exits import InterruptedRunError
from remuda.localrun.interrupts import Interrupts


class Work:
    """Waits forever, and needs one turn of the event loop to clean up."""

    def __init__(self, interrupts: Interrupts) -> None:
        self.interrupts = interrupts
        self.has_cleaned_up = False

    async def run(self, *, impatient: bool) -> None:
        async with self.interrupts.stop_on_interrupt():
            try:
                await asyncio.Event().wait()
            finally:
                if impatient:
                    self.interrupts.arrive()
                await asyncio.sleep(0)
                self.has_cleaned_up = True


@pytest.mark.parametrize("impatient", [False, True])
async def test_before_the_pipeline_an_interrupt_stops_at_once_and_cleans_up(impatient: bool) -> None:
    interrupts = Interrupts()
    work = Work(interrupts)
    asyncio.get_running_loop().call_soon(interrupts.arrive)
    with pytest.raises(InterruptedRunError):
        await work.run(impatient=impatient)
    assert work.has_cleaned_up
    assert interrupts.again.is_set() == impatient


async def test_after_hold_the_first_interrupt_asks_and_the_second_leaves() -> None:
    interrupts = Interrupts()
    async with interrupts.stop_on_interrupt():
        interrupts.hold()
        interrupts.arrive()
        await asyncio.sleep(0)
        assert interrupts.asked.is_set()
        assert not interrupts.again.is_set()
        interrupts.arrive()
    assert interrupts.again.is_set()


async def test_an_earlier_interrupt_counts() -> None:
    interrupts = Interrupts()
    interrupts.arrive()
    with pytest.raises(InterruptedRunError):
        async with interrupts.stop_on_interrupt():
            pytest.fail("the body must not run")


async def test_other_timeouts_are_raised_unchanged() -> None:
    interrupts = Interrupts()
    with pytest.raises(TimeoutError):
        async with interrupts.stop_on_interrupt():
            raise TimeoutError
