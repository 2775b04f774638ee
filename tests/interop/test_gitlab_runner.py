"""The unmodified gitlab-runner 12.7 with its shell executor against a cell."""

import io
import zipfile
from collections.abc import Callable
from typing import Any

import gitlab
import pytest
from gitlab.v4.objects import Project
from tests.support.cells.served_cell import ServedCell
from tests.support.runners.gitlab_runner import RealRunner

from remuda.testing.waiting import wait_until

WAIT_SECONDS = 90

NewRunner = Callable[..., RealRunner]

WHOLE = r"""
stages: [build, test, after]
variables:
  SHARED: from the file
build:
  stage: build
  script:
    - git log -1 --format=%s
    - mkdir out && echo "made of $SHARED" > out/made.txt
    - echo "VERSION=1.2.3" > build.env
  after_script:
    - echo "after $CI_JOB_NAME"
  artifacts:
    paths: [out]
    reports:
      dotenv: build.env
test:
  stage: test
  script:
    - cat out/made.txt
    - echo "version is $VERSION"
    - echo "secret is $SECRET"
    - test "$SECRET" = long-masked-value
failing:
  stage: test
  allow_failure: true
  script: [echo before, exit 3, echo never]
again:
  stage: test
  retry: 1
  script:
    - test -e "$STATE_FOLDER/tried" || { touch "$STATE_FOLDER/tried"; exit 1; }
behind:
  stage: after
  needs: [build]
  script: [ls out]
"""


@pytest.fixture
def client(cell: ServedCell) -> gitlab.Gitlab:
    return gitlab.Gitlab(cell.url, private_token=cell.token)


def ended(project: Project, seconds: float = WAIT_SECONDS) -> dict[str, Any]:
    """The jobs of the project's only pipeline by name, once it is over; the newest try of each."""

    def over() -> bool:
        [pipeline] = project.pipelines.list(get_all=True)
        return pipeline.status in ("success", "failed", "canceled")

    wait_until(over, "the pipeline is over", seconds)
    [pipeline] = project.pipelines.list(get_all=True)
    return {job.name: project.jobs.get(job.id) for job in pipeline.jobs.list(get_all=True)}


def job_named(project: Project, name: str) -> Any:
    """The newest try of a job."""
    [pipeline] = project.pipelines.list(get_all=True)
    return next(job for job in pipeline.jobs.list(get_all=True) if job.name == name)


def new_project(client: gitlab.Gitlab, cell: ServedCell, name: str, pipeline_file: str) -> Project:
    """A project whose first commit has this pipeline file."""
    return client.projects.get(cell.new_project(name, pipeline_file))


def trace_of(job: Any) -> str:
    """A job's log as text."""
    return bytes(job.trace()).decode()


def test_a_whole_pipeline(client: gitlab.Gitlab, cell: ServedCell, new_runner: NewRunner) -> None:
    """Register, clone, artifacts and a dotenv between jobs, a masked variable, after_script, a failure, a retry."""
    runner = new_runner()
    runner.register("whole")
    runner.call("verify", "--config", str(runner.config))
    runner.start()
    project = client.projects.create({"name": "whole"})
    project.variables.create({"key": "SECRET", "value": "long-masked-value", "masked": True})
    project.variables.create({"key": "STATE_FOLDER", "value": str(runner.folder)})
    actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": WHOLE}]
    project.commits.create({"branch": "main", "commit_message": "Add a pipeline", "actions": actions})

    jobs = ended(project)
    assert {name: job.status for name, job in jobs.items()} == {
        "build": "success",
        "test": "success",
        "failing": "failed",
        "again": "success",
        "behind": "success",
    }
    built, tested = trace_of(jobs["build"]), trace_of(jobs["test"])
    assert "Add a pipeline" in built
    assert "after build" in built
    assert "made of from the file" in tested
    assert "version is 1.2.3" in tested
    assert "secret is [MASKED]" in tested
    assert "long-masked-value" not in tested
    failed = trace_of(jobs["failing"])
    assert "before" in failed
    assert "\nnever\n" not in failed
    assert jobs["failing"].failure_reason == "script_failure"
    tries = [job for job in project.jobs.list(get_all=True) if job.name == "again"]
    assert sorted(job.status for job in tries) == ["failed", "success"]
    with zipfile.ZipFile(io.BytesIO(jobs["build"].artifacts())) as archive:
        assert archive.read("out/made.txt") == b"made of from the file\n"


def test_a_log_of_five_megabytes(client: gitlab.Gitlab, cell: ServedCell, new_runner: NewRunner) -> None:
    runner = new_runner()
    runner.register("flood", "--output-limit", "16384")
    runner.start()
    line = "x" * 99
    script = f"awk 'BEGIN {{ for (i = 0; i < 52429; i++) print \"{line}\" }}'"
    project = new_project(client, cell, "flood", f"flood:\n  script:\n    - |\n      {script}\n")
    jobs = ended(project)
    assert jobs["flood"].status == "success"
    assert trace_of(jobs["flood"]).count(line + "\n") == 52429


def test_cancel_and_timeout(client: gitlab.Gitlab, cell: ServedCell, new_runner: NewRunner) -> None:
    """A canceled job stops at the runner's next call; one over its time fails with that reason."""
    runner = new_runner()
    runner.register("stops")
    runner.start()
    project = new_project(
        client,
        cell,
        "stops",
        "endless:\n  script: [echo begun, sleep 300]\nslow:\n  script: [sleep 300]\n  timeout: 5 seconds\n",
    )

    def begun() -> bool:
        job = job_named(project, "endless")
        return job.status == "running" and "begun" in trace_of(project.jobs.get(job.id))

    wait_until(begun, "the job runs", WAIT_SECONDS)
    project.jobs.get(job_named(project, "endless").id).cancel()
    jobs = ended(project)
    assert jobs["endless"].status == "canceled"
    assert (jobs["slow"].status, jobs["slow"].failure_reason) == ("failed", "job_execution_timeout")
    wait_until(
        lambda: "canceled" in runner.log() or "aborted" in runner.log(), "the runner gives the job up", WAIT_SECONDS
    )


def test_an_early_cancel_of_a_job_that_runs(client: gitlab.Gitlab, cell: ServedCell, new_runner: NewRunner) -> None:
    """Its first piece of log comes three seconds after the job: until then it runs, and is not merely handed out.

    This version cannot stop gracefully, so its after_script does not run; what a newer one says and gets is in
    tests/integration/cell/test_current_runner.py.
    """
    runner = new_runner()
    runner.register("early")
    runner.start()
    end = runner.folder / "end"
    project = new_project(client, cell, "early", f"early:\n  script: [sleep 300, touch {end}]\n")
    wait_until(lambda: job_named(project, "early").status == "running", "the runner has the job", WAIT_SECONDS)
    job = project.jobs.get(job_named(project, "early").id)
    assert (job.status, job.started_at is not None) == ("running", True)
    job.cancel()
    canceled = ended(project)["early"]
    assert (canceled.status, canceled.started_at) == ("canceled", job.started_at)
    assert canceled.duration > 0
    why = client.http_get(f"{cell.url}/api/remuda/v1/jobs/{job.id}/why")
    assert isinstance(why, dict)
    assert why["summary"] == "was canceled while it ran"
    wait_until(
        lambda: "canceled" in runner.log() or "aborted" in runner.log(), "the runner gives the job up", WAIT_SECONDS
    )
    assert not end.exists()


def test_tags_pause_and_unregister(client: gitlab.Gitlab, cell: ServedCell, new_runner: NewRunner) -> None:
    """Each of two runners gets only its jobs; a paused one gets none; one that is unregistered is gone."""
    red, blue = new_runner(), new_runner()
    red.register("red", "--tag-list", "red", "--run-untagged=false")
    blue.register("blue", "--tag-list", "blue", "--run-untagged=false")
    named = {runner.description: runner for runner in client.runners_all.list(get_all=True)}
    assert set(named) == {"red", "blue"}
    paused = client.runners.get(named["blue"].id)
    paused.paused = True
    paused.save()
    red.start()
    blue.start()
    text = "".join(f"{name}:\n  tags: [{name}]\n  script: [echo {name}]\n" for name in ("red", "blue"))
    project = new_project(client, cell, "colours", text)
    wait_until(lambda: job_named(project, "red").status == "success", "the red job ends", WAIT_SECONDS)
    assert job_named(project, "blue").status == "pending"
    paused.paused = False
    paused.save()
    jobs = ended(project)
    assert {name: (job.status, job.runner["description"]) for name, job in jobs.items()} == {
        "red": ("success", "red"),
        "blue": ("success", "blue"),
    }
    blue.stop()
    blue.call("unregister", "--config", str(blue.config), "--all-runners")
    left: list[Any] = client.runners_all.list(get_all=True)
    assert [runner.description for runner in left] == ["red"]
    with pytest.raises(gitlab.GitlabGetError):
        client.runners.get(named["blue"].id)


@pytest.mark.timeout(400)
def test_runners_that_share_one_worker_do_not_wait_for_each_other(
    client: gitlab.Gitlab, cell: ServedCell, new_runner: NewRunner
) -> None:
    """With `concurrent = 1` a request that the cell held would keep the two other runners from asking."""
    runner = new_runner(concurrent=1)
    for name in ("first", "second", "third"):
        runner.register(name, "--tag-list", name, "--run-untagged=false")
    runner.start()

    def is_seen(name: str) -> bool:
        return any(one.description == name and one.online for one in client.runners_all.list(get_all=True))

    wait_until(
        lambda: all(is_seen(name) for name in ("first", "second", "third")),
        "all three have asked for jobs",
        WAIT_SECONDS,
    )
    waited = []
    for number in range(3):
        text = f"only:\n  tags: [third]\n  script: [echo {number}]\n"
        project = new_project(client, cell, f"third{number}", text)
        job = ended(project, seconds=120)["only"]
        assert (job.status, job.runner["description"]) == ("success", "third")
        waited.append(job.queued_duration)
    # By the cell's own record from pending to started; one of them may have met a busy machine.
    assert sorted(waited)[1] < 5, f"seconds from pending to started: {waited}"


@pytest.mark.timeout(300)
def test_a_job_of_three_minutes(client: gitlab.Gitlab, cell: ServedCell, new_runner: NewRunner) -> None:
    """Signs of life keep a long job its runner's, far beyond the lease of one minute."""
    runner = new_runner()
    runner.register("patient")
    runner.start()
    project = new_project(client, cell, "long", "long:\n  script: [sleep 180, echo finally]\n")
    jobs = ended(project, seconds=270)
    assert jobs["long"].status == "success"
    assert jobs["long"].duration >= 180
    assert "finally" in trace_of(jobs["long"])
