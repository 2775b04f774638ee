"""Requests to start pipelines, against real repositories and a store in memory."""

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


class Desk:
    """A project with one commit on `main`, and pipelines for it."""

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
        """A commit that the cell has."""
        if not self.sha:
            await self.repos.create("repo", "main")
            self.project = await self.store.projects.add_project(a_project(path="acme/app", repo_path="repo"))
        self.sha = self.clone.commit(**files)
        self.clone.run("push", "--quiet", str(self.folder / "repos/repo"), "HEAD:refs/heads/main")
        return self.sha

    def request(self, **given: Any) -> PipelineRequest:
        values: dict[str, Any] = {"project": self.project, "source": "api", "ref": "refs/heads/main", "sha": self.sha}
        values["user_id"] = USER_ID
        return PipelineRequest(**(values | given))

    async def start(self, **given: Any) -> Pipeline:
        return await self.pipelines.start(self.request(**given))

    async def jobs(self, pipeline: Pipeline) -> dict[str, Job]:
        family = await self.store.pipelines.load_family(pipeline.id)
        assert family is not None
        return {job.name: job for job in family.jobs}

    async def upstream(self, pipeline: Pipeline, job: str = "build") -> Upstream:
        return Upstream(job=(await self.jobs(pipeline))[job], pipeline=pipeline)


@pytest.fixture
async def desk(tmp_path: Path) -> Desk:
    desk = Desk(await MemoryCell.open(), tmp_path)
    await desk.publish(**{".gitlab-ci.yml": FILE})
    return desk


async def test_a_request_becomes_a_pipeline(desk: Desk) -> None:
    pipeline = await desk.start(variables={"WHO": "me"}, file_variables=frozenset({"WHO"}), inputs={"word": "bye"})
    assert (pipeline.name, pipeline.status, pipeline.source) == ("bye main me", "pending", "api")
    assert (pipeline.variables, pipeline.file_variables) == ({"WHO": "me"}, ("WHO",))
    assert (pipeline.protected, pipeline.cancel_on_new_commit) == (True, "conservative")
    assert pipeline.predefined["CI_COMMIT_TITLE"] == "Change"
    assert pipeline.predefined["CI_DEFAULT_BRANCH"] == "main"
    jobs = await desk.jobs(pipeline)
    assert {name: job.status() for name, job in jobs.items()} == {
        "build": "pending",
        "test": "created",
        "later": "created",
    }
    assert jobs["test"].artifacts_from == ("build",)
    assert len(desk.cell.dispatch.memory.waiting_jobs) == 1, "the queue knows"
    assert desk.repos.has_ref_file("repo", f"refs/pipelines/{pipeline.id}")


async def test_rules_see_what_jobs_get(desk: Desk) -> None:
    names = {
        "CI_PROJECT_PATH": "acme/app",
        "CI_SERVER_URL": "https://ci.example",
        "CI_COMMIT_TITLE": "Change",
        "CI_COMMIT_REF_PROTECTED": "true",
        "CI_COMMIT_AUTHOR": "A. Person <person@example.com>",
        "GITLAB_USER_LOGIN": "root",
        "KEY": "secret",
        "GIVEN": "more",
    }
    await desk.store.projects.put_variable(
        ProjectVariable(project_id=desk.project.id, key="KEY", value="secret"), replace=False
    )
    await desk.store.projects.put_variable(
        ProjectVariable(project_id=desk.project.id, key="GIVEN", value="less"), replace=False
    )
    rules = " && ".join(f'${name} == "{value}"' for name, value in names.items())
    pipeline = await desk.start(text=f"a: {{script: [x], rules: [{{if: '{rules}'}}]}}\n", variables={"GIVEN": "more"})
    assert list(await desk.jobs(pipeline)) == ["a"]


async def test_chosen_jobs(desk: Desk) -> None:
    pipeline = await desk.start(choice=Choice(jobs=("test",)))
    assert list(await desk.jobs(pipeline)) == ["build", "test"]
    alone = await desk.jobs(await desk.start(choice=Choice(jobs=("test",), with_needs=False)))
    assert {name: (job.status(), job.artifacts_from) for name, job in alone.items()} == {"test": ("pending", ())}
    played = await desk.jobs(await desk.start(choice=Choice(jobs=("later",), with_needs=False)))
    assert played["later"].status() == "pending", "who names a manual job wants it to run"
    with pytest.raises(InvalidError, match='no job "tset"; did you mean "test"'):
        await desk.start(choice=Choice(jobs=("tset",)))


async def test_what_cannot_be_started(desk: Desk) -> None:
    with pytest.raises(MistakesError) as caught:
        await desk.start(text="a: {scrip: [x]}\nb: {script: [x], stage: none}\n")
    assert {mistake.line for mistake in caught.value.mistakes} == {1, 2}, "all of them at once"
    assert "scrip" in str(caught.value)
    with pytest.raises(InvalidError, match="Missing CI config file"):
        await desk.start(file="other.yml")
    with pytest.raises(InvalidError, match="inside the repository"):
        await desk.start(file="../other.yml")
    with pytest.raises(InvalidError, match="there is no commit 1111"):
        await desk.start(sha="1" * 40)
    with pytest.raises(InvalidError, match=r"filtered out by workflow rules: no rule of workflow:rules applies\."):
        await desk.start(text="workflow: {rules: [{if: $NO}]}\na: {script: [x]}\n")
    with pytest.raises(InvalidError, match="will not run for the selected trigger"):
        await desk.start(text="a: {script: [x], rules: [{if: $NO}]}\n")
    assert list(await desk.store.pipelines.list_open_pipelines(desk.project.id, "main")) == []


async def test_a_trigger_job_starts_one_pipeline(desk: Desk) -> None:
    parent = await desk.start()
    asked = {"source": "parent_pipeline", "upstream": await desk.upstream(parent), "text": "child: {script: [x]}\n"}
    child = await desk.start(**asked)
    assert (child.is_child, child.upstream_pipeline_id, child.depth) == (True, parent.id, 1)
    assert list(await desk.jobs(child)) == ["child"]
    assert await desk.start(**asked) == child, "asked again, the same one comes back"


async def test_children_of_children_of_children(desk: Desk) -> None:
    pipeline = await desk.start()
    for _ in range(2):
        upstream = await desk.upstream(pipeline)
        pipeline = await desk.start(source="parent_pipeline", upstream=upstream)
    with pytest.raises(InvalidError, match="nest 2 deep"):
        await desk.start(source="parent_pipeline", upstream=await desk.upstream(pipeline))
    elsewhere = await desk.start(source="pipeline", upstream=await desk.upstream(pipeline))
    assert elsewhere.depth == 3


async def test_a_child_of_a_merge_request_is_told_of_it(desk: Desk) -> None:
    of_request = "a: {script: [x], rules: [{if: $CI_MERGE_REQUEST_IID}]}\nbuild: {script: [x]}\n"
    desk.clone.run("push", "--quiet", str(desk.folder / "repos/repo"), "HEAD:refs/merge-requests/4/head")
    asked = {"ref": "refs/merge-requests/4/head", "text": of_request}
    parent = await desk.start(source="merge_request_event", **asked)
    assert list(await desk.jobs(parent)) == ["a"]
    upstream = await desk.upstream(parent, "a")
    child = await desk.start(source="parent_pipeline", upstream=upstream, **asked)
    assert list(await desk.jobs(child)) == ["a"]
    assert child.predefined["CI_MERGE_REQUEST_IID"] == "4"
    assert child.merge_request_iid == 4


async def test_a_schedule_is_stored_with_its_pipeline(desk: Desk) -> None:
    schedule = await desk.store.schedules.add_schedule(
        Schedule(
            id=0,
            project_id=desk.project.id,
            description="Every night",
            ref="main",
            cron="0 3 * * *",
            next_run_at=10.0,
            created_at=0,
            updated_at=0,
        )
    )
    pipeline = await desk.start(source="schedule", schedule=replace(schedule, next_run_at=20.0))
    assert pipeline.schedule_id == schedule.id
    assert pipeline.predefined["CI_PIPELINE_SCHEDULE_DESCRIPTION"] == "Every night"
    kept = await desk.store.schedules.load_schedule(schedule.id)
    assert kept is not None
    assert (kept.next_run_at, kept.last_pipeline_id) == (20.0, pipeline.id)


async def test_schedules_replace_nothing(desk: Desk) -> None:
    old = await desk.start(source="push")
    await desk.publish(README="newer")
    await desk.start(source="schedule")
    assert (await desk.jobs(old))["build"].status() == "pending"
    await desk.start(source="web")
    assert (await desk.jobs(old))["build"].status() == "canceled"


async def test_what_changed_since_a_commit(desk: Desk) -> None:
    text = "a: {script: [x], rules: [{changes: [README]}]}\nb: {script: [x]}\n"
    first = desk.sha
    await desk.publish(README="x")
    second = desk.sha
    await desk.publish(other="x")
    for since, expected in ((None, ["a", "b"]), (first, ["a", "b"]), (second, ["b"])):
        pipeline = await desk.start(text=text, changes_since=since)
        assert list(await desk.jobs(pipeline)) == expected
    of_push = await desk.start(text=text, source="push", before_sha=second)
    assert list(await desk.jobs(of_push)) == ["b"]
    upstream = Upstream(job=a_job(id=99), pipeline=a_pipeline(id=PipelineId(98), before_sha=second))
    child = await desk.start(text=text, source="parent_pipeline", upstream=upstream)
    assert list(await desk.jobs(child)) == ["b"], "a child looks where its parent looked"
