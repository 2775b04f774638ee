"""Kills manager, cell and agent while a job runs, also at every kill point: the job succeeds and its script runs once.

The job prints lines slowly enough to be killed meanwhile, and records its starts in a file outside of its working
directory. The log is compared byte for byte with the expected output.
"""

from pathlib import Path

import pytest

from remuda.lib.killpoints import POINTS
from remuda.testing.client import first_pipeline, new_project, script_output, trace_of, wait_for
from remuda.testing.lab import Lab

LINES = 300
PIPELINE = """
produce:
  stage: build
  script:
    - {command}
  artifacts:
    paths: [made.txt]
consume:
  stage: test
  script:
    - test "$(cat made.txt)" = made
"""
SCRIPT = """#!/bin/sh
echo start >> "$1"
i=0
while [ $i -lt {lines} ]; do
  echo "line $i of the job, with enough text to fill more than one write of the log"
  i=$((i + 1))
  [ $((i % 10)) -ne 0 ] || sleep 0.05
done
printf made > made.txt
printf 'the last line has no end'
"""


def expected_output(command: str) -> bytes:
    lines = [f"line {i} of the job, with enough text to fill more than one write of the log\n" for i in range(LINES)]
    return f"\x1b[32;1m$ {command}\x1b[0;m\n{''.join(lines)}the last line has no end\n".encode()


class SlowJob:
    """A pipeline whose first job takes long enough for kills while it runs."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.starts = lab.folder / "starts"
        self.command = f"sh ./job.sh {self.starts}"
        self.project = new_project(
            lab,
            "slow",
            PIPELINE.format(command=self.command),
            **{"job.sh": SCRIPT.format(lines=LINES)},
        )
        self.pipeline = first_pipeline(lab, self.project)

    def wait_until_it_runs(self) -> None:
        self.lab.wait_until(self.starts.exists, "the script runs")

    def check(self) -> None:
        status = wait_for(self.lab, self.pipeline)
        jobs = {job.name: job for job in self.pipeline.jobs.list(get_all=True, include_retried=True)}
        trace = trace_of(self.project, jobs["produce"].id)
        assert status == "success", trace.decode(errors="replace")
        assert self.starts.read_text() == "start\n", "the script ran more than once"
        assert sorted(jobs) == ["consume", "produce"]
        assert script_output(trace) == expected_output(self.command)
        assert trace.endswith(b"Job succeeded\n")


def test_the_manager_is_killed_and_restarted(lab: Lab) -> None:
    job = SlowJob(lab)
    job.wait_until_it_runs()
    lab.manager.kill()
    lab.manager.start()
    job.check()


def test_the_cell_is_killed_and_restarted(lab: Lab) -> None:
    job = SlowJob(lab)
    job.wait_until_it_runs()
    lab.cell.kill()
    lab.start_cell()
    job.check()


def test_the_agent_is_killed_and_restarted(lab: Lab) -> None:
    job = SlowJob(lab)
    job.wait_until_it_runs()
    killed = lab.agent_pids()
    assert killed
    lab.kill_agent()
    job.check()
    assert not set(killed) & set(lab.agent_pids())


def test_everything_is_killed_at_once_and_restarted(lab: Lab) -> None:
    job = SlowJob(lab)
    job.wait_until_it_runs()
    lab.manager.kill()
    lab.kill_agent()
    lab.cell.kill()
    lab.start_cell()
    lab.manager.start()
    job.check()


def test_everything_is_killed_repeatedly(lab: Lab) -> None:
    job = SlowJob(lab)
    job.wait_until_it_runs()
    for _ in range(4):
        lab.manager.kill()
        lab.kill_agent()
        lab.cell.kill()
        lab.start_cell()
        lab.manager.start()
        lab.wait_until(lambda: bool(lab.agent_pids()), "the manager starts an agent")
    job.check()


def test_the_agent_is_killed_while_the_manager_is_down(lab: Lab) -> None:
    job = SlowJob(lab)
    job.wait_until_it_runs()
    lab.manager.kill()
    lab.kill_agent()
    lab.manager.start()
    job.check()


@pytest.mark.parametrize("point", list(POINTS))
def test_a_process_kills_itself_at_a_kill_point(tmp_path: Path, point: str) -> None:
    with Lab(tmp_path / "lab", kill_point=point) as lab:
        lab.supervise()
        job = SlowJob(lab)
        job.check()
        assert lab.mark.exists(), f"no process reached {point}"
