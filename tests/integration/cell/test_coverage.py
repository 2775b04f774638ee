"""The coverage of jobs and pipelines in the API, read from the log that a runner sent."""

from tests.support.cells.served_cell import ScriptedRunner, ServedCell

PIPELINE = """
unit: {script: [test], coverage: '/TOTAL.*\\s(\\d+)%/'}
integration: {script: [test], coverage: '/TOTAL.*\\s(\\d+)%/'}
lint: {script: [lint]}
"""


def test_jobs_and_their_pipeline_have_a_coverage(cell: ServedCell, runner: ScriptedRunner) -> None:
    project = cell.new_project("app", PIPELINE)
    pipeline = cell.until_pipelines(1)[0]["id"]
    for percent in (80, 71, 0):
        job = runner.take()
        runner.patch(job, 0, f"\x1b[1mTOTAL\x1b[0m 100 20 {percent}%\n".encode())
        for _ in range(2):
            assert runner.put(job, "success").status == 200
    jobs = {job["name"]: job["coverage"] for job in cell.api("GET", f"/projects/{project}/jobs").json()}
    assert sorted(value for value in jobs.values() if value is not None) == [71.0, 80.0]
    assert jobs["lint"] is None
    assert cell.api("GET", f"/projects/{project}/pipelines/{pipeline}").json()["coverage"] == "75.50"
