"""Tasks that outlive the call that starts them are named, reported when they fail, and ended by their owner."""

import asyncio
from typing import Any

import pytest

from remuda.lib.clock import settle
from remuda.lib.tasks import TaskOwner, finish_despite_cancel


async def _fail() -> None:
    raise LookupError("this one")


async def _fail_when_cancelled() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise LookupError("too late")


async def test_close_cancels_the_tasks_and_waits_for_their_end() -> None:
    before, owner, closed = asyncio.all_tasks(), TaskOwner(), []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            closed.append(name)

    tasks = [owner.start(work(name), name=name) for name in ("a", "b")]
    await settle()
    assert [task.get_name() for task in tasks] == ["a", "b"]
    await owner.close()
    assert sorted(closed) == ["a", "b"]
    assert asyncio.all_tasks() == before
    await owner.close()


async def test_the_failure_of_a_task_is_reported() -> None:
    failures: list[tuple[str, str]] = []
    owner = TaskOwner(on_failure=lambda name, error: failures.append((name, str(error))))
    owner.start(_fail(), name="work")
    owner.start(asyncio.sleep(0), name="other")
    await owner.wait()
    assert failures == [("work", "this one")]


async def test_without_a_handler_the_event_loop_reports_the_failure() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    owner = TaskOwner()
    owner.start(_fail(), name="work")
    await owner.wait()
    assert [(context["message"], str(context["exception"])) for context in reported] == [
        ("task 'work' failed", "this one")
    ]


async def test_errors_of_tasks_that_close_cancels_are_dropped() -> None:
    failures: list[str] = []
    owner = TaskOwner(on_failure=lambda name, _: failures.append(name))
    owner.start(_fail_when_cancelled(), name="work")
    await settle()
    await owner.close()
    await settle()
    assert failures == []


async def test_wait_includes_tasks_that_are_started_meanwhile() -> None:
    owner, done = TaskOwner(), []

    async def second() -> None:
        await asyncio.sleep(0)
        done.append("second")

    async def first() -> None:
        await asyncio.sleep(0)
        owner.start(second(), name="second")

    owner.start(first(), name="first")
    await owner.wait()
    assert done == ["second"]


async def test_one_task_of_a_name_runs_at_a_time() -> None:
    owner, proceed = TaskOwner(), asyncio.Event()
    first = owner.start_once(proceed.wait(), name="work")
    assert owner.start_once(proceed.wait(), name="work") is first
    proceed.set()
    await first
    second = owner.start_once(proceed.wait(), name="work")
    assert second is not first
    await owner.wait()


async def test_cancel_does_not_wait() -> None:
    owner = TaskOwner()
    task = owner.start(asyncio.Event().wait(), name="work")
    owner.cancel()
    assert not task.done()
    await owner.wait()
    assert task.cancelled()


async def test_finish_despite_cancel_completes_the_work_before_it_is_cancelled() -> None:
    started, proceed, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> str:
        started.set()
        await proceed.wait()
        done.set()
        return "done"

    waiting = asyncio.ensure_future(finish_despite_cancel(work(), name="work"))
    await started.wait()
    waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    proceed.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done.is_set()
    assert await finish_despite_cancel(work(), name="work") == "done"


async def test_a_second_cancel_ends_the_wait_and_the_work() -> None:
    before = asyncio.all_tasks()
    waiting = asyncio.ensure_future(finish_despite_cancel(asyncio.sleep(3600), name="work"))
    for _ in range(2):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
