"""The queue of trigger jobs to advance."""

import asyncio

from remuda.cell.pipelines.trigger_queue import TriggerQueue
from remuda.lib.clock import settle
from remuda.model.job import JobId

FIRST, SECOND = JobId(1), JobId(2)


async def test_every_job_is_queued_once_in_the_order_of_arrival() -> None:
    queue = TriggerQueue()
    for job_id in (FIRST, SECOND, FIRST):
        queue.put(job_id)
    assert len(queue) == 2
    assert [await queue.take(), await queue.take()] == [FIRST, SECOND]
    queue.finish(FIRST)
    queue.finish(SECOND)
    assert len(queue) == 0


async def test_waiting_takers_are_woken() -> None:
    queue = TriggerQueue()
    async with asyncio.TaskGroup() as group:
        takers = [group.create_task(queue.take()) for _ in range(2)]
        await settle()
        queue.put(FIRST)
        queue.put(SECOND)
    assert sorted(taker.result() for taker in takers) == [FIRST, SECOND]


async def test_a_job_that_is_put_again_while_taken_waits_until_it_is_finished() -> None:
    queue = TriggerQueue()
    queue.put(FIRST)
    assert await queue.take() == FIRST
    queue.put(FIRST)
    async with asyncio.TaskGroup() as group:
        second_take = group.create_task(queue.take())
        await settle()
        assert not second_take.done()
        queue.finish(FIRST)
    assert second_take.result() == FIRST
