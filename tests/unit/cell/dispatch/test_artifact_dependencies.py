"""Whose artifacts and variables a job gets, over a cell in memory."""

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

MAKES = Artifacts(paths=("dist/",), reports={"dotenv": ("build.env",)})


async def leave(cell: MemoryCell, job: Job, kind: str = "archive", **changes: Any) -> None:
    await cell.store.jobs.put_artifact(an_artifact(job.id, kind, **({"filename": kind} | changes)))


async def push(cell: MemoryCell, *specs: JobSpec, **pipeline: Any) -> Family:
    new = a_pipeline(**({"project_id": cell.project.id} | pipeline))
    family = await cell.store.pipelines.add_pipeline(new, new_jobs(*specs), now=NOW)
    cell.dispatch.memory.announce(family.jobs)
    return family


async def succeed(cell: MemoryCell, **variables: str) -> Job:
    """Take the next job, let it leave an archive and these variables, and end it well."""
    job, token = await cell.start()
    await leave(cell, job)
    if variables:
        await leave(cell, job, "dotenv", variables=variables)
    await cell.put(token, "success")
    return job


async def handed_out(cell: MemoryCell) -> tuple[dict[str, str], list[int]]:
    """What the next job gets: its variables, and the jobs whose archives it downloads."""
    handout = await cell.poll()
    assert isinstance(handout, Assignment)
    variables = {variable.key: variable.value for variable in handout.payload.variables}
    return variables, [dependency.id for dependency in handout.payload.dependencies or ()]


async def failure(cell: MemoryCell, family: Family, name: str) -> tuple[str | None, str]:
    assert isinstance(await cell.poll(), NoJob)
    job = await cell.job(next(job.id for job in family.jobs if job.name == name))
    assert job.state is JobState.FAILED
    return job.failure_reason, job.failure_message or ""


async def test_later_stages_get_variables_and_archives_of_earlier_ones(cell: MemoryCell) -> None:
    await push(
        cell,
        a_spec("one", artifacts=MAKES),
        a_spec("two", artifacts=MAKES),
        a_spec("use", stage="deploy", stage_index=2, variables={"VERSION": "file", "OWN": "file"}),
    )
    first = await succeed(cell, VERSION="1", FIRST="yes")
    second = await succeed(cell, VERSION="2")
    variables, archives = await handed_out(cell)
    assert (variables["VERSION"], variables["FIRST"], variables["OWN"]) == ("2", "yes", "file")
    assert archives == [first.id, second.id]


@pytest.mark.parametrize(
    ("changes", "gets"),
    [
        ({"needs": (Need(job="one"),)}, True),
        ({"needs": (Need(job="one", artifacts=False),)}, False),
        ({"dependencies": ("one",)}, True),
        ({"dependencies": ()}, False),
    ],
)
async def test_needs_and_dependencies_choose(cell: MemoryCell, changes: dict[str, Any], gets: bool) -> None:
    family = await push(cell, a_spec("one", artifacts=MAKES), a_spec("use", stage="deploy", stage_index=2, **changes))
    maker = await succeed(cell, VERSION="1")
    assert (await dotenv_variables(cell.store, family.jobs[1])) == ({"VERSION": "1"} if gets else {})
    variables, archives = await handed_out(cell)
    assert ("VERSION" in variables, archives) == (gets, [maker.id] if gets else [])


async def test_artifacts_of_another_project(cell: MemoryCell) -> None:
    other = await cell.store.projects.add_project(a_project(path="acme/library", job_token_scope_enabled=False))
    await push(cell, a_spec("build", artifacts=MAKES), project_id=other.id, ref="stable")
    await succeed(cell, LIBRARY="old")
    await push(cell, a_spec("build", artifacts=MAKES), project_id=other.id, ref="stable")
    maker = await succeed(cell, LIBRARY="new")
    need = OutsideNeed(job="build", project="acme/$WHERE", ref="stable")
    family = await push(cell, a_spec("use", outside_needs=(need,), variables={"WHERE": "library"}))
    variables, archives = await handed_out(cell)
    assert (variables["LIBRARY"], archives) == ("new", [maker.id])
    assert (await cell.job(family.jobs[0].id)).gets == (maker.id,)


async def test_a_membership_that_is_over_by_the_wall_clock_gives_nothing(cell: MemoryCell) -> None:
    other = await cell.store.projects.add_project(a_project(path="acme/library", job_token_scope_enabled=False))
    await push(cell, a_spec("build", artifacts=MAKES), project_id=other.id)
    maker = await succeed(cell)
    ada = User(id=0, username="ada", name="Ada", email="ada@x.org", created_at=NOW)
    user = await cell.store.people.add_user(ada, Namespace(id=0, path="ada", name="ada", created_at=NOW))
    member = Member(owner=("project", other.id), user_id=user.id, level=20, created_at=NOW, expires_at=NOW + 86_400)
    await cell.store.people.put_member(member)
    spec = a_spec("use", outside_needs=(OutsideNeed(job="build", project="acme/library", ref="main"),))
    await push(cell, spec, user_id=user.id)
    assert (await handed_out(cell))[1] == [maker.id]
    cell.clock.set_wall(90_000.0)
    family = await push(cell, spec, user_id=user.id)
    assert "which does not exist" in (await failure(cell, family, "use"))[1]


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
async def test_what_is_missing_fails_the_job(cell: MemoryCell, need: OutsideNeed, reason: str, advice: str) -> None:
    family = await push(cell, a_spec("use", outside_needs=(need,)))
    kind, message = await failure(cell, family, "use")
    assert kind == "missing_dependency_failure"
    assert reason in message
    # Each message says what to do, and nothing else does.
    assert advice in message
    assert (await cell.dispatch.explanations.explain_job(family.jobs[0].id)).advice == ()


async def test_a_need_without_artifacts_is_not_missed(cell: MemoryCell) -> None:
    need = OutsideNeed(job="build", project="acme/nowhere", ref="main", artifacts=False)
    await push(cell, a_spec("use", outside_needs=(need,)))
    assert (await handed_out(cell))[1] == []


async def test_a_success_that_left_nothing_is_missed(cell: MemoryCell) -> None:
    await push(cell, a_spec("build"))
    _, token = await cell.start()
    await cell.put(token, "success")
    family = await push(cell, a_spec("use", outside_needs=(OutsideNeed(job="build", project="acme/shop", ref="main"),)))
    assert "has no artifacts" in (await failure(cell, family, "use"))[1]


async def test_artifacts_of_a_parent_and_of_a_stranger(cell: MemoryCell) -> None:
    parent = await push(cell, a_spec("build", artifacts=MAKES))
    maker = await succeed(cell, VERSION="1")
    spec = a_spec("use", outside_needs=(OutsideNeed(job="build", pipeline="$PARENT"),))
    variables = {"PARENT": str(parent.pipeline.id)}
    await push(cell, spec, variables=variables, is_child=True, upstream_pipeline_id=parent.pipeline.id)
    got, archives = await handed_out(cell)
    assert (got["VERSION"], archives) == ("1", [maker.id])
    stranger = await push(cell, spec, variables=variables)
    assert "neither a parent nor a child of its own" in (await failure(cell, stranger, "use"))[1]
