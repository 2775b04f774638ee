"""Which artifacts and dotenv variables of other jobs a job gets at its hand-out."""

from typing import Any

import pytest

from remuda.cell.dispatch.artifact_dependencies import dotenv_variables
from remuda.cell.dispatch.handout import Assignment, NoJob
from remuda.cell.values import Family, Job
from remuda.cell.values.people import Member, Namespace, User
from remuda.model.job import JobState
from remuda.pipeline import Artifacts, JobSpec, Need, OutsideNeed
from remuda.testing.builders import NOW, a_pipeline, a_project, a_spec, an_artifact, new_jobs
from remuda.testing.memory_cell import MemoryCell

ARTIFACTS = Artifacts(paths=("dist/",), reports={"dotenv": ("build.env",)})


async def store_artifact(cell: MemoryCell, job: Job, kind: str = "archive", **changes: Any) -> None:
    await cell.store.jobs.put_artifact(an_artifact(job.id, kind, **({"filename": kind} | changes)))


async def push(cell: MemoryCell, *specs: JobSpec, **pipeline: Any) -> Family:
    new_pipeline = a_pipeline(**({"project_id": cell.project.id} | pipeline))
    family = await cell.store.pipelines.add_pipeline(new_pipeline, new_jobs(*specs), now=NOW)
    cell.dispatch.memory.announce(family.jobs)
    return family


async def succeed(cell: MemoryCell, **variables: str) -> Job:
    """Run the next job: store an archive and these dotenv variables, and end it with success."""
    job, token = await cell.start()
    await store_artifact(cell, job)
    if variables:
        await store_artifact(cell, job, "dotenv", variables=variables)
    await cell.put(token, "success")
    return job


async def take_next(cell: MemoryCell) -> tuple[dict[str, str], list[int]]:
    """Hand out the next job; return its variables and the ids of the jobs whose archives it downloads."""
    handout = await cell.poll()
    assert isinstance(handout, Assignment)
    variables = {variable.key: variable.value for variable in handout.payload.variables}
    return variables, [dependency.id for dependency in handout.payload.dependencies or ()]


async def poll_and_fail(cell: MemoryCell, family: Family, name: str) -> tuple[str | None, str]:
    """Poll for a job that cannot be handed out; return the failure reason and the message of the job."""
    assert isinstance(await cell.poll(), NoJob)
    job = await cell.job(next(job.id for job in family.jobs if job.name == name))
    assert job.state is JobState.FAILED
    return job.failure_reason, job.failure_message or ""


async def test_later_stages_get_variables_and_archives_of_earlier_ones(cell: MemoryCell) -> None:
    await push(
        cell,
        a_spec("one", artifacts=ARTIFACTS),
        a_spec("two", artifacts=ARTIFACTS),
        a_spec("use", stage="deploy", stage_index=2, variables={"VERSION": "file", "OWN": "file"}),
    )
    first = await succeed(cell, VERSION="1", FIRST="yes")
    second = await succeed(cell, VERSION="2")
    variables, archives = await take_next(cell)
    assert (variables["VERSION"], variables["FIRST"], variables["OWN"]) == ("2", "yes", "file")
    assert archives == [first.id, second.id]


@pytest.mark.parametrize(
    ("changes", "gets_artifacts"),
    [
        ({"needs": (Need(job="one"),)}, True),
        ({"needs": (Need(job="one", artifacts=False),)}, False),
        ({"dependencies": ("one",)}, True),
        ({"dependencies": ()}, False),
    ],
)
async def test_needed_artifacts_are_selected(cell: MemoryCell, changes: dict[str, Any], gets_artifacts: bool) -> None:
    family = await push(
        cell, a_spec("one", artifacts=ARTIFACTS), a_spec("use", stage="deploy", stage_index=2, **changes)
    )
    producer = await succeed(cell, VERSION="1")
    assert (await dotenv_variables(cell.store, family.jobs[1])) == ({"VERSION": "1"} if gets_artifacts else {})
    variables, archives = await take_next(cell)
    assert ("VERSION" in variables, archives) == (gets_artifacts, [producer.id] if gets_artifacts else [])


async def test_artifacts_of_another_project(cell: MemoryCell) -> None:
    other = await cell.store.projects.add_project(a_project(path="acme/library", job_token_scope_enabled=False))
    await push(cell, a_spec("build", artifacts=ARTIFACTS), project_id=other.id, ref="stable")
    await succeed(cell, LIBRARY="old")
    await push(cell, a_spec("build", artifacts=ARTIFACTS), project_id=other.id, ref="stable")
    producer = await succeed(cell, LIBRARY="new")
    need = OutsideNeed(job="build", project="acme/$WHERE", ref="stable")
    family = await push(cell, a_spec("use", outside_needs=(need,), variables={"WHERE": "library"}))
    variables, archives = await take_next(cell)
    assert (variables["LIBRARY"], archives) == ("new", [producer.id])
    assert (await cell.job(family.jobs[0].id)).gets == (producer.id,)


async def test_a_membership_that_has_expired_by_the_wall_clock_gives_no_artifacts(cell: MemoryCell) -> None:
    other = await cell.store.projects.add_project(a_project(path="acme/library", job_token_scope_enabled=False))
    await push(cell, a_spec("build", artifacts=ARTIFACTS), project_id=other.id)
    producer = await succeed(cell)
    ada = User(id=0, username="ada", name="Ada", email="ada@x.org", created_at=NOW)
    user = await cell.store.people.add_user(ada, Namespace(id=0, path="ada", name="ada", created_at=NOW))
    member = Member(owner=("project", other.id), user_id=user.id, level=20, created_at=NOW, expires_at=NOW + 86_400)
    await cell.store.people.put_member(member)
    spec = a_spec("use", outside_needs=(OutsideNeed(job="build", project="acme/library", ref="main"),))
    await push(cell, spec, user_id=user.id)
    assert (await take_next(cell))[1] == [producer.id]
    cell.clock.set_wall(90_000.0)
    family = await push(cell, spec, user_id=user.id)
    assert "which does not exist" in (await poll_and_fail(cell, family, "use"))[1]


@pytest.mark.parametrize(
    "need",
    [
        OutsideNeed(job="build", project="acme/nowhere", ref="main", optional=True),
        OutsideNeed(job="build", pipeline="9999", optional=True),
        OutsideNeed(job="build", pipeline="$CI_PIPELINE_ID", optional=True),
    ],
)
async def test_a_job_starts_without_optional_artifacts(cell: MemoryCell, need: OutsideNeed) -> None:
    await push(cell, a_spec("use", outside_needs=(need,)))
    assert (await take_next(cell))[1] == []


@pytest.mark.parametrize(
    ("need", "reason", "advice"),
    [
        (
            OutsideNeed(job="build", project="acme/nowhere", ref="main"),
            'project "acme/nowhere", which does not exist',
            "check the path",
        ),
        (
            OutsideNeed(job="build", project="acme/shop", ref="main"),
            'job "build" of project "acme/shop" on "main"',
            "run that job first",
        ),
        (
            OutsideNeed(job="build", pipeline="$NOTHING"),
            'pipeline "", which is neither a parent nor a child',
            "pass the number",
        ),
        (
            OutsideNeed(job="build", pipeline="9999"),
            'pipeline "9999", which is neither a parent nor a child',
            "pass the number",
        ),
        (OutsideNeed(job="build", pipeline="$CI_PIPELINE_ID"), "has not succeeded", "run that job first"),
    ],
)
async def test_missing_dependency_fails_a_job(cell: MemoryCell, need: OutsideNeed, reason: str, advice: str) -> None:
    family = await push(cell, a_spec("use", outside_needs=(need,)))
    kind, message = await poll_and_fail(cell, family, "use")
    assert kind == "missing_dependency_failure"
    assert reason in message
    # The failure message contains the advice, so the explanation adds none.
    assert advice in message
    assert (await cell.dispatch.explanations.explain_job(family.jobs[0].id)).advice == ()


async def test_a_need_without_artifacts_is_not_required(cell: MemoryCell) -> None:
    need = OutsideNeed(job="build", project="acme/nowhere", ref="main", artifacts=False)
    await push(cell, a_spec("use", outside_needs=(need,)))
    assert (await take_next(cell))[1] == []


async def test_a_successful_job_without_artifacts_is_a_missing_dependency(cell: MemoryCell) -> None:
    await push(cell, a_spec("build"))
    _, token = await cell.start()
    await cell.put(token, "success")
    family = await push(cell, a_spec("use", outside_needs=(OutsideNeed(job="build", project="acme/shop", ref="main"),)))
    assert "has no artifacts" in (await poll_and_fail(cell, family, "use"))[1]


async def test_artifacts_of_a_parent_and_of_an_unrelated_pipeline(cell: MemoryCell) -> None:
    parent = await push(cell, a_spec("build", artifacts=ARTIFACTS))
    producer = await succeed(cell, VERSION="1")
    spec = a_spec("use", outside_needs=(OutsideNeed(job="build", pipeline="$PARENT"),))
    variables = {"PARENT": str(parent.pipeline.id)}
    await push(cell, spec, variables=variables, is_child=True, upstream_pipeline_id=parent.pipeline.id)
    job_variables, archives = await take_next(cell)
    assert (job_variables["VERSION"], archives) == ("1", [producer.id])
    unrelated = await push(cell, spec, variables=variables)
    assert "neither a parent nor a child of its own" in (await poll_and_fail(cell, unrelated, "use"))[1]
