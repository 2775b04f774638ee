"""The cell is down for some seconds while a job fetches sources or uploads artifacts; the job waits and succeeds.

The test kills the cell when a file shows that the job has reached its script, or git the fetch; both then wait for
another file. So the tests do not depend on the speed of the machine.
"""

import time
from pathlib import Path

from remuda.testing.client import first_pipeline, new_project, trace_of, wait_for
from remuda.testing.lab import Lab

DOWN_SECONDS = 8.0
"""Longer than the retries for errors of a server that can be reached."""
PIPELINE = """
produce:
  stage: build
  script:
    - echo start >> {folder}/starts
    - while [ ! -e {folder}/go ]; do sleep 0.05; done
    - printf made > made.txt
  artifacts:
    paths: [made.txt]
consume:
  stage: test
  script:
    - test "$(cat made.txt)" = made
"""
SLOW_GIT = """#!/bin/sh
if [ ! -e {folder}/go ]; then
  touch {folder}/fetching
  while [ ! -e {folder}/go ]; do sleep 0.05; done
fi
PATH=${{PATH#*:}} exec git "$@"
"""


def interrupt_cell(lab: Lab, go: Path) -> None:
    """Kill the cell, let the job continue, and start the cell again after DOWN_SECONDS."""
    lab.cell.kill()
    go.touch()
    time.sleep(DOWN_SECONDS)
    lab.start_cell()


def run_with_outage(lab: Lab, name: str) -> None:
    """Run the pipeline with an outage of the cell while `name`, "upload" or "fetch", happens."""
    project = new_project(lab, name, PIPELINE.format(folder=lab.folder))
    pipeline = first_pipeline(lab, project)
    lab.wait_until(
        (lab.folder / "fetching" if name == "fetch" else lab.folder / "starts").exists, "the job has reached its phase"
    )
    interrupt_cell(lab, lab.folder / "go")
    status = wait_for(lab, pipeline)
    jobs = {job.name: job for job in pipeline.jobs.list(get_all=True, include_retried=True)}
    trace = trace_of(project, jobs["produce"].id).decode(errors="replace")
    assert status == "success", trace
    assert sorted(jobs) == ["consume", "produce"]
    assert (lab.folder / "starts").read_text() == "start\n", "the script ran more than once"
    assert "the server cannot be reached" in trace
    assert "trying again for up to 10 minutes" in trace


def test_the_cell_is_down_during_an_artifact_upload(lab: Lab) -> None:
    run_with_outage(lab, "upload")


def test_the_cell_is_down_during_a_fetch(tmp_path: Path) -> None:
    folder, programs = tmp_path / "lab", tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text(SLOW_GIT.format(folder=folder))
    (programs / "git").chmod(0o755)
    with Lab(folder) as lab:
        # Only for the manager and its children, because the cell runs git, too.
        path = f"{programs}:{lab.manager.environment['PATH']}"
        lab.manager.stop()
        lab.manager.environment = lab.manager.environment | {"PATH": path}
        lab.manager.start()
        run_with_outage(lab, "fetch")
