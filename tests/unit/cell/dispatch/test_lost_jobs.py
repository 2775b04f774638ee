"""Retries of jobs that fail by a fault of the platform before their script starts."""

import msgspec

from remuda.cell.values import Family, Job, StepResult
from remuda.model.job import JobState
from remuda.testing.builders import a_spec
from remuda.testing.memory_cell import MemoryCell

PREPARING = b"section_start:1700000000:prepare_executor\r\x1b[0Kno machine\n"
SCRIPT = b"section_start:1700000001:step_script\r\x1b[0K$ make\n"


async def lose(cell: MemoryCell, log: bytes = PREPARING) -> Job:
    """Start the next job, append this log, and report a failure of the runner's machine."""
    job, token = await cell.start()
    await cell.dispatch.runner_calls.append_trace(job, 0, log)
    assert await cell.put(token, "failed", reason="runner_system_failure") == (200, "failed")
    return await cell.job(job.id)


async def load_tries(cell: MemoryCell, family: Family) -> tuple[JobState, int, int]:
    job = await cell.newest(family, "build")
    return job.state, job.tries, job.lost_tries


async def test_a_lost_job_is_repeated_twice_without_using_its_own_retries(cell: MemoryCell) -> None:
    family = await cell.push(a_spec(retry_max=1, retry_when=("runner_system_failure",)))
    first = await lose(cell)
    assert (first.lost, first.retried) == (True, True)
    assert await load_tries(cell, family) == (JobState.PENDING, 1, 1)
    explanation = await cell.dispatch.explanations.explain_job(first.id)
    assert explanation.summary.endswith(
        "tried again as job 2, because its script had not begun; this attempt does not count"
    )
    await lose(cell)
    assert await load_tries(cell, family) == (JobState.PENDING, 1, 2)
    third = await lose(cell)
    assert (third.lost, third.retried) == (False, True), "from now on the retry rule of the job applies"
    assert await load_tries(cell, family) == (JobState.PENDING, 2, 2)
    await lose(cell)
    assert await load_tries(cell, family) == (JobState.FAILED, 2, 2)


async def test_a_retry_by_a_user_resets_the_count(cell: MemoryCell) -> None:
    family = await cell.push(a_spec())
    for _ in range(3):
        await lose(cell)
    assert await load_tries(cell, family) == (JobState.FAILED, 1, 2)
    await cell.dispatch.user_commands.retry_job((await cell.newest(family, "build")).id)
    assert await load_tries(cell, family) == (JobState.PENDING, 1, 0)


async def test_a_job_whose_script_had_started_fails(cell: MemoryCell) -> None:
    family = await cell.push(a_spec())
    await lose(cell, PREPARING + SCRIPT)
    assert await load_tries(cell, family) == (JobState.FAILED, 1, 0)


async def test_reported_steps_count_more_than_the_log(cell: MemoryCell) -> None:
    family = await cell.push(a_spec())
    steps = [{"origin": "compiled", "event": "started", "name": "checkout"}, {"origin": "user", "event": "started"}]
    for number, step in enumerate(steps, start=1):
        job, token = await cell.start()
        await cell.dispatch.runner_calls.append_trace(job, 0, b"no sections at all")
        body = msgspec.Raw(msgspec.json.encode(step))
        await cell.dispatch.runner_calls.add_results(job, [StepResult(job_id=job.id, seq=1, body=body)])
        await cell.put(token, "failed", reason="runner_system_failure", manager="remuda-manager")
        assert await load_tries(cell, family) == ((JobState.PENDING, 1, 1) if number == 1 else (JobState.FAILED, 1, 1))


async def test_a_job_whose_script_may_have_started_fails(cell: MemoryCell) -> None:
    family = await cell.push(a_spec())
    _, token = await cell.start()
    await cell.put(token, "failed", reason="runner_system_failure", manager="remuda-manager", may_have_begun=True)
    assert await load_tries(cell, family) == (JobState.FAILED, 1, 0)


async def test_a_lost_job_does_not_fail_its_pipeline(cell: MemoryCell) -> None:
    family = await cell.push(a_spec("build"), a_spec("other"))
    await lose(cell)
    statuses = await cell.statuses(family)
    assert (statuses["build"], statuses["pipeline"]) == ("pending", "pending")
