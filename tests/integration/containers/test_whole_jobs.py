"""Jobs with image and services: from the pipeline file through a cell, a manager and its agent to a real engine."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.support.cells.served_cell import ServedCell
from tests.support.runners.manager_harness import ManagerHarness
from tests.support.servers.docker_engine import BUSYBOX, DEBIAN, DockerEngine

from remuda.testing.waiting import wait_until

PIPELINE = f"""
image: {BUSYBOX}
variables: {{GREETING: good morning}}
whole:
  services:
    - name: {BUSYBOX}
      alias: web
      entrypoint: [sh, -c]
      command: ['echo "$GREETING"; while :; do nc -l -p 8000 -e echo hello; done']
      variables: {{HEALTHCHECK_TCP_PORT: "8000"}}
  cache: {{key: k, paths: [kept]}}
  script:
    - cat file.txt; test ! -e /etc/debian_version
    - mkdir -p out kept; nc web 8000 | tee out/answer
    - test "$PWD" = "$CI_PROJECT_DIR"
  after_script:
    - echo "after in $CI_JOB_IMAGE, $CI_JOB_STATUS"
  artifacts: {{paths: [out]}}
debian:
  image: {DEBIAN}
  variables: {{LD_PRELOAD: /nowhere/evil.so, HOME: $CI_PROJECT_DIR}}
  script:
    - echo "in ${{BASH_VERSION%%.*}} with $LD_PRELOAD"
    - exit 75
"""
LONG = f"""
job:
  image: {BUSYBOX}
  services: [{{name: {BUSYBOX}, alias: db, command: [sleep, "1000"]}}]
  script: [echo begun, touch up, sleep 1000]
  after_script: [echo after]
"""


@pytest.fixture
async def new_harness(tmp_path: Path, cell: ServedCell) -> AsyncIterator[Callable[[DockerEngine], ManagerHarness]]:
    """Create a manager whose jobs run in containers of the given engine."""
    harnesses: list[ManagerHarness] = []

    def build(engine: DockerEngine) -> ManagerHarness:
        harness = ManagerHarness(tmp_path, cell)
        docker = f'[runners.docker]\nhost = "{engine.host}"\npull_policy = "never"\n'
        harness.write_config(concurrent=2, executor="docker", extra=docker)
        harnesses.append(harness)
        return harness

    yield build
    for harness in harnesses:
        await harness.close()


async def test_a_container_job_with_a_service(
    engine: DockerEngine, cell: ServedCell, new_harness: Callable[[DockerEngine], ManagerHarness]
) -> None:
    cell.new_project("app", PIPELINE, **{"file.txt": "text\n"})
    async with new_harness(engine).manager():
        jobs = await cell.wait_for_jobs()
    whole, debian = jobs["whole"], jobs["debian"]
    assert whole["status"] == "success", whole["log"]
    paths = [path for path in whole["steps"] if not path.endswith(("open", "close"))]
    assert paths == [
        "/get_sources",
        "/restore_cache",
        "/service_web",
        "/container/step_script",
        "/container/after_script",
        "/container",
        "/archive_cache",
        "/upload_artifacts",
        "/stop_services",
    ]
    log = whole["log"]
    assert (
        log.index("Checking out") < log.index("is ready after") < log.index("hello") < log.index("Uploading artifacts")
    )
    assert f"after in {BUSYBOX}, success" in log
    assert "Last log lines of the service web" in log
    assert "good morning" in log
    assert whole["steps"]["/service_web"]["outputs"]["healthy"] is True
    assert whole["steps"]["/container"]["outputs"]["image"] == BUSYBOX
    assert "archive" in {artifact["file_type"] for artifact in whole["artifacts"]}
    # Exit code 75 counts as the script's own, and the job's variables do not change the runner's own steps.
    assert (debian["status"], debian["failure_reason"]) == ("failed", "script_failure")
    assert "in 5 with /nowhere/evil.so" in debian["log"]
    assert "cannot be preloaded" not in debian["log"][: debian["log"].index(":container")]
    assert (engine.containers(), engine.networks()) == ([], [])


@pytest.mark.long
async def test_killing_the_engine_ends_the_job_clearly_and_leaves_no_container(
    own_engine: DockerEngine,
    cell: ServedCell,
    new_harness: Callable[[DockerEngine], ManagerHarness],
) -> None:
    cell.new_project("app", LONG)
    harness = new_harness(own_engine)
    async with harness.manager():
        await asyncio.to_thread(wait_until, lambda: list(harness.jobs.rglob("up")), "the job runs", 60)
        own_engine.kill()
        job = (await cell.wait_for_jobs())["job"]
        assert (job["status"], job["failure_reason"]) == ("failed", "runner_system_failure"), job["log"]
        assert "the container engine at unix:///" in job["log"]
        assert "The command was running at that time" in job["log"]
        await asyncio.to_thread(wait_until, lambda: own_engine.container_pids() == [])
        own_engine.start()
        response = cell.api("POST", "/projects/1/pipeline?ref=main")
        assert response.status == 201
        await asyncio.to_thread(wait_until, lambda: len(own_engine.containers()) == 2, "two containers", 60)
        assert cell.api("POST", f"/projects/1/pipelines/{response.json()['id']}/cancel").status in (200, 201)
        second_job = (await cell.wait_for_jobs(2))["job"]
    assert second_job["status"] == "canceled"
    await asyncio.to_thread(wait_until, lambda: (own_engine.containers(), own_engine.networks()) == ([], []))
