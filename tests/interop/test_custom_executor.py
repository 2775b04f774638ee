"""One driver of the custom executor under the unmodified gitlab-runner 12.7 and under Remuda's manager.

Both call the same programs in the same order, with the same meaning of exit codes, but for stages with nothing to do,
which later versions of gitlab-runner leave out, too. Remuda's scripts use the real gitlab-runner for caches and
artifacts where the job runs.
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
NEWER = {"cleanup_file_variables": "", "build_script": "step_script"}
"""Stages that gitlab-runner 12.7 did not have, or called otherwise."""
MAY_BE_EMPTY = ("restore_cache", "download_artifacts", "after_script", "archive_cache", "upload_artifacts_on_success")


@dataclass
class Seen:
    """What came of a pipeline."""

    calls: list[str]
    jobs: dict[str, Any]
    traces: dict[str, str]


def run(tmp_path: Path, start: Callable[[Lab, str, Path], Callable[[], None]]) -> Seen:
    """A pipeline on a cell of its own; `start` begins whatever takes the jobs, and gives how to end it."""
    driver = Driver(tmp_path / "driver")
    (driver.folder / "gitlab-runner").symlink_to(PROGRAM)
    settings = {name: driver.env[name] for name in ("CALLS", "BUILDS", "CACHES")}
    settings["PATH"] = f"{driver.folder}:{os.environ['PATH']}"
    lab = Lab(tmp_path / "lab", settings=settings)
    end: Callable[[], None] = lambda: None  # noqa: E731
    try:
        lab.start_cell()
        made = lab.call("POST", "/api/v4/user/runners", {"runner_type": "instance_type", "description": "custom"})
        folder = driver.folder
        lab.config.write_text(
            f'concurrent = 1\ncheck_interval = 1\n[[runners]]\nname = "custom"\nurl = "{lab.url}"\n'
            f'token = "{made["token"]}"\nexecutor = "custom"\nbuilds_dir = "/nowhere"\ncache_dir = "/nowhere"\n'
            f'[runners.custom]\nconfig_exec = "{folder}/config"\nprepare_exec = "{folder}/prepare"\n'
            f'run_exec = "{folder}/run"\nrun_args = ["extra"]\ncleanup_exec = "{folder}/cleanup"\n'
        )
        end = start(lab, made["token"], tmp_path)
        project = new_project(lab, "driven", PIPELINE, **{"job.txt": "of the repository\n"})
        pipeline = first_pipeline(lab, project)
        wait_for(lab, pipeline, seconds=120)
        jobs = {job.name: job for job in pipeline.jobs.list(get_all=True)}
        traces = {name: trace_of(project, job.id).decode(errors="replace") for name, job in jobs.items()}
        return Seen(driver.calls, jobs, traces)
    finally:
        end()
        lab.close()


def real_runner(lab: Lab, _token: str, folder: Path) -> Callable[[], None]:
    work = folder / "work"
    work.mkdir()
    command = [str(PROGRAM), "run", "--config", str(lab.config), "--working-directory", str(work)]
    log = (folder / "runner.log").open("wb")
    process = subprocess.Popen(
        command, env=lab.manager.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )

    def end() -> None:
        os.killpg(process.pid, signal.SIGKILL)  # its jobs are over, and it would wait for an answer to its last request
        process.wait()
        log.close()

    return end


def our_manager(lab: Lab, _token: str, _folder: Path) -> Callable[[], None]:
    lab.manager.start()
    return lambda: None


def jobs_of(calls: list[str]) -> list[tuple[str, ...]]:
    """What was called for each job, in words of today, in an order that does not depend on the jobs'."""
    jobs: list[list[str]] = [[]]
    for call in calls:
        name = call.partition(" ")[0] if call.startswith("prepare") else call.removeprefix("run ")
        name = NEWER.get(name, name)
        if name:
            jobs[-1].append(name)
        if name == "cleanup":
            jobs.append([])
    return sorted(tuple(job) for job in jobs if job)


@pytest.mark.timeout(300)
def test_both_call_a_driver_alike(tmp_path: Path) -> None:
    theirs = run(tmp_path / "theirs", real_runner)
    ours = run(tmp_path / "ours", our_manager)
    for seen in (theirs, ours):
        found = {name: job.status for name, job in seen.jobs.items()}
        assert found == {"build": "success", "use": "success", "fails": "failed"}, seen.traces
    called = jobs_of(theirs.calls)
    for job in jobs_of(ours.calls):
        assert any(job == tuple(one for one in other if one in job or one not in MAY_BE_EMPTY) for other in called), (
            job,
            called,
        )
    assert "cold" in ours.traces["build"]
    assert "Uploading artifacts" in ours.traces["build"]
    assert "Missing" not in "".join(ours.traces.values())
