"""One driver of the custom executor under the unmodified gitlab-runner 12.7 and under Remuda's manager.

Both call the same programs in the same order and interpret exit codes in the same way. Remuda omits stages that have
nothing to do, as later versions of gitlab-runner do. Where the job runs, Remuda's scripts use the real gitlab-runner
for caches and artifacts.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.runners.custom_driver import Driver

from remuda.testing.client import first_pipeline, new_project, trace_of, wait_for
from remuda.testing.lab import Lab

PROGRAM = Path(__file__).parents[2] / "build/interop/gitlab-runner"
PIPELINE = """
stages: [build, test]
build:
  stage: build
  script: ['mkdir -p kept; test -e kept/a && echo warm || echo cold; touch kept/a; echo made >out']
  after_script: [echo after]
  cache: {key: k, paths: [kept/]}
  artifacts: {paths: [out]}
use:
  stage: test
  script: ['test "$(cat out)" = made; test -e kept/a']
  cache: {key: k, paths: [kept/], policy: pull}
fails:
  stage: test
  script: [exit 9]
  allow_failure: true
  artifacts: {paths: [out], when: always}
"""
PRESENT_NAMES = {"cleanup_file_variables": "", "build_script": "step_script"}
"""Stages that gitlab-runner 12.7 named differently, by that name; empty: a stage that it did not have, ignored."""
MAY_BE_EMPTY = ("restore_cache", "download_artifacts", "after_script", "archive_cache", "upload_artifacts_on_success")


@dataclass
class PipelineResult:
    """Driver calls, jobs and traces of a pipeline that has ended."""

    calls: list[str]
    jobs: dict[str, Any]
    traces: dict[str, str]


def run_pipeline(tmp_path: Path, start: Callable[[Lab, Path], Callable[[], None]]) -> PipelineResult:
    """Run the pipeline on a new cell. `start` starts the runner and returns a function that stops it."""
    driver = Driver(tmp_path / "driver")
    (driver.folder / "gitlab-runner").symlink_to(PROGRAM)
    settings = {name: driver.env[name] for name in ("CALLS", "BUILDS", "CACHES")}
    settings["PATH"] = f"{driver.folder}:{os.environ['PATH']}"
    lab = Lab(tmp_path / "lab", settings=settings)
    stop: Callable[[], None] = do_nothing
    try:
        lab.start_cell()
        runner = lab.call("POST", "/api/v4/user/runners", {"runner_type": "instance_type", "description": "custom"})
        folder = driver.folder
        lab.config.write_text(
            f'concurrent = 1\ncheck_interval = 1\n[[runners]]\nname = "custom"\nurl = "{lab.url}"\n'
            f'token = "{runner["token"]}"\nexecutor = "custom"\nbuilds_dir = "/nowhere"\ncache_dir = "/nowhere"\n'
            f'[runners.custom]\nconfig_exec = "{folder}/config"\nprepare_exec = "{folder}/prepare"\n'
            f'run_exec = "{folder}/run"\nrun_args = ["extra"]\ncleanup_exec = "{folder}/cleanup"\n'
        )
        stop = start(lab, tmp_path)
        project = new_project(lab, "driven", PIPELINE, **{"job.txt": "of the repository\n"})
        pipeline = first_pipeline(lab, project)
        wait_for(lab, pipeline, seconds=120)
        jobs = {job.name: job for job in pipeline.jobs.list(get_all=True)}
        traces = {name: trace_of(project, job.id).decode(errors="replace") for name, job in jobs.items()}
        return PipelineResult(driver.calls, jobs, traces)
    finally:
        stop()
        lab.close()


def do_nothing() -> None:
    pass


def start_gitlab_runner(lab: Lab, folder: Path) -> Callable[[], None]:
    work = folder / "work"
    work.mkdir()
    command = [str(PROGRAM), "run", "--config", str(lab.config), "--working-directory", str(work)]
    log = (folder / "runner.log").open("wb")
    process = subprocess.Popen(
        command, env=lab.manager.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )

    def stop() -> None:
        # Its jobs are over. After SIGTERM it would wait for the answer to its last job request.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        log.close()

    return stop


def start_manager(lab: Lab, _folder: Path) -> Callable[[], None]:
    lab.manager.start()
    return do_nothing


def jobs_of(calls: list[str]) -> list[tuple[str, ...]]:
    """Driver calls of each job, by the present names of stages; sorted, because the order of jobs may differ."""
    jobs: list[list[str]] = [[]]
    for call in calls:
        name = call.partition(" ")[0] if call.startswith("prepare") else call.removeprefix("run ")
        name = PRESENT_NAMES.get(name, name)
        if name:
            jobs[-1].append(name)
        if name == "cleanup":
            jobs.append([])
    return sorted(tuple(job) for job in jobs if job)


def without_empty_stages(their_job: tuple[str, ...], our_job: tuple[str, ...]) -> tuple[str, ...]:
    """The calls of gitlab-runner without stages that may have nothing to do and that Remuda did not run."""
    return tuple(stage for stage in their_job if stage in our_job or stage not in MAY_BE_EMPTY)


@pytest.mark.timeout(300)
def test_both_runners_call_a_driver_alike(tmp_path: Path) -> None:
    theirs = run_pipeline(tmp_path / "theirs", start_gitlab_runner)
    ours = run_pipeline(tmp_path / "ours", start_manager)
    for result in (theirs, ours):
        statuses = {name: job.status for name, job in result.jobs.items()}
        assert statuses == {"build": "success", "use": "success", "fails": "failed"}, result.traces
    their_jobs = jobs_of(theirs.calls)
    for job in jobs_of(ours.calls):
        assert any(job == without_empty_stages(their_job, job) for their_job in their_jobs), (job, their_jobs)
    assert "cold" in ours.traces["build"]
    assert "Uploading artifacts" in ours.traces["build"]
    assert "Missing" not in "".join(ours.traces.values())
