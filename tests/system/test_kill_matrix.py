"""Kills agent, manager or cell during the checkout, the script or the artifact upload of a job.

The job succeeds, and each of its commands runs once. The kill always happens inside the phase, because the phase cannot
end before: during checkout, git waits for a file; the script waits for the same file; during the upload the cell is
stopped by SIGSTOP.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remuda.testing.client import first_pipeline, new_project, trace_of, wait_for
from remuda.testing.lab import Lab

PIPELINE = """
produce:
  stage: build
  script:
    - echo first >> {folder}/commands
    - if [ {phase} != checkout ]; then touch {folder}/reached; while [ ! -e {folder}/go ]; do sleep 0.05; done; fi
    - echo second >> {folder}/commands
    - head -c 3000000 /dev/urandom > made.bin
    - sha256sum made.bin > {folder}/made
  artifacts:
    paths: [made.bin]
consume:
  stage: test
  variables: {{GIT_STRATEGY: none}}
  script:
    - sha256sum made.bin > {folder}/taken
"""
GIT = """#!/bin/sh
case " $* " in *" fetch "*)
  echo fetch >> {folder}/fetches
  if [ {phase} = checkout ] && [ ! -e {folder}/go ]; then
    touch {folder}/reached
    while [ ! -e {folder}/go ]; do sleep 0.05; done
  fi ;;
esac
PATH=${{PATH#*:}} exec git "$@"
"""


def kill_manager(lab: Lab) -> None:
    lab.manager.kill()
    lab.manager.start()


def kill_cell(lab: Lab) -> None:
    lab.cell.kill()
    lab.start_cell()


KILLS: dict[str, Callable[[Lab], None]] = {"agent": Lab.kill_agent, "manager": kill_manager, "cell": kill_cell}


@pytest.mark.parametrize("phase", ["checkout", "script", "upload"])
@pytest.mark.parametrize("victim", list(KILLS))
def test_a_process_is_killed_in_a_phase(tmp_path: Path, phase: str, victim: str) -> None:
    folder = tmp_path / "lab"
    with lab_with_slow_git(tmp_path, phase) as lab:
        project = new_project(lab, "matrix", PIPELINE.format(folder=folder, phase=phase))
        pipeline = first_pipeline(lab, project)
        lab.wait_until((folder / "reached").exists, "the phase is reached")
        if phase == "upload":
            kill_during_upload(lab, folder / "go", KILLS[victim])
        else:
            KILLS[victim](lab)
            (folder / "go").touch()
        status = wait_for(lab, pipeline)
        jobs = {job.name: job for job in pipeline.jobs.list(get_all=True, include_retried=True)}
        trace = trace_of(project, jobs["produce"].id).decode(errors="replace")
    assert status == "success", trace
    assert sorted(jobs) == ["consume", "produce"], "a job was retried"
    assert (folder / "commands").read_text() == "first\nsecond\n", "each command of the script must run exactly once"
    assert (folder / "fetches").read_text() == "fetch\n", "the sources must be fetched exactly once"
    assert (folder / "taken").read_text() == (folder / "made").read_text()


@contextmanager
def lab_with_slow_git(tmp_path: Path, phase: str) -> Iterator[Lab]:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text(GIT.format(folder=tmp_path / "lab", phase=phase))
    (programs / "git").chmod(0o755)
    with Lab(tmp_path / "lab") as lab:
        # Only for the manager and its children, because the cell runs git, too.
        lab.manager.stop()
        lab.kill_agent()
        path = f"{programs}:{lab.manager.environment['PATH']}"
        lab.manager.environment = lab.manager.environment | {"PATH": path}
        lab.manager.start()
        yield lab


def kill_during_upload(lab: Lab, go: Path, kill: Callable[[Lab], None]) -> None:
    assert lab.cell.process is not None
    cell = lab.cell.process
    os.kill(cell.pid, signal.SIGSTOP)
    go.touch()
    logs = lab.manager_jobs / "agent" / "jobs"
    lab.wait_until(
        lambda: any(b":upload_artifacts" in log.read_bytes() for log in logs.glob("*/log")), "the upload has begun"
    )
    kill(lab)
    if cell.poll() is None:
        os.kill(cell.pid, signal.SIGCONT)
