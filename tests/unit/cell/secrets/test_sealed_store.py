"""The sealed store encrypts all secret values in the store behind it and returns them decrypted."""

from msgspec.structs import replace

from remuda.cell.core.jobs import lifecycle
from remuda.cell.secrets.sealed_store import FIELDS, SealedStore, Secrets
from remuda.cell.secrets.sealing import EncryptionKeys, Seals
from remuda.cell.store.memory.store import MemoryStore
from remuda.cell.store.row_bodies import encode
from remuda.cell.values import Family, NewJob, Project, ProjectVariable, Schedule
from remuda.cell.values.changes import Changes
from remuda.model.job import JobId, ProjectId
from remuda.pipeline import Environment, JobSpec, Need, Trigger
from remuda.testing.builders import NOW, a_family, a_job, a_pipeline, an_artifact

SECRET = "tr0ub4dor&3"
SEALS = Seals(EncryptionKeys([bytes(32)]))
SPEC = JobSpec(
    name="deploy",
    stage="test",
    stage_index=1,
    line=3,
    script=(f"echo {SECRET}",),
    variables={"TOKEN": SECRET},
    needs=(Need(job="build"),),
    tags=("linux",),
    timeout_seconds=60,
    retry_max=2,
    retry_exit_codes=(7,),
    start_in_seconds=9,
    interruptible=True,
    environment=Environment(name=SECRET, action="stop"),
    trigger=Trigger(project="a/b", inputs={"key": SECRET}),
)
SCHEDULE = Schedule(
    id=1, project_id=ProjectId(1), description="d", ref="main", cron="* * * * *", created_at=NOW, updated_at=NOW
)
ARTIFACT = an_artifact(kind="dotenv", format="gzip")


def test_every_secret_field_is_sealed_and_can_be_opened() -> None:
    secrets = Secrets(SEALS)
    variables = {"TOKEN": SECRET}
    for value in (
        ProjectVariable(key="A", value=SECRET),
        ProjectVariable(key="A", value=""),
        replace(a_pipeline(), variables=variables),
        replace(SCHEDULE, variables=variables, inputs={"deep": [{"x": SECRET}]}),
        replace(a_job(), play_variables=variables),
        replace(ARTIFACT, variables=variables),
        SPEC,
    ):
        sealed = secrets.seal_value(value)
        assert SECRET.encode() not in encode(sealed)
        assert secrets.is_current(sealed)
        assert not secrets.is_current(value)
        assert secrets.open_value(sealed) == value
        assert type(value) in FIELDS


def test_values_without_secrets_do_not_change() -> None:
    secrets = Secrets(SEALS)
    for value in (a_job(), a_pipeline(), a_family([a_job()]), "text", 7, None, ("project", 3)):
        assert secrets.seal_value(value) == value
        assert secrets.open_value(value) == value


def test_a_job_of_a_sealed_spec_equals_a_job_of_the_open_spec() -> None:
    new = NewJob(spec=SPEC, waits_for=("build",), artifacts_from=(), environment="production")
    sealed: NewJob = Secrets(SEALS).seal_value(new)
    assert lifecycle.new_job(sealed, a_pipeline(), JobId(5), NOW) == lifecycle.new_job(new, a_pipeline(), JobId(5), NOW)


async def test_the_store_behind_contains_only_sealed_texts() -> None:
    behind = MemoryStore()
    store = SealedStore(behind, SEALS)
    project = await store.projects.add_project(Project(id=ProjectId(0), path="root/app", name="app", created_at=NOW))
    await store.projects.put_variable(ProjectVariable(project_id=project.id, key="A", value=SECRET), replace=False)
    await store.settings.put_setting("registration", SECRET)
    await store.settings.add_signing_key("k", b"-----BEGIN KEY")
    assert (await store.projects.list_variables(project.id))[0].value == SECRET
    assert await store.settings.load_setting("registration") == SECRET
    assert await store.settings.load_settings(["registration", "none"]) == {"registration": SECRET}
    assert await store.settings.load_setting("none") is None
    assert await store.settings.load_signing_keys() == {"k": b"-----BEGIN KEY"}
    sealed_texts = [
        (await behind.projects.list_variables(project.id))[0].value,
        await behind.settings.load_setting("registration"),
        (await behind.settings.load_signing_keys())["k"].decode(),
    ]
    assert all(text is not None and SEALS.is_current(text) for text in sealed_texts)
    assert (
        await store.settings.change_setting("registration", lambda value: f"{value} and more") == f"{SECRET} and more"
    )
    assert await store.settings.load_setting("registration") == f"{SECRET} and more"
    assert await store.settings.change_setting("registration", lambda value: None) is None


async def test_change_functions_get_open_values_and_sealed_ones_are_stored() -> None:
    behind = MemoryStore()
    store = SealedStore(behind, SEALS)
    project = await store.projects.add_project(Project(id=ProjectId(0), path="root/app", name="app", created_at=NOW))
    pipeline = replace(a_pipeline(), project_id=project.id, variables={"A": SECRET})
    spec = replace(SPEC, needs=(), trigger=None, start_in_seconds=None)
    new = NewJob(spec=spec, waits_for=(), artifacts_from=())
    family = await store.pipelines.add_pipeline(pipeline, [new], now=NOW)
    assert family.pipeline.variables == {"A": SECRET}
    job = family.jobs[0]
    assert await store.jobs.load_spec(job.id) == spec

    changed = await store.jobs.change_job(job.id, lambda row: replace(row, play_variables={"B": SECRET}))
    assert changed is not None
    assert changed.play_variables == {"B": SECRET}
    changed_again = await store.jobs.change_job(
        job.id, lambda row: replace(row, play_variables={**row.play_variables, "C": "c"})
    )
    assert changed_again is not None
    assert changed_again.play_variables == {"B": SECRET, "C": "c"}

    def cancel(family: Family) -> Changes:
        return lifecycle.cancel_all(family, NOW) if family.pipeline.variables == {"A": SECRET} else Changes()

    applied = await store.pipelines.change_family(family.pipeline.id, cancel)
    assert applied.pipeline is not None
    assert applied.pipeline.variables == {"A": SECRET}
    sealed_family = await behind.pipelines.load_family(family.pipeline.id)
    assert sealed_family is not None
    assert SECRET.encode() not in encode(sealed_family)
    sealed_spec = await behind.jobs.load_spec(job.id)
    assert SECRET.encode() not in encode(sealed_spec)
