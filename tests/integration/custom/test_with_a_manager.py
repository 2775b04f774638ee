"""Jobs from a cell through a manager to a driver; the manager is killed during a stage, and the job continues."""

import os
import sys
from pathlib import Path

from tests.support.runners.custom_driver import Driver

from remuda.testing.client import first_pipeline, new_project, trace_of, wait_for
from remuda.testing.lab import Lab

PIPELINE = """
variables: {GREETING: hello from the pipeline}
build:
  script:
    - echo "$GREETING"; cat job.txt
    - while [ ! -e "$GO" ]; do sleep 0.1; done
    - echo made >made.txt
  after_script: [echo "after $CI_JOB_STATUS"]
  artifacts: {paths: [made.txt]}
use:
  stage: test
  needs: [build]
  script: ['test "$(cat made.txt)" = made']
fails:
  stage: test
  needs: [build]
  script: [exit 9]
"""


def test_a_driver_outlives_the_manager(tmp_path: Path) -> None:
    driver, go = Driver(tmp_path / "driver"), tmp_path / "go"
    driver.write("remuda-agent", f'#!/bin/sh\nexec {sys.executable} -m remuda.steps "$@"\n')
    path = f"{driver.folder}:{os.environ['PATH']}"
    settings = {name: driver.env[name] for name in ("CALLS", "BUILDS", "CACHES")} | {"PATH": path}
    lab = Lab(tmp_path / "lab", settings=settings)
    try:
        lab.start_cell()
        runner = lab.call("POST", "/api/v4/user/runners", {"runner_type": "instance_type", "description": "custom"})
        folder = driver.folder
        lab.config.write_text(
            f'concurrent = 1\ncheck_interval = 1\n[[runners]]\nname = "custom"\nurl = "{lab.url}"\n'
            f'token = "{runner["token"]}"\nexecutor = "custom"\nbuilds_dir = "/nowhere"\nenvironment = ["GO={go}"]\n'
            f'[runners.custom]\nconfig_exec = "{folder}/config"\nprepare_exec = "{folder}/prepare"\n'
            f'run_exec = "{folder}/run"\nrun_args = ["extra"]\ncleanup_exec = "{folder}/cleanup"\n'
        )
        lab.config.chmod(0o600)
        lab.manager.start()
        project = new_project(lab, "driven", PIPELINE, **{"job.txt": "of the repository\n"})
        pipeline = first_pipeline(lab, project)
        lab.wait_until(lambda: "run step_script" in driver.calls, "the driver runs the script")
        lab.manager.kill()
        go.touch()
        lab.manager.start()
        status = wait_for(lab, pipeline)
        jobs = {job.name: job for job in pipeline.jobs.list(get_all=True, include_retried=True)}
        trace = trace_of(project, jobs["build"].id).decode()
        assert {name: job.status for name, job in jobs.items()} == {
            "build": "success",
            "use": "success",
            "fails": "failed",
        }, trace
        assert status == "failed"
        assert jobs["fails"].attributes["failure_reason"] == "script_failure"
        for text in ("hello from the pipeline", "of the repository", "after success", "section_start:"):
            assert text in trace
        build = driver.calls[: driver.calls.index("cleanup") + 1]
        assert build.count("run step_script") == 1
        assert build[-2:] == ["run cleanup_file_variables", "cleanup"]
        assert driver.calls.count("cleanup") == 3
        assert driver.env_of("step_script")["CUSTOM_ENV_GREETING"] == "hello from the pipeline"
    finally:
        lab.close()
