"""Inputs of a payload, the payload that users see with secrets masked, and the step policies sent with a job."""

import msgspec
import pytest

from remuda.cell.core.payload.payload import for_other_runners
from remuda.cell.core.payload.step_policies import change_policy, policy_setting
from remuda.cell.dispatch.handout import Assignment, NoJob
from remuda.cell.dispatch.payload_view import build_payload_view, load_secrets
from remuda.cell.errors import InvalidError
from remuda.cell.secrets.key_ring import KeyRing
from remuda.cell.values import ProjectVariable
from remuda.model.job import JobId, JobState
from remuda.pipeline import Artifacts
from remuda.pipeline.spec import JobInput
from remuda.testing.builders import NOW, a_spec, an_artifact
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


async def test_a_job_whose_inputs_are_too_long_fails(cell: MemoryCell) -> None:
    inputs = {"text": JobInput(default="x" * 200_000)}
    family = await cell.push(a_spec("a", inputs=inputs, script=("${{ job.inputs.text }}",) * 10))
    assert isinstance(await cell.poll(), NoJob)
    job = await cell.job(family.jobs[0].id)
    assert (job.state, job.failure_reason) == (JobState.FAILED, "script_failure")
    assert "the inputs of the job add more than" in (job.failure_message or "")


async def test_the_first_start_creates_a_key_and_later_ones_use_it(cell: MemoryCell) -> None:
    await cell.push(a_spec())
    await cell.take()
    before = dict(await cell.store.settings.load_signing_keys())
    await KeyRing(cell.store, cell.clock, cell_id=1, issuer="i").load()
    assert dict(await cell.store.settings.load_signing_keys()) == before
    assert len(before) == 1


URL = "https://ci.example"


async def test_the_view_equals_the_payload_with_secrets_masked(cell: MemoryCell) -> None:
    masked = ProjectVariable(project_id=cell.project.id, key="PASSWORD", value="hunter2-hunter2", masked=True)
    await cell.store.projects.put_variable(masked, replace=False)
    family = await cell.push(a_spec(script=("make",), id_tokens={"ID": {"aud": "x"}}))
    before = await build_payload_view(cell.store, family.jobs[0], public_url=URL, now=NOW)
    assert before["steps"][0]["script"] == ["make"]
    handout = await cell.poll()
    assert isinstance(handout, Assignment)
    job = await cell.job(handout.job.id)
    view = await build_payload_view(cell.store, job, public_url=URL, now=NOW)
    text = msgspec.json.encode(view).decode()
    assert handout.payload.token not in text
    assert "hunter2" not in text
    values = {variable["key"]: variable["value"] for variable in view["variables"]}
    assert values["PASSWORD"] == values["ID"] == values["CI_JOB_TOKEN"] == "[MASKED]"
    assert values["CI_JOB_NAME"] == "build"
    payload = msgspec.to_builtins(handout.payload)
    assert {variable["key"] for variable in payload["variables"]} == set(values)
    assert (await cell.job(job.id)) == job, "building the view does not change the job"


async def test_a_trigger_job_has_no_payload(cell: MemoryCell) -> None:
    family = await cell.push_file("go:\n  trigger: acme/lib\n")
    with pytest.raises(InvalidError, match="no payload"):
        await build_payload_view(cell.store, family.jobs[0], public_url=URL, now=NOW)


async def test_policies_are_sent_with_the_job(cell: MemoryCell) -> None:
    await cell.push(a_spec("one"), a_spec("two"))
    handout = await cell.poll()
    assert isinstance(handout, Assignment)
    assert handout.payload.remuda == {"predefined": {}}
    assert b'"remuda"' not in msgspec.json.encode(for_other_runners(handout.payload))
    scope = ("project", cell.project.id)
    await cell.store.settings.put_setting(policy_setting(scope), change_policy(None, {"deny": ["x"]}, None, 1))
    handout = await cell.poll()
    assert isinstance(handout, Assignment)
    assert isinstance(handout.payload.remuda, dict)
    assert handout.payload.remuda.keys() == {"predefined", "step_policy"}
    assert for_other_runners(handout.payload).remuda == {
        "step_policy": {
            "version": 1,
            "layers": [{"scope": "project", "id": cell.project.id, "version": 1, "document": {"deny": ["x"]}}],
        }
    }


async def test_secrets_are_the_masked_variables(cell: MemoryCell) -> None:
    for key, value, masked in (("A", "alpha-alpha", True), ("B", "bravo-bravo", False)):
        variable = ProjectVariable(project_id=cell.project.id, key=key, value=value, masked=masked)
        await cell.store.projects.put_variable(variable, replace=False)
    family = await cell.push(a_spec())
    secrets = await load_secrets(cell.store, family.jobs[0])
    assert secrets.mask_bytes(b"alpha-alpha bravo-bravo glpat-abc") == b"[MASKED] bravo-bravo glpat-[MASKED]"
