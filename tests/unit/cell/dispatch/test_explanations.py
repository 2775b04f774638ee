"""Reasons, found in a cell at work."""

from collections.abc import Collection, Sequence

import pytest
from msgspec.structs import replace

from remuda.cell.core.waiting.demand import HELD_SECONDS
from remuda.cell.errors import NotFoundError
from remuda.cell.values import Job, RunnerManager
from remuda.lib.clock import settle
from remuda.model.job import JobState
from remuda.model.progress import When
from remuda.testing.builders import a_spec
from remuda.testing.memory_cell import MemoryCell


async def be_seen(cell: MemoryCell) -> None:
    await cell.store.runners.put_manager(
        RunnerManager(runner_id=cell.runner.id, system_id="s_abcdefabcdef", contacted_at=cell.clock.now())
    )


async def test_a_job_that_waits_for_a_runner(cell: MemoryCell) -> None:
    family = await cell.push(a_spec("one"), a_spec("two"), a_spec("three"), a_spec("gpu", tags=("gpu",)))
    await be_seen(cell)
    for _ in range(2):
        await cell.clock.advance(30)
        await cell.start()
    explanation = await cell.dispatch.explanations.explain_job((await cell.newest(family, "three")).id)
    assert explanation.runners is not None
    assert (explanation.runners.matching, explanation.runners.busy) == (1, 1)
    assert explanation.queue is not None
    assert (explanation.queue.ahead, explanation.queue.competing, explanation.queue.project_running) == (0, 1, 2)
    assert explanation.estimate is not None
    assert explanation.estimate.text == "about 30 s (2 pick-ups in the last 10 minutes)"
    assert explanation.summary == "waits for a runner: 1 fits, 0 without a job and 1 busy; it is next"
    await cell.clock.advance(60)
    stalled = await cell.dispatch.explanations.explain_job((await cell.newest(family, "three")).id)
    assert stalled.estimate is not None
    assert stalled.estimate.seconds == 60
    gpu = await cell.dispatch.explanations.explain_job((await cell.newest(family, "gpu")).id)
    assert gpu.advice == ("no runner has the tag gpu: register one or change the tags",)
    assert gpu.estimate is None


async def test_a_job_that_waits_for_a_resource_group(cell: MemoryCell) -> None:
    first = await cell.push(a_spec("deploy", resource_group="prod"))
    second = await cell.push(a_spec("deploy", resource_group="prod"))
    explanation = await cell.dispatch.explanations.explain_job((await cell.newest(second, "deploy")).id)
    assert explanation.waits_for[0].job is not None
    assert explanation.waits_for[0].job.id == (await cell.newest(first, "deploy")).id


async def test_trigger_jobs_and_what_they_start(cell: MemoryCell) -> None:
    cell.files["acme/shop"] = {"child.yml": "inner:\n  script: x\n"}
    family = await cell.push_file("go:\n  trigger:\n    include: child.yml\n    strategy: depend\n")
    async with cell.run_timeouts():
        await settle()
        go = await cell.newest(family, "go")
        child = await cell.child(family)
        explanation = await cell.dispatch.explanations.explain_job(go.id)
        assert explanation.summary == f"waits for pipeline {child.pipeline.id} of acme/shop, which is pending"
        inner = await cell.dispatch.explanations.explain_job(child.jobs[0].id)
        assert inner.upstream is not None
        assert inner.upstream.id == go.id


async def test_there_is_no_such_job(cell: MemoryCell) -> None:
    with pytest.raises(NotFoundError):
        await cell.dispatch.explanations.explain_job(99)


async def test_a_count_that_takes_long_is_made_less_often(cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
    read, reads = cell.store.jobs.list_coming_jobs, 0

    async def slow(states: Collection[JobState], *, held_since: float) -> Sequence[Job]:
        nonlocal reads
        reads += 1
        await cell.clock.advance(3)
        return await read(states, held_since=held_since)

    monkeypatch.setattr(cell.store.jobs, "list_coming_jobs", slow)
    for seconds in (0, 20, 9, 1):
        await cell.clock.advance(seconds)
        await cell.dispatch.explanations.count_demand()
    assert reads == 2, "the second time after ten times as long as it took"


async def test_demand_follows_what_happens(cell: MemoryCell) -> None:
    await be_seen(cell)
    await cell.push(a_spec("one"), a_spec("two"), a_spec("later", stage="deploy", stage_index=2))
    [key] = (await cell.dispatch.explanations.count_demand()).keys
    assert (key.running, key.ready, key.created.next) == (0, 2, 1)
    await cell.start()
    assert (await cell.dispatch.explanations.count_demand()).keys == (key,), "a moment ago is good enough"
    await cell.clock.advance(10)
    counted = await cell.dispatch.explanations.count_demand()
    [key] = counted.keys
    assert counted.by_runner == {cell.runner.id: (key,)}
    [share] = key.shares
    assert (key.running, key.ready) == (share.running, share.ready) == (1, 1)
    await cell.run_next()
    await cell.clock.advance(10)
    [key] = (await cell.dispatch.explanations.count_demand()).keys
    assert (key.running, key.ready, key.created.next) == (1, 0, 1)


async def test_what_was_left_to_a_person_long_ago_is_no_demand(cell: MemoryCell) -> None:
    await be_seen(cell)
    gate = a_spec("gate", when=When.MANUAL, allow_failure=False)
    await cell.push(gate, a_spec("deploy", stage="deploy", stage_index=2))
    [key] = (await cell.dispatch.explanations.count_demand()).keys
    assert key.created.held == 2
    await cell.clock.advance(HELD_SECONDS)
    assert (await cell.dispatch.explanations.count_demand()).keys == ()


async def test_a_paused_runner_will_take_other_jobs_first_when_it_is_resumed(cell: MemoryCell) -> None:
    family = await cell.push(a_spec("plain"), a_spec("gpu", tags=("gpu",)))
    await cell.store.runners.change_runner(cell.runner.id, lambda row: replace(row, paused=True, tags=("gpu",)))
    explanation = await cell.dispatch.explanations.explain_job((await cell.newest(family, "gpu")).id)
    assert explanation.queue is not None
    assert (explanation.queue.ahead, explanation.queue.competing) == (1, 2)
