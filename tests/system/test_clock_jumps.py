"""The wall clock of all processes jumps by two hours, forward or back, while a job runs: the job goes on and succeeds.

libfaketime changes the wall clock of the real processes, but neither boot time nor monotonic time.
"""

from pathlib import Path

import pytest

from remuda.testing.client import first_pipeline, new_project, trace_of, wait_for
from remuda.testing.lab import Lab

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
PIPELINE = """
long:
  timeout: 1h
  script:
    - i=0; while [ ! -e {folder}/enough ]; do i=$((i+1)); echo "line $i"; sleep 0.2; done
    - echo "the end of it"
"""

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is missing; install the package faketime"),
]


@pytest.mark.parametrize("jump", ["+2h", "-2h"])
def test_a_job_goes_on_when_the_clock_jumps(tmp_path: Path, jump: str) -> None:
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    settings = {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_SKIP_CMDS": "git",
        "REMUDA_LEASE_SECONDS": "4",
        "REMUDA_SILENT_SECONDS": "120",
        "REMUDA_OVERTIME_SECONDS": "2",
    }
    with Lab(tmp_path / "lab", settings=settings) as lab:
        project = new_project(lab, "app", PIPELINE.format(folder=tmp_path))
        pipeline = first_pipeline(lab, project)
        lab.wait_until(lambda: pipeline.jobs.list()[0].status == "running", "the job runs")
        job = pipeline.jobs.list()[0]
        lab.wait_until(lambda: b"line 5" in trace_of(project, job.id), "the job prints lines")
        offset.write_text(f"{jump}\n")
        before = trace_of(project, job.id).count(b"line ")
        # The cell checks timeouts every four seconds, the agent with every line.
        lab.wait_until(
            lambda: trace_of(project, job.id).count(b"line ") > before + 60 or is_over(lab, project, job.id),
            "the job goes on",
            120,
        )
        assert not is_over(lab, project, job.id), lab.cell.tail()
        assert "wall clock jumped" in lab.cell.tail(100_000)
        (tmp_path / "enough").touch()
        assert wait_for(lab, pipeline) == "success"
        assert b"the end of it" in trace_of(project, job.id)
        again = project.pipelines.create({"ref": "main"})
        assert wait_for(lab, again) == "success"


def is_over(lab: Lab, project: object, job_id: int) -> bool:
    job = lab.call("GET", f"/api/v4/projects/{project.id}/jobs/{job_id}")  # type: ignore[attr-defined]
    return job["status"] not in ("running", "pending")
