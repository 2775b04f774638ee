"""The unmodified gitlab-runner 12.7 with its shell executor runs jobs of a cell."""

import io
import os
import re
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gitlab
import pytest
from gitlab.v4.objects import Project
from tests.support.cells.served_cell import ServedCell
from tests.support.runners.gitlab_runner import RealRunner
from tests.support.user_terminal import REMUDA, UserTerminal

from remuda.testing.lab import free_port
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


def wait_for_jobs(project: Project, seconds: float = WAIT_SECONDS) -> dict[str, Any]:
    """Wait until the project's only pipeline has ended. Returns the last attempt of each job by name."""

    def is_over() -> bool:
        [pipeline] = project.pipelines.list(get_all=True)
        return pipeline.status in ("success", "failed", "canceled")

    wait_until(is_over, "the pipeline is over", seconds)
    [pipeline] = project.pipelines.list(get_all=True)
    return {job.name: project.jobs.get(job.id) for job in pipeline.jobs.list(get_all=True)}


def job_named(project: Project, name: str) -> Any:
    """The last attempt of a job of the project's only pipeline."""
    [pipeline] = project.pipelines.list(get_all=True)
    return next(job for job in pipeline.jobs.list(get_all=True) if job.name == name)


def new_project(client: gitlab.Gitlab, cell: ServedCell, name: str, pipeline_file: str) -> Project:
    return client.projects.get(cell.new_project(name, pipeline_file))


def trace_of(job: Any) -> str:
    return bytes(job.trace()).decode()


def test_a_whole_pipeline(client: gitlab.Gitlab, cell: ServedCell, new_runner: NewRunner) -> None:
    """Covers registration, clone, artifacts and dotenv between jobs, masking, after_script, a failure and a retry."""
    runner = new_runner()
    runner.register("whole")
    runner.call("verify", "--config", str(runner.config))
    runner.start()
    project = client.projects.create({"name": "whole"})
    project.variables.create({"key": "SECRET", "value": "long-masked-value", "masked": True})
    project.variables.create({"key": "STATE_FOLDER", "value": str(runner.folder)})
    actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": WHOLE}]
    project.commits.create({"branch": "main", "commit_message": "Add a pipeline", "actions": actions})

    jobs = wait_for_jobs(project)
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
    attempts = [job for job in project.jobs.list(get_all=True) if job.name == "again"]
    assert sorted(job.status for job in attempts) == ["failed", "success"]
    with zipfile.ZipFile(io.BytesIO(jobs["build"].artifacts())) as archive:
        assert archive.read("out/made.txt") == b"made of from the file\n"


def test_a_log_of_five_megabytes(client: gitlab.Gitlab, cell: ServedCell, new_runner: NewRunner) -> None:
    runner = new_runner()
    runner.register("flood", "--output-limit", "16384")
    runner.start()
    line = "x" * 99
    script = f"awk 'BEGIN {{ for (i = 0; i < 52429; i++) print \"{line}\" }}'"
    project = new_project(client, cell, "flood", f"flood:\n  script:\n    - |\n      {script}\n")
    jobs = wait_for_jobs(project)
    assert jobs["flood"].status == "success"
    assert trace_of(jobs["flood"]).count(line + "\n") == 52429


def test_cancel_and_timeout(client: gitlab.Gitlab, cell: ServedCell, new_runner: NewRunner) -> None:
    """A canceled job stops at the runner's next call. A job that exceeds its timeout fails with that reason."""
    runner = new_runner()
    runner.register("stops")
    runner.start()
    project = new_project(
        client,
        cell,
        "stops",
        "endless:\n  script: [echo begun, sleep 300]\nslow:\n  script: [sleep 300]\n  timeout: 5 seconds\n",
    )

    def has_begun() -> bool:
        job = job_named(project, "endless")
        return job.status == "running" and "begun" in trace_of(project.jobs.get(job.id))

    wait_until(has_begun, "the job runs", WAIT_SECONDS)
    project.jobs.get(job_named(project, "endless").id).cancel()
    jobs = wait_for_jobs(project)
    assert jobs["endless"].status == "canceled"
    assert (jobs["slow"].status, jobs["slow"].failure_reason) == ("failed", "job_execution_timeout")
    wait_until(
        lambda: "canceled" in runner.log() or "aborted" in runner.log(), "the runner gives the job up", WAIT_SECONDS
    )


def test_job_is_canceled_before_first_log_piece(client: gitlab.Gitlab, cell: ServedCell, new_runner: NewRunner) -> None:
    """The runner sends the first log piece three seconds after it got the job; until then the job counts as running.

    This version does not support graceful cancel, so after_script does not run. Newer versions are tested in
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
    canceled = wait_for_jobs(project)["early"]
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
    """Each of two runners gets only jobs with its tag, a paused runner gets none, an unregistered one is deleted."""
    red, blue = new_runner(), new_runner()
    red.register("red", "--tag-list", "red", "--run-untagged=false")
    blue.register("blue", "--tag-list", "blue", "--run-untagged=false")
    runners = {runner.description: runner for runner in client.runners_all.list(get_all=True)}
    assert set(runners) == {"red", "blue"}
    paused = client.runners.get(runners["blue"].id)
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
    jobs = wait_for_jobs(project)
    assert {name: (job.status, job.runner["description"]) for name, job in jobs.items()} == {
        "red": ("success", "red"),
        "blue": ("success", "blue"),
    }
    blue.stop()
    blue.call("unregister", "--config", str(blue.config), "--all-runners")
    remaining: list[Any] = client.runners_all.list(get_all=True)
    assert [runner.description for runner in remaining] == ["red"]
    with pytest.raises(gitlab.GitlabGetError):
        client.runners.get(runners["blue"].id)


@pytest.mark.timeout(400)
def test_runners_of_one_worker_never_wait(client: gitlab.Gitlab, cell: ServedCell, new_runner: NewRunner) -> None:
    """With `concurrent = 1`, a long poll of one runner would prevent the two others from requesting jobs."""
    runner = new_runner(concurrent=1)
    for name in ("first", "second", "third"):
        runner.register(name, "--tag-list", name, "--run-untagged=false")
    runner.start()

    def is_online(name: str) -> bool:
        runners = client.runners_all.list(get_all=True)
        return any(runner.description == name and runner.online for runner in runners)

    wait_until(
        lambda: all(is_online(name) for name in ("first", "second", "third")),
        "all three have asked for jobs",
        WAIT_SECONDS,
    )
    waited = []
    for number in range(3):
        text = f"only:\n  tags: [third]\n  script: [echo {number}]\n"
        project = new_project(client, cell, f"third{number}", text)
        job = wait_for_jobs(project, seconds=120)["only"]
        assert (job.status, job.runner["description"]) == ("success", "third")
        waited.append(job.queued_duration)
    # The median: one job may have waited because the machine was busy.
    assert sorted(waited)[1] < 5, f"seconds from pending to started: {waited}"


@pytest.mark.timeout(300)
def test_a_job_of_three_minutes(client: gitlab.Gitlab, cell: ServedCell, new_runner: NewRunner) -> None:
    """The runner's calls renew the lease of one minute, so it keeps a job that takes longer."""
    runner = new_runner()
    runner.register("patient")
    runner.start()
    project = new_project(client, cell, "long", "long:\n  script: [sleep 180, echo finally]\n")
    jobs = wait_for_jobs(project, seconds=270)
    assert jobs["long"].status == "success"
    assert jobs["long"].duration >= 180
    assert "finally" in trace_of(jobs["long"])


def test_signals_and_line_numbers_differ_from_ours(
    client: gitlab.Gitlab, cell: ServedCell, new_runner: NewRunner
) -> None:
    """docs/reference/steps-running.md says what Remuda does instead."""
    runner = new_runner()
    runner.register("signals")
    runner.start()
    file = 'term: {script: [kill -TERM $$, echo the rest]}\nline: {script: ["echo one\\nno_such_command"]}\n'
    jobs = wait_for_jobs(new_project(client, cell, "signals", file))
    assert {job.failure_reason for job in jobs.values()} == {"script_failure"}
    assert "\nthe rest\n" in trace_of(jobs["term"])
    assert "Job failed: signal: terminated" in trace_of(jobs["term"])
    [number] = re.findall(r"bash: line (\d+): no_such_command: command not found", trace_of(jobs["line"]))
    assert int(number) > 2


def test_a_shell_in_a_job_through_the_session_server(
    client: gitlab.Gitlab, cell: ServedCell, new_runner: NewRunner, tmp_path: Path
) -> None:
    runner = new_runner()
    address = f"127.0.0.1:{free_port()}"
    server = f'[session_server]\n  listen_address = "{address}"\n  advertise_address = "{address}"\n'
    runner.config.write_text(runner.config.read_text() + server)
    runner.register("sessions")
    runner.start()
    waits = "touch begun; while [ ! -e go ]; do sleep 0.1; done"
    project = new_project(client, cell, "sessions", f"look:\n  script:\n    - {waits}\n")
    wait_until(lambda: bool(list(runner.folder.glob("work/**/begun"))), "the script runs", WAIT_SECONDS)
    [begun] = runner.folder.glob("work/**/begun")
    job = job_named(project, "look")
    env = dict(os.environ) | {"REMUDA_URL": cell.url, "REMUDA_TOKEN": cell.token, "HOME": str(tmp_path)}
    terminal = UserTerminal("job", "shell", str(job.id), env=env)
    try:
        terminal.type("echo seen $((40 + 2)) in $PWD\n")
        assert "seen 42 in " in terminal.read_until("seen 42 in ")
        terminal.type(f"touch {begun.parent}/go; exit\n")
        assert terminal.wait_for_exit() == 0
    finally:
        terminal.close()
    assert wait_for_jobs(project)["look"].status == "success"
    refused = subprocess.run(
        [*REMUDA, "job", "shell", str(job.id)], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert "is over (success)" in refused.stderr
