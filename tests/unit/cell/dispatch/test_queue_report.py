"""The queue by what jobs require, in a memory cell."""

from msgspec.structs import replace

from remuda.cell.core.waiting.usage import INTERVAL_SECONDS, read_samples
from remuda.cell.operations.usage_recorder import UsageRecorder
from remuda.cell.values import RunnerManager
from remuda.testing.builders import a_spec
from remuda.testing.memory_cell import MemoryCell


async def note_manager(cell: MemoryCell, capacity: int = 3) -> None:
    await cell.store.runners.put_manager(
        RunnerManager(
            runner_id=cell.runner.id, system_id="s_abcdefabcdef", contacted_at=cell.clock.now(), capacity=capacity
        )
    )


async def test_keys_jobs_and_runners(cell: MemoryCell) -> None:
    await note_manager(cell)
    await cell.push(a_spec("one"), a_spec("two"), a_spec("gpu", tags=("gpu",)))
    report = cell.dispatch.queue_report
    keys = await report.list_keys()
    assert [(key.need.tags, key.waiting, len(key.running)) for key in keys] == [((), 2, 0), (("gpu",), 1, 0)]
    plain, gpu = await report.describe(keys, projects=None, jobs=1)
    assert [(queued.job.name, queued.position) for queued in plain.jobs] == [("one", 1)]
    assert [runner.availability for runner in plain.runners] == ["free"]
    assert plain.reason is not None
    assert plain.reason.runners.matching == 1
    assert gpu.runners == ()
    assert gpu.reason is not None
    assert gpu.reason.advice == ("no runner has the tag gpu: register one or change the tags",)


async def test_running_jobs_and_those_of_other_projects(cell: MemoryCell) -> None:
    await cell.push(a_spec("one"), a_spec("two"))
    await note_manager(cell)
    await cell.start()
    report = cell.dispatch.queue_report
    [key] = await report.list_keys()
    assert (key.waiting, len(key.running)) == (1, 1)
    [details] = await report.describe([key], projects=None, jobs=10)
    [runner] = details.runners
    assert (runner.availability, [job.name for job in runner.jobs]) == ("busy", ["one"])
    [hidden] = await report.describe([key], projects=frozenset(), jobs=10)
    assert (hidden.jobs, hidden.runners, hidden.reason) == ((), (), None)
    assert not key.has_job_of(frozenset())
    assert key.has_job_of({cell.project.id})
    assert key.of_organization(77).waiting == 0


async def test_changes_show_at_once(cell: MemoryCell) -> None:
    await cell.push(a_spec("one", tags=("linux", "gpu")))
    report = cell.dispatch.queue_report
    [details] = await report.describe(await report.list_keys(), projects=None, jobs=1)
    assert details.runners == ()
    await cell.store.runners.change_runner(cell.runner.id, lambda row: replace(row, tags=("linux", "gpu")))
    [details] = await report.describe(await report.list_keys(), projects=None, jobs=1)
    assert len(details.runners) == 1


async def test_two_processes_record_one_sample(cell: MemoryCell) -> None:
    await cell.push(a_spec("one"), a_spec("two"))
    await note_manager(cell)
    await cell.start()
    recorders = [UsageRecorder(cell.store, cell.dispatch.memory, cell.clock) for _ in range(2)]
    for recorder in recorders:
        await recorder.record()
    await cell.clock.advance(INTERVAL_SECONDS)
    await recorders[0].record()
    await cell.start()
    await cell.clock.advance(INTERVAL_SECONDS)
    for recorder in recorders:
        await recorder.record()
    samples = read_samples((await recorders[1].load_stored()).values(), since=0)
    assert [(sample.running, sample.waiting, sample.slots) for sample in samples] == [(1, 1, 3), (2, 0, 3)]
