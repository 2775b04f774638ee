"""Explanations of waiting jobs and the count of demand, in a memory cell."""

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


async def note_manager_contact(cell: MemoryCell) -> None:
    await cell.store.runners.put_manager(
        RunnerManager(runner_id=cell.runner.id, system_id="s_abcdefabcdef", contacted_at=cell.clock.now())
    )


async def test_a_job_that_waits_for_a_runner(cell: MemoryCell) -> None:
    family = await cell.push(a_spec("one"), a_spec("two"), a_spec("three"), a_spec("gpu", tags=("gpu",)))
    await note_manager_contact(cell)
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


async def test_a_job_that_waits_for_its_turn(cell: MemoryCell) -> None:
    first = await cell.push(a_spec("build"), a_spec("deploy", stage_index=2, resource_group="prod"))
    group = await cell.store.deployments.find_resource_group(cell.project.id, "prod")
    assert group is not None
    await cell.store.deployments.put_resource_group(replace(group, process_mode="oldest_first"))
    second = await cell.push(a_spec("deploy", resource_group="prod"))
    earlier = await cell.newest(first, "deploy")
    explanation = await cell.dispatch.explanations.explain_job((await cell.newest(second, "deploy")).id)
    assert explanation.summary == (
        f'waits for the resource group "prod", whose process mode oldest_first lets job {earlier.id} "deploy" of '
        f"pipeline {first.pipeline.id} go first (created)"
    )


async def test_trigger_jobs_and_the_jobs_of_their_child(cell: MemoryCell) -> None:
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


async def test_a_missing_job_is_not_found(cell: MemoryCell) -> None:
    with pytest.raises(NotFoundError):
        await cell.dispatch.explanations.explain_job(99)


async def test_a_slow_count_is_cached_longer(cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
    read, reads = cell.store.jobs.list_coming_jobs, 0

    async def read_slowly(states: Collection[JobState], *, held_since: float) -> Sequence[Job]:
        nonlocal reads
        reads += 1
        await cell.clock.advance(3)
        return await read(states, held_since=held_since)

    monkeypatch.setattr(cell.store.jobs, "list_coming_jobs", read_slowly)
    for seconds in (0, 20, 9, 1):
        await cell.clock.advance(seconds)
        await cell.dispatch.explanations.count_demand()
    assert reads == 2, "a count is cached for ten times its duration"


async def test_demand_follows_the_state_of_jobs(cell: MemoryCell) -> None:
    await note_manager_contact(cell)
    await cell.push(a_spec("one"), a_spec("two"), a_spec("later", stage="deploy", stage_index=2))
    [key] = (await cell.dispatch.explanations.count_demand()).keys
    assert (key.running, key.ready, key.created.next) == (0, 2, 1)
    await cell.start()
    assert (await cell.dispatch.explanations.count_demand()).keys == (key,), "the count is cached for some seconds"
    await cell.clock.advance(10)
    demand = await cell.dispatch.explanations.count_demand()
    [key] = demand.keys
    assert demand.by_runner == {cell.runner.id: (key,)}
    [share] = key.shares
    assert (key.running, key.ready) == (share.running, share.ready) == (1, 1)
    await cell.run_next()
    await cell.clock.advance(10)
    [key] = (await cell.dispatch.explanations.count_demand()).keys
    assert (key.running, key.ready, key.created.next) == (1, 0, 1)


async def test_old_manual_jobs_are_no_demand(cell: MemoryCell) -> None:
    await note_manager_contact(cell)
    gate = a_spec("gate", when=When.MANUAL, allow_failure=False)
    await cell.push(gate, a_spec("deploy", stage="deploy", stage_index=2))
    [key] = (await cell.dispatch.explanations.count_demand()).keys
    assert key.created.held == 2
    await cell.clock.advance(HELD_SECONDS)
    assert (await cell.dispatch.explanations.count_demand()).keys == ()


async def test_the_queue_position_counts_a_paused_runner(cell: MemoryCell) -> None:
    family = await cell.push(a_spec("plain"), a_spec("gpu", tags=("gpu",)))
    await cell.store.runners.change_runner(cell.runner.id, lambda row: replace(row, paused=True, tags=("gpu",)))
    explanation = await cell.dispatch.explanations.explain_job((await cell.newest(family, "gpu")).id)
    assert explanation.queue is not None
    assert (explanation.queue.ahead, explanation.queue.competing) == (1, 2)
