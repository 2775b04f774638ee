"""The cell is away for some seconds while a job needs it, and the job waits instead of failing.

A file that the script waits for, and one that it makes, say when the cell may die; a git that waits the same way holds
back the fetch. Nothing here depends on how fast the machine is.
"""

import time
from pathlib import Path

from remuda.testing.client import first_pipeline, new_project, trace_of, wait_for
from remuda.testing.lab import Lab

AWAY_SECONDS = 8.0
"""Longer than the few tries that a server gets which is there."""
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


def stay_away(lab: Lab, go: Path) -> None:
    """Kill the cell, let the job go on, start the cell again when the job has met its absence for long enough."""
    lab.cell.kill()
    go.touch()
    time.sleep(AWAY_SECONDS)
    lab.start_cell()


def check(lab: Lab, name: str) -> None:
    project = new_project(lab, name, PIPELINE.format(folder=lab.folder))
    pipeline = first_pipeline(lab, project)
    lab.wait_until((lab.folder / "fetching" if name == "fetch" else lab.folder / "starts").exists, "the job is there")
    stay_away(lab, lab.folder / "go")
    status = wait_for(lab, pipeline)
    jobs = {job.name: job for job in pipeline.jobs.list(get_all=True, include_retried=True)}
    trace = trace_of(project, jobs["produce"].id).decode(errors="replace")
    assert status == "success", trace
    assert sorted(jobs) == ["consume", "produce"]
    assert (lab.folder / "starts").read_text() == "start\n", "the script ran more than once"
    assert "the server cannot be reached" in trace
    assert "trying again for up to 10 minutes" in trace


def test_the_cell_is_away_while_artifacts_go_up(lab: Lab) -> None:
    check(lab, "upload")


def test_the_cell_is_away_while_sources_come_down(tmp_path: Path) -> None:
    folder, programs = tmp_path / "lab", tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text(SLOW_GIT.format(folder=folder))
    (programs / "git").chmod(0o755)
    with Lab(folder) as lab:
        # Only for what the manager starts: the cell runs git too.
        path = f"{programs}:{lab.manager.environment['PATH']}"
        lab.manager.stop()
        lab.manager.environment = lab.manager.environment | {"PATH": path}
        lab.manager.start()
        check(lab, "fetch")
