"""Batched decisions about families: each sees the result of the one before; an error concerns its caller only."""

from msgspec.structs import replace

from remuda.cell.errors import InvalidError, NotFoundError
from remuda.cell.store.postgres.families import FamilyDecision, apply_decisions, lock_statement
from remuda.cell.values import Family
from remuda.cell.values.changes import Changes, Retry
from remuda.model.job import JobId, PipelineId
from remuda.testing.builders import a_family, a_job

FIRST, SECOND = PipelineId(1), PipelineId(2)


def increment(family: Family) -> Changes:
    """Increment the epoch of the first job and the iid of the pipeline."""
    pipeline = replace(family.pipeline, iid=family.pipeline.iid + 1)
    return Changes(jobs=(replace(family.jobs[0], epoch=family.jobs[0].epoch + 1),), pipeline=pipeline)


def refuse(_: Family) -> Changes:
    raise InvalidError("it makes no sense")


def retry(family: Family) -> Changes:
    return Changes(retries=(Retry(of=family.jobs[0].id, job=family.jobs[0]),))


def family_of(pipeline_id: PipelineId, *, group: str = "") -> Family:
    job_id = 10 * pipeline_id
    jobs = [a_job(id=JobId(job_id), resource_group=group), a_job("test", id=JobId(job_id + 1))]
    family = a_family(jobs)
    return replace(family, pipeline=replace(family.pipeline, id=pipeline_id, iid=0))


def test_every_decision_sees_the_results_of_those_before() -> None:
    families = {FIRST: family_of(FIRST), SECOND: family_of(SECOND)}
    decisions = (
        (FIRST, increment),
        (SECOND, refuse),
        (FIRST, increment),
        (SECOND, increment),
        (FIRST, retry),
        (PipelineId(3), increment),
    )
    results, jobs, pipelines = apply_decisions([FamilyDecision(*decision) for decision in decisions], families)
    assert [result is None for result in results] == [False, False, False, False, True, False]
    first, refused, second, other, missing = filter(None, results)
    assert [result.applied.jobs[0].epoch for result in (first, second, other)] == [1, 2, 1]
    assert second.before is not None
    assert [job.epoch for job in second.before.jobs] == [1, 0]
    assert isinstance(refused.error, InvalidError)
    assert isinstance(missing.error, NotFoundError)
    assert {(job.id, job.epoch) for job in jobs} == {(10, 2), (20, 1)}
    assert {(pipeline.id, pipeline.iid) for pipeline in pipelines} == {(1, 2), (2, 1)}


def test_a_decision_with_a_resource_group_is_not_batched() -> None:
    results, jobs, pipelines = apply_decisions(
        [FamilyDecision(FIRST, increment)], {FIRST: family_of(FIRST, group="production")}
    )
    assert (list(results), list(jobs), list(pipelines)) == ([None], [], [])


def test_pipelines_are_locked_in_order() -> None:
    assert "IN (1, 2) ORDER BY id" in lock_statement([SECOND, FIRST, SECOND])
