"""Runs two hundred jobs, twenty at a time: no job is lost or started twice, and every trace is correct to the byte."""

from collections import Counter
from pathlib import Path

from remuda.testing.client import first_pipeline, new_project, script_output, trace_of, wait_for
from remuda.testing.lab import Lab

JOBS = 200
COUNT = "echo $CI_NODE_INDEX >> {starts}"
PRINT = 'i=0; while [ $i -lt 50 ]; do echo "$CI_NODE_INDEX:$i"; i=$((i+1)); done'
PIPELINE = f"""
many:
  parallel: {JOBS}
  variables:
    GIT_STRATEGY: none
  script:
    - {COUNT}
    - {PRINT}
"""


def expected_output(index: str, starts: Path) -> bytes:
    commands = [COUNT.format(starts=starts), PRINT]
    echoes = [f"\x1b[32;1m$ {command}\x1b[0;m\n" for command in commands]
    return "".join([*echoes, *(f"{index}:{i}\n" for i in range(50))]).encode()


def test_two_hundred_jobs(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    with Lab(tmp_path / "lab", concurrent=20) as lab:
        project = new_project(lab, "many", PIPELINE.replace("{starts}", str(starts)))
        pipeline = first_pipeline(lab, project)
        assert wait_for(lab, pipeline, 240) == "success"
        jobs = pipeline.jobs.list(get_all=True, include_retried=True)
        assert len(jobs) == JOBS
        assert Counter(starts.read_text().split()) == Counter({str(n): 1 for n in range(1, JOBS + 1)})
        for job in jobs:
            index = job.name.split()[1].split("/")[0]
            assert script_output(trace_of(project, job.id)) == expected_output(index, starts), job.name
