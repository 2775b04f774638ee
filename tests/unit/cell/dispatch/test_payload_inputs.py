"""Inputs of a payload: archives, project variables, the job's spec, and the signing key."""

import pytest

from remuda.cell.dispatch.handout import Assignment, NoJob
from remuda.cell.secrets.key_ring import KeyRing
from remuda.cell.values import ProjectVariable
from remuda.model.job import JobId, JobState
from remuda.pipeline import Artifacts
from remuda.testing.builders import a_spec, an_artifact
from remuda.testing.memory_cell import MemoryCell


async def test_a_job_gets_the_archives_of_the_newest_attempts(cell: MemoryCell) -> None:
    artifacts = Artifacts(paths=("dist/",))
    await cell.push(
        a_spec("maker", artifacts=artifacts, retry_max=1),
        a_spec("empty-handed", artifacts=artifacts),
        a_spec("taker", stage="deploy", stage_index=2),
    )
    first, token = await cell.start()
    await cell.store.jobs.put_artifact(an_artifact(first.id))
    await cell.put(token, "failed", reason="script_failure")
    for _ in range(2):
        job, token = await cell.start()
        if job.name == "maker":
            await cell.store.jobs.put_artifact(an_artifact(job.id))
            await cell.store.jobs.put_artifact(an_artifact(job.id, "junit"))
            newest = job.id
        await cell.put(token, "success")
    handout = await cell.poll()
    assert isinstance(handout, Assignment)
    assert handout.payload.dependencies is not None
    assert [(dependency.id, dependency.name, dependency.token) for dependency in handout.payload.dependencies] == [
        (newest, "maker", handout.payload.token)
    ]


async def test_a_job_gets_the_variables_of_its_project(cell: MemoryCell) -> None:
    await cell.store.projects.put_variable(
        ProjectVariable(project_id=cell.project.id, key="WHO", value="me"), replace=False
    )
    await cell.push(a_spec())
    handout = await cell.poll()
    assert isinstance(handout, Assignment)
    assert "me" in {variable.value for variable in handout.payload.variables if variable.key == "WHO"}
    assert handout.payload.git_info.repo_url.endswith("@ci.example:8443/root/acme/shop.git")


async def test_a_job_without_a_stored_spec_fails(cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
    family = await cell.push(a_spec())

    async def find_nothing(_: JobId) -> None:
        return None

    monkeypatch.setattr(cell.store.jobs, "load_spec", find_nothing)
    assert isinstance(await cell.poll(), NoJob)
    job = await cell.job(family.jobs[0].id)
    assert (job.state, job.failure_reason) == (JobState.FAILED, "data_integrity_failure")
    assert "lacks its spec" in (job.failure_message or "")


async def test_the_first_start_creates_a_key_and_later_ones_use_it(cell: MemoryCell) -> None:
    await cell.push(a_spec())
    await cell.take()
    before = dict(await cell.store.settings.load_signing_keys())
    await KeyRing(cell.store, cell.clock, cell_id=1, issuer="i").load()
    assert dict(await cell.store.settings.load_signing_keys()) == before
    assert len(before) == 1
