"""Requests to start pipelines, with real repositories and a store in memory."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.git_client import Clone

from remuda.cell.errors import InvalidError, MistakesError
from remuda.cell.git.repositories import GitRepos
from remuda.cell.pipelines.creation import Pipelines
from remuda.cell.settings import CellSettings
from remuda.cell.values import USER_ID, Job, Pipeline, Project, ProjectVariable, Schedule
from remuda.cell.values.pipeline_requests import Choice, PipelineRequest, Upstream
from remuda.model.job import PipelineId
from remuda.testing.builders import a_job, a_pipeline, a_project
from remuda.testing.memory_cell import MemoryCell

FILE = """
spec:
  inputs:
    word: {default: hello}
---
workflow: {name: "$[[ inputs.word ]] $CI_COMMIT_REF_NAME $WHO"}
build: {stage: build, script: [make], artifacts: {paths: [out]}}
test: {stage: test, script: [x]}
later: {stage: deploy, script: [x], when: manual}
"""


class PipelineSetup:
    """A project with one commit on `main`, and the service that starts its pipelines."""

    def __init__(self, cell: MemoryCell, folder: Path) -> None:
        self.cell = cell
        self.folder = folder
        self.store = cell.store
        self.repos = GitRepos(folder / "repos", folder / "hooks")
        self.repos.prepare()
        self.clone = Clone(folder / "work")
        self.clone.run("init", "--quiet", "-b", "main")
        settings = CellSettings(data=folder, public_url="https://ci.example")
        self.pipelines = Pipelines(
            store=cell.store, repos=self.repos, changes=cell.dispatch.changes, clock=cell.clock, settings=settings
        )
        self.project: Project = a_project()
        self.sha = ""

    async def publish(self, **files: str) -> str:
        """Push a commit to the repository in the cell."""
        if not self.sha:
            await self.repos.create("repo", "main")
            self.project = await self.store.projects.add_project(a_project(path="acme/app", repo_path="repo"))
        self.sha = self.clone.commit(**files)
        self.clone.run("push", "--quiet", str(self.folder / "repos/repo"), "HEAD:refs/heads/main")
        return self.sha

    def request(self, **changes: Any) -> PipelineRequest:
        values: dict[str, Any] = {"project": self.project, "source": "api", "ref": "refs/heads/main", "sha": self.sha}
        values["user_id"] = USER_ID
        return PipelineRequest(**(values | changes))

    async def start(self, **changes: Any) -> Pipeline:
        return await self.pipelines.start(self.request(**changes))

    async def jobs(self, pipeline: Pipeline) -> dict[str, Job]:
        family = await self.store.pipelines.load_family(pipeline.id)
        assert family is not None
        return {job.name: job for job in family.jobs}

    async def upstream(self, pipeline: Pipeline, job: str = "build") -> Upstream:
        return Upstream(job=(await self.jobs(pipeline))[job], pipeline=pipeline)


@pytest.fixture
async def setup(tmp_path: Path) -> PipelineSetup:
    setup = PipelineSetup(await MemoryCell.open(), tmp_path)
    await setup.publish(**{".gitlab-ci.yml": FILE})
    return setup


async def test_a_request_becomes_a_pipeline(setup: PipelineSetup) -> None:
    pipeline = await setup.start(variables={"WHO": "me"}, file_variables=frozenset({"WHO"}), inputs={"word": "bye"})
    assert (pipeline.name, pipeline.status, pipeline.source) == ("bye main me", "pending", "api")
    assert (pipeline.variables, pipeline.file_variables) == ({"WHO": "me"}, ("WHO",))
    assert (pipeline.protected, pipeline.cancel_on_new_commit) == (True, "conservative")
    assert pipeline.predefined["CI_COMMIT_TITLE"] == "Change"
    assert pipeline.predefined["CI_DEFAULT_BRANCH"] == "main"
    jobs = await setup.jobs(pipeline)
    assert {name: job.status() for name, job in jobs.items()} == {
        "build": "pending",
        "test": "created",
        "later": "created",
    }
    assert jobs["test"].artifacts_from == ("build",)
    assert len(setup.cell.dispatch.memory.waiting_jobs) == 1, "the job is in the queue"
    assert setup.repos.has_ref_file("repo", f"refs/pipelines/{pipeline.id}")


async def test_rules_see_what_jobs_get(setup: PipelineSetup) -> None:
    names = {
        "CI_PROJECT_PATH": "acme/app",
        "CI_SERVER_URL": "https://ci.example",
        "CI_DEPENDENCY_PROXY_GROUP_IMAGE_PREFIX": "docker.io",
        "CI_PAGES_URL": "https://acme.pages.localhost/app",
        "CI_COMMIT_TITLE": "Change",
        "CI_COMMIT_REF_PROTECTED": "true",
        "CI_COMMIT_AUTHOR": "A. Person <person@example.com>",
        "GITLAB_USER_LOGIN": "root",
        "KEY": "secret",
        "GIVEN": "more",
    }
    await setup.store.projects.put_variable(
        ProjectVariable(project_id=setup.project.id, key="KEY", value="secret"), replace=False
    )
    await setup.store.projects.put_variable(
        ProjectVariable(project_id=setup.project.id, key="GIVEN", value="less"), replace=False
    )
    rules = " && ".join(f'${name} == "{value}"' for name, value in names.items())
    pipeline = await setup.start(text=f"a: {{script: [x], rules: [{{if: '{rules}'}}]}}\n", variables={"GIVEN": "more"})
    assert list(await setup.jobs(pipeline)) == ["a"]


async def test_chosen_jobs(setup: PipelineSetup) -> None:
    pipeline = await setup.start(choice=Choice(jobs=("test",)))
    assert list(await setup.jobs(pipeline)) == ["build", "test"]
    alone = await setup.jobs(await setup.start(choice=Choice(jobs=("test",), with_needs=False)))
    assert {name: (job.status(), job.artifacts_from) for name, job in alone.items()} == {"test": ("pending", ())}
    played = await setup.jobs(await setup.start(choice=Choice(jobs=("later",), with_needs=False)))
    assert played["later"].status() == "pending", "a manual job is started if the request names it"
    with pytest.raises(InvalidError, match='no job "tset"; did you mean "test"'):
        await setup.start(choice=Choice(jobs=("tset",)))


async def test_invalid_requests(setup: PipelineSetup) -> None:
    with pytest.raises(MistakesError) as caught:
        await setup.start(text="a: {scrip: [x]}\nb: {script: [x], stage: none}\n")
    assert {mistake.line for mistake in caught.value.mistakes} == {1, 2}, "all mistakes are reported at once"
    assert "scrip" in str(caught.value)
    with pytest.raises(InvalidError, match="Missing CI config file"):
        await setup.start(file="other.yml")
    with pytest.raises(InvalidError, match="inside the repository"):
        await setup.start(file="../other.yml")
    with pytest.raises(InvalidError, match="there is no commit 1111"):
        await setup.start(sha="1" * 40)
    with pytest.raises(InvalidError, match=r"filtered out by workflow rules: no rule of workflow:rules applies\."):
        await setup.start(text="workflow: {rules: [{if: $NO}]}\na: {script: [x]}\n")
    with pytest.raises(InvalidError, match="will not run for the selected trigger"):
        await setup.start(text="a: {script: [x], rules: [{if: $NO}]}\n")
    assert list(await setup.store.pipelines.list_open_pipelines(setup.project.id, "main")) == []


async def test_a_trigger_job_starts_one_pipeline(setup: PipelineSetup) -> None:
    parent = await setup.start()
    fields = {"source": "parent_pipeline", "upstream": await setup.upstream(parent), "text": "child: {script: [x]}\n"}
    with pytest.raises(InvalidError, match=r"Missing CI config file: .* has no file ci/gone\.yml"):
        await setup.start(**fields | {"text": None, "file": "ci/gone.yml"})
    child = await setup.start(**fields)
    assert (child.is_child, child.upstream_pipeline_id, child.depth) == (True, parent.id, 1)
    assert list(await setup.jobs(child)) == ["child"]
    assert await setup.start(**fields) == child, "a repeated request returns the same pipeline"


async def test_the_depth_of_child_pipelines_is_limited(setup: PipelineSetup) -> None:
    pipeline = await setup.start()
    for _ in range(2):
        upstream = await setup.upstream(pipeline)
        pipeline = await setup.start(source="parent_pipeline", upstream=upstream)
    with pytest.raises(InvalidError, match="nest 2 deep"):
        await setup.start(source="parent_pipeline", upstream=await setup.upstream(pipeline))
    upstream = await setup.upstream(pipeline)
    elsewhere = await setup.start(source="pipeline", upstream=upstream)
    assert elsewhere.depth == 3
    names = ("CI_UPSTREAM_PROJECT_ID", "CI_UPSTREAM_PIPELINE_ID", "CI_UPSTREAM_JOB_ID")
    numbers = [pipeline.project_id, pipeline.id, upstream.job.id]
    assert [elsewhere.predefined[name] for name in names] == list(map(str, numbers))


async def test_a_child_of_a_merge_request_pipeline_gets_its_variables(setup: PipelineSetup) -> None:
    text = "a: {script: [x], rules: [{if: $CI_MERGE_REQUEST_IID}]}\nbuild: {script: [x]}\n"
    setup.clone.run("push", "--quiet", str(setup.folder / "repos/repo"), "HEAD:refs/merge-requests/4/head")
    fields = {"ref": "refs/merge-requests/4/head", "text": text}
    parent = await setup.start(source="merge_request_event", **fields)
    assert list(await setup.jobs(parent)) == ["a"]
    upstream = await setup.upstream(parent, "a")
    child = await setup.start(source="parent_pipeline", upstream=upstream, **fields)
    assert list(await setup.jobs(child)) == ["a"]
    assert child.predefined["CI_MERGE_REQUEST_IID"] == "4"
    assert child.merge_request_iid == 4


async def test_a_schedule_is_stored_with_its_pipeline(setup: PipelineSetup) -> None:
    schedule = await setup.store.schedules.add_schedule(
        Schedule(
            id=0,
            project_id=setup.project.id,
            description="Every night",
            ref="main",
            cron="0 3 * * *",
            next_run_at=10.0,
            created_at=0,
            updated_at=0,
        )
    )
    pipeline = await setup.start(source="schedule", schedule=replace(schedule, next_run_at=20.0))
    assert pipeline.schedule_id == schedule.id
    assert pipeline.predefined["CI_PIPELINE_SCHEDULE_DESCRIPTION"] == "Every night"
    stored = await setup.store.schedules.load_schedule(schedule.id)
    assert stored is not None
    assert (stored.next_run_at, stored.last_pipeline_id) == (20.0, pipeline.id)


async def test_schedules_cancel_no_older_pipelines(setup: PipelineSetup) -> None:
    old = await setup.start(source="push")
    await setup.publish(README="newer")
    await setup.start(source="schedule")
    assert (await setup.jobs(old))["build"].status() == "pending"
    await setup.start(source="web")
    assert (await setup.jobs(old))["build"].status() == "canceled"


async def test_changes_since_a_commit(setup: PipelineSetup) -> None:
    text = "a: {script: [x], rules: [{changes: [README]}]}\nb: {script: [x]}\n"
    first = setup.sha
    await setup.publish(README="x")
    second = setup.sha
    await setup.publish(other="x")
    for since, expected in ((None, ["a", "b"]), (first, ["a", "b"]), (second, ["b"])):
        pipeline = await setup.start(text=text, changes_since=since)
        assert list(await setup.jobs(pipeline)) == expected
    of_push = await setup.start(text=text, source="push", before_sha=second)
    assert list(await setup.jobs(of_push)) == ["b"]
    upstream = Upstream(job=a_job(id=99), pipeline=a_pipeline(id=PipelineId(98), before_sha=second))
    child = await setup.start(text=text, source="parent_pipeline", upstream=upstream)
    assert list(await setup.jobs(child)) == ["b"], "a child compares with the same commit as its parent"
