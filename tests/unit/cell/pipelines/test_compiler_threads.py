"""The limit of parallel compilations, and questions that a compilation asks the event loop."""

import asyncio
import threading

import pytest

from remuda.cell.pipelines import compiler_threads
from remuda.cell.pipelines.compiler_threads import Ask, Compilers


async def test_the_number_of_parallel_compilations_is_limited() -> None:
    compilers, guard = Compilers(2, name="test"), threading.Lock()
    running, peak = 0, 0

    def work(_ask: Ask) -> None:
        nonlocal running, peak
        with guard:
            running += 1
            peak = max(peak, running)
        sum(range(20_000))
        with guard:
            running -= 1

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(compilers.run(work), name=f"compilation {number}")
    assert peak <= 2


async def test_a_compilation_that_waits_for_an_answer_frees_its_thread() -> None:
    compilers, answer = Compilers(1, name="test"), asyncio.Event()

    async def question() -> str:
        await answer.wait()
        return "an answer"

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(compilers.run(lambda ask: ask(question())), name="waiting")
        assert await compilers.run(lambda _: "at once") == "at once"
        assert not waiting.done()
        answer.set()
    assert waiting.result() == "an answer"


async def test_a_question_that_takes_too_long_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_threads, "ANSWER_SECONDS", 0.01)
    cancelled = asyncio.Event()

    async def question() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(TimeoutError):
        await Compilers(1, name="test").run(lambda ask: ask(question()))
    async with asyncio.timeout(5):
        await cancelled.wait()


async def test_a_slot_is_released_after_an_error() -> None:
    compilers = Compilers(1, name="test")

    async def question() -> str:
        raise LookupError

    for work in (lambda ask: ask(question()), lambda _: 1 / 0):
        result = (await asyncio.gather(compilers.run(work), return_exceptions=True))[0]
        assert isinstance(result, LookupError | ZeroDivisionError)
    assert await compilers.run(lambda _: "next") == "next"
