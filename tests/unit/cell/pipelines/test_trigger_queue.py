import asyncio

from remuda.cell.pipelines.trigger_queue import TriggerQueue
from remuda.lib.clock import settle
from remuda.model.job import JobId

ONE, TWO = JobId(1), JobId(2)


async def test_each_waits_once_in_the_order_of_arrival() -> None:
    inbox = TriggerQueue()
    for job_id in (ONE, TWO, ONE):
        inbox.put(job_id)
    assert len(inbox) == 2
    assert [await inbox.take(), await inbox.take()] == [ONE, TWO]
    inbox.finish(ONE)
    inbox.finish(TWO)
    assert len(inbox) == 0


async def test_who_waits_is_woken() -> None:
    inbox = TriggerQueue()
    async with asyncio.TaskGroup() as group:
        taken = [group.create_task(inbox.take()) for _ in range(2)]
        await settle()
        inbox.put(ONE)
        inbox.put(TWO)
    assert sorted(each.result() for each in taken) == [ONE, TWO]


async def test_news_about_one_in_hand_waits_until_it_is_given_back() -> None:
    inbox = TriggerQueue()
    inbox.put(ONE)
    assert await inbox.take() == ONE
    inbox.put(ONE)
    async with asyncio.TaskGroup() as group:
        again = group.create_task(inbox.take())
        await settle()
        assert not again.done()
        inbox.finish(ONE)
    assert again.result() == ONE
