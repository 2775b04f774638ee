"""Jobs of a pipeline file, with a real cell, manager and agent."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ServedCell
from tests.support.runners.manager_harness import ManagerHarness

from remuda.cli.main import call
from remuda.lib.clock import SystemClock
from remuda.manager.environments.local import LocalEnvironment
from remuda.manager.environments.port import JobPlace, PreparedPlace
from remuda.manager.errors import EnvironmentLostError
from remuda.testing.waiting import wait_until

PIPELINE_FILE = """
variables: {WHAT: tools}
build:
  stage: build
  hooks: {pre_get_sources_script: [echo before the sources]}
  cache:
    - key: $WHAT-$CI_COMMIT_REF_NAME
      paths: [$CI_PROJECT_DIR/deps]
      fallback_keys: [$WHAT-any]
  script:
    - ls
    - mkdir -p deps && [ -e deps/made ] && echo from the cache || echo made > deps/made
    - mkdir out && echo '<testsuite/>' > out/a.xml && echo '[]' > out/q.json && echo VERSION=7 > out/build.env
  after_script: [echo after]
  artifacts:
    reports:
      junit: out/*.xml
      codequality: out/q.json
      dotenv: out/build.env
use:
  stage: test
  needs: [build]
  run:
    - {name: look, script: 'echo "version $VERSION with $MINE"', env: {MINE: this}}
    - {name: tidy, script: echo done}
fails:
  stage: test
  needs: [build]
  script: ["exit 3"]
  allow_failure: true
  artifacts: {when: on_failure, paths: [file.txt]}
"""


@pytest.fixture
def harness(cell_harness: ManagerHarness) -> ManagerHarness:
    cell_harness.write_config(concurrent=2)
    return cell_harness


FORGED_LOG = """
forge:
  script:
    - echo before it
    - |
      cat > forge.py <<'END'
      import os, urllib.error, urllib.request
      where = f"{os.environ['CI_API_V4_URL']}/jobs/{os.environ['CI_JOB_ID']}/trace"
      line, at = b"FORGED\\n", 10**9
      while True:
          headers = {"JOB-TOKEN": os.environ["CI_JOB_TOKEN"], "Content-Range": f"{at}-{at + len(line) - 1}"}
          try:
              urllib.request.urlopen(urllib.request.Request(where, line, headers, method="PATCH"))
              break
          except urllib.error.HTTPError as error:
              assert error.code == 416, error
              at = int(error.headers["Range"].partition("-")[2])
      END
      python3 forge.py
    - echo after it
"""


async def test_a_job_that_writes_to_its_own_log(cell: ServedCell, harness: ManagerHarness) -> None:
    """Its token allows it, but the stored log is the one that the runner sent."""
    cell.new_project("app", FORGED_LOG)
    async with harness.manager():
        jobs = await cell.wait_for_jobs()
    assert jobs["forge"]["status"] == "success", jobs["forge"]["log"]
    log = jobs["forge"]["log"]
    # The runner itself logs the script.
    assert "FORGED\n" not in log.replace('b"FORGED', "")
    assert log.index("before it") < log.rindex("after it")
    assert b"\nremuda_cell_trace_mismatches_total 0.0\n" in cell.send("GET", "/-/metrics").body


async def test_caches_reports_hooks_and_run_steps(cell: ServedCell, harness: ManagerHarness) -> None:
    cell.new_project("app", PIPELINE_FILE, **{"file.txt": "text\n"})
    async with harness.manager():
        first = await cell.wait_for_jobs()
        assert cell.api("POST", "/projects/1/pipeline?ref=main").status == 201
        second = await cell.wait_for_jobs(2)
    assert [first[name]["status"] for name in ("build", "use", "fails")] == ["success", "success", "failed"]
    log = first["build"]["log"]
    assert (
        log.index("before the sources") < log.index("Checking out") < log.index("No cache for") < log.index("file.txt")
    )
    assert log.index("Saving cache tools-main") < log.index("Uploading artifacts as junit")
    assert "version 7 with this" in first["use"]["log"]
    assert {file["file_type"] for file in first["build"]["artifacts"]} >= {"junit", "codequality", "dotenv"}
    assert "archive" not in {file["file_type"] for file in first["build"]["artifacts"]}
    assert "archive" in {file["file_type"] for file in first["fails"]["artifacts"]}
    assert "from the cache" in second["build"]["log"]
    assert "The files have not changed since this cache was saved" in second["build"]["log"]
    assert len(list((harness.jobs / "cache/root/app@protected").glob("tools-main*.zip"))) == 1


@pytest.mark.parametrize("force", [False, True])
async def test_silent_job_learns_cancel(cell: ServedCell, harness: ManagerHarness, tmp_path: Path, force: bool) -> None:
    """The next keep-alive is an hour away."""
    script = f"echo begun; echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 3600"
    cell.new_project("app", f"silent:\n  script: ['{script}']\n  after_script: [echo tidied up]\n")
    [pushed] = await asyncio.to_thread(cell.until_pipelines, 1)
    [job] = cell.api("GET", f"/projects/1/pipelines/{pushed['id']}/jobs").json()
    path = f"/projects/1/jobs/{job['id']}"

    def is_logged() -> bool:
        return b"begun" in cell.api("GET", f"{path}/trace").body and (tmp_path / "pid").exists()

    async with harness.manager(keep_alive_seconds=3600):
        await asyncio.to_thread(wait_until, is_logged, "the job runs", seconds=60)
        process = Path("/proc") / (tmp_path / "pid").read_text().strip()
        assert cell.api("POST", f"{path}/cancel{'?force=true' if force else ''}").status == 201
        jobs = await cell.wait_for_jobs()
        await asyncio.to_thread(wait_until, lambda: not process.exists(), "its script ends", seconds=60)
    assert jobs["silent"]["status"] == "canceled"
    assert force or "tidied up" in jobs["silent"]["log"]


async def test_the_cell_knows_what_the_manager_has_room_for(cell: ServedCell, harness: ManagerHarness) -> None:
    def reported_loads() -> list[Any]:
        return [manager["load"] for manager in cell.api("GET", "/runners/1/managers").json() if manager["load"]]

    async with harness.manager():
        await asyncio.to_thread(wait_until, lambda: bool(reported_loads()), "the manager has sent its load", seconds=30)
    assert reported_loads() == [{"running": 0, "free": 2, "saturation": 0.0}]


NESTED = """
build:
  variables: {GIT_STRATEGY: fetch}
  run:
    - {name: greet, step: ./steps/greet, inputs: {who: world}}
    - {name: last, script: exit 4}
"""
GREET = """spec:
  inputs: {who: {type: string}}
  outputs: {said: {type: string}}
---
run:
  - name: say
    script: |
      echo "hello ${{ inputs.who }}"
      echo '{"name": "said", "value": "hello ${{ inputs.who }}"}' >>"$REMUDA_OUTPUTS"
outputs: {said: "${{ steps.say.outputs.said }}"}
"""


async def test_steps_that_call_steps_are_stored_and_shown_as_a_tree(
    cell: ServedCell, harness: ManagerHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell.new_project("app", NESTED, **{"steps/greet/func.yml": GREET})
    async with harness.manager():
        [job] = (await cell.wait_for_jobs()).values()
    monkeypatch.setenv("REMUDA_URL", cell.url)
    monkeypatch.setenv("REMUDA_TOKEN", cell.token)
    capsys.readouterr()
    assert await asyncio.to_thread(call, ["job", "show", str(job["id"]), "--steps", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    sources, greet, last = document["steps"]
    assert (sources["name"], sources["origin"], sources["steps"]) == ("get_sources", "compiled", [])
    assert (greet["inputs"], greet["outputs"]) == ({"who": "world"}, {"said": "hello world"})
    assert greet["resolved"]["digest"].startswith("sha256:")
    [say] = greet["steps"]
    assert (say["path"], say["status"], say["exit_code"]) == ("/greet/say", "success", 0)
    assert (last["status"], last["exit_code"], last["fault"]) == ("failure", 4, "user")
    parts = document["times"]["split"]["parts"]
    assert sum(parts.values()) == pytest.approx(document["times"]["split"]["total_seconds"], abs=1e-6)
    own = sum(step["seconds"] or 0.0 for step in document["times"]["steps"] if step["path"] in ("/greet", "/last"))
    assert parts["script"] == pytest.approx(own, abs=1e-3)
    assert await asyncio.to_thread(call, ["job", "show", str(job["id"]), "--steps"]) == 0
    lines = capsys.readouterr().out.splitlines()
    [line] = [line for line in lines if "greet" in line]
    assert line.startswith("    ✓ greet ")
    assert f"{greet['resolved']['digest'][:19]}, gave said=hello world" in line
    assert any(line.startswith("      ✓ say ") for line in lines)


class FailsOnce(LocalEnvironment):
    """The first job fails because its machine is lost."""

    broken = False

    async def prepare(self, place: JobPlace, machine: str) -> PreparedPlace:
        if not self.broken:
            self.broken = True
            raise EnvironmentLostError("the machine is gone")
        return await super().prepare(place, machine)


async def test_a_job_that_was_lost_before_its_script_is_tried_again(cell: ServedCell, harness: ManagerHarness) -> None:
    cell.new_project("app", "build: {script: [echo made]}\n")
    async with harness.manager(FailsOnce(harness.jobs, clock=SystemClock(), idle_exit_seconds=5)):
        jobs = await cell.wait_for_jobs()
        [manager] = cell.api("GET", "/runners/1/managers").json()
    assert manager["capacity"] == 2, "the value of `concurrent`"
    assert jobs["build"]["status"] == "success"
    lost, done = (
        cell.send("GET", f"/api/remuda/v1/jobs/{number}", PRIVATE_TOKEN=cell.token).json() for number in (1, 2)
    )
    assert (lost["status"], lost["failure_reason"], lost["lost_tries"]) == ("failed", "runner_system_failure", 0)
    assert (done["tries"], done["lost_tries"]) == (1, 1)
