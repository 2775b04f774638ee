"""Kills the cell in the middle of a request; after the restart the client's retry succeeds, and only once."""

import contextlib
import hashlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.cells.lfs_client import Lfs, basic
from tests.support.cells.served_cell import ADMIN_TOKEN, Answer, ScriptedRunner, ServedCell
from tests.support.git_client import Clone
from tests.support.servers.hook_receiver import Receiver

from remuda.testing.lab import free_port
from remuda.testing.waiting import wait_until

pytestmark = pytest.mark.long

PIPELINE = "only:\n  script: [echo hello]\n  artifacts: {paths: [x]}\n"
SERVE = """
import asyncio, sys
from pathlib import Path
from remuda.cell.service import CellService
from remuda.cell.settings import CellSettings
settings = CellSettings(
    data=Path(sys.argv[1]), port=int(sys.argv[2]), admin_token=sys.argv[3], upkeep_seconds=0.05,
    hook_local_addresses=True,
)
asyncio.run(CellService(settings).run(asyncio.Event()))
"""


class KillableCell(ServedCell):
    """A cell in its own process, which dies at a kill point and can be started again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, port=free_port())
        self.url = f"http://127.0.0.1:{self.settings.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, kill_point: str = "") -> None:
        environment = {**os.environ, "REMUDA_KILL_POINT": kill_point}
        command = [sys.executable, "-c", SERVE, str(self.settings.data), str(self.settings.port), ADMIN_TOKEN]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/-/health", timeout=2):
                    return
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def expect_kill_during(self, request: Callable[[], Answer]) -> None:
        """The request gets no response, and the process was killed."""
        assert self.process is not None
        with pytest.raises(OSError, match=r"."):
            request()
        assert self.process.wait(10) == -9


@pytest.fixture
def killable(tmp_path: Path) -> Iterator[KillableCell]:
    cell = KillableCell(tmp_path / "cell")
    try:
        yield cell
    finally:
        cell.kill()


def test_between_the_commit_and_its_pipeline(killable: KillableCell) -> None:
    killable.start("cell.ref_updated")
    project = killable.new_project("app")
    actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": PIPELINE}]
    body = {"branch": "main", "commit_message": "First", "actions": actions}

    def commit() -> Answer:
        return killable.api("POST", f"/projects/{project}/repository/commits", body)

    killable.expect_kill_during(commit)
    killable.start()
    [pipeline] = killable.until_pipelines(1)
    again = commit()
    assert (again.status, again.json()["id"]) == (201, pipeline["sha"])
    assert len(killable.until_pipelines(1)) == 1


def test_between_a_webhook_and_its_result(killable: KillableCell, receiver: Receiver) -> None:
    killable.start("cell.webhook_sent")
    project = killable.new_project("app")
    hook = killable.api("POST", f"/projects/{project}/hooks", {"url": receiver.url}).json()["id"]
    actions = [{"action": "create", "file_path": "a", "content": "a"}]
    body = {"branch": "main", "commit_message": "First", "actions": actions}
    with contextlib.suppress(OSError):  # the kill may come before the answer
        killable.api("POST", f"/projects/{project}/repository/commits", body)
    assert killable.process
    assert killable.process.wait(10) == -9
    assert len(receiver.requests) == 1
    killable.start()
    path = f"/projects/{project}/hooks/{hook}/events"
    wait_until(lambda: [event["response_status"] for event in killable.api("GET", path).json()] == ["200"], seconds=60)
    first, second = [headers["X-Gitlab-Event-UUID"] for _, headers, _ in receiver.requests]
    assert first == second


def test_between_a_push_and_its_pipeline(killable: KillableCell, tmp_path: Path) -> None:
    killable.start("cell.ref_updated")
    killable.new_project("app")
    clone = Clone(tmp_path / "work")
    clone.run("init", "--quiet", "-b", "main")
    clone.run("remote", "add", "origin", f"{killable.url.replace('://', f'://x:{ADMIN_TOKEN}@')}/root/app.git")
    clone.commit(**{".gitlab-ci.yml": PIPELINE})
    clone.run("push", "origin", "main", ok=False)
    assert killable.process
    assert killable.process.wait(10) == -9
    killable.start()
    clone.push("main")
    assert len(killable.until_pipelines(1)) == 1


def test_between_an_artifact_and_its_answer(killable: KillableCell) -> None:
    killable.start("cell.artifact_stored")
    killable.new_project("app", PIPELINE)
    runner: ScriptedRunner = killable.new_runner()
    job = runner.take()
    killable.expect_kill_during(lambda: runner.upload(job, b"content"))
    killable.start()
    assert runner.upload(job, b"content").status == 201
    assert runner.put(job, "success").status == 200
    assert killable.api("GET", f"/projects/root%2Fapp/jobs/{job['id']}/artifacts").body == b"content"


@pytest.mark.parametrize("kill_point", ["cell.lfs_object_received", "cell.lfs_object_stored"])
def test_between_an_lfs_object_and_its_answer(killable: KillableCell, kill_point: str) -> None:
    killable.start(kill_point)
    killable.new_project("app")
    lfs, content = Lfs(killable, "root/app", basic(ADMIN_TOKEN)), b"large" * 1_000_000
    oid = hashlib.sha256(content).hexdigest()
    killable.expect_kill_during(lambda: lfs.put(content))
    killable.start()
    is_stored = kill_point == "cell.lfs_object_stored"
    assert lfs.get(oid).status == (200 if is_stored else 404)
    assert lfs.put(content).status == 200
    assert lfs.get(oid).body == content


def test_in_the_middle_of_an_lfs_upload(killable: KillableCell) -> None:
    killable.start()
    killable.new_project("app")
    lfs, content = Lfs(killable, "root/app", basic(ADMIN_TOKEN)), b"large" * 1_000_000
    oid = hashlib.sha256(content).hexdigest()

    def pieces() -> Iterator[bytes]:
        yield content[: len(content) // 2]
        wait_until(lambda: any((killable.settings.data / "blobs/incoming").iterdir()), "the upload begins")
        killable.kill()
        yield content[len(content) // 2 :]

    with pytest.raises(OSError, match=r"."):
        lfs.send("PUT", f"gitlab-lfs/objects/{oid}/{len(content)}", pieces())
    killable.start()
    assert lfs.get(oid).status == 404
    [item] = lfs.batch("upload", (oid, len(content))).json()["objects"]
    assert "upload" in item["actions"]
    assert lfs.put(content).status == 200
    assert lfs.get(oid).body == content


RELEASE = """
only:
  script: [echo hello]
  coverage: '/\\d+%/'
  release: {tag_name: v1, description: one}
  rules: [{if: $CI_COMMIT_TAG, when: never}, {when: on_success}]
tagged:
  script: [echo tagged]
  rules: [{if: $CI_COMMIT_TAG}]
"""


@pytest.mark.parametrize("kill_point", ["cell.ref_updated", "cell.finished"])
def test_between_a_release_and_the_end_of_its_job(killable: KillableCell, kill_point: str) -> None:
    killable.start()
    killable.new_project("app", RELEASE)
    runner: ScriptedRunner = killable.new_runner()
    job = runner.take()
    runner.patch(job, 0, b"coverage 80%\n")
    killable.kill()
    killable.start(kill_point)
    killable.expect_kill_during(lambda: runner.put(job, "success"))
    killable.start()
    for _ in range(2):
        done = runner.put(job, "success")
        assert (done.status, done.headers["Job-Status"]) == (200, "success")
    assert [release["tag_name"] for release in killable.api("GET", "/projects/1/releases").json()] == ["v1"]
    assert killable.api("GET", f"/projects/1/jobs/{job['id']}").json()["coverage"] == 80.0
    assert [pipeline["ref"] for pipeline in killable.until_pipelines(2)] == ["v1", "main"]


def list_files(killable: KillableCell, folder: str) -> list[str]:
    return [path.name for path in (killable.settings.data / folder).rglob("*") if path.is_file()]


def run_failed_job(killable: KillableCell, *, expire_in: str) -> int:
    """Run a job that logs, uploads an archive, and fails."""
    killable.new_project("app", PIPELINE)
    runner = killable.new_runner()
    job = runner.take()
    assert runner.patch(job, 0, b"hello\n").status == 202
    assert runner.upload(job, b"content", query=f"?expire_in={expire_in}").status == 201
    assert runner.put(job, "failed", failure_reason="script_failure").status == 200
    return int(job["id"])


@pytest.mark.parametrize("kill_point", ["cell.trace_sealed", "cell.trace_archived"])
def test_while_a_trace_is_archived(killable: KillableCell, kill_point: str) -> None:
    killable.start(kill_point)
    job_id = run_failed_job(killable, expire_in="never")
    assert killable.process
    assert killable.process.wait(20) == -9
    killable.start()
    assert killable.api("GET", f"/projects/1/jobs/{job_id}/trace").body == b"hello\n"
    wait_until(lambda: list_files(killable, "traces") == [], "the trace is archived")
    assert list_files(killable, "blobs/kept/traces") == [f"{job_id}.log"]
    assert killable.api("GET", f"/projects/1/jobs/{job_id}/trace").body == b"hello\n"


def test_while_artifacts_expire(killable: KillableCell) -> None:
    killable.start("cell.artifacts_expired")
    job_id = run_failed_job(killable, expire_in="1+sec")
    assert killable.process
    assert killable.process.wait(20) == -9
    killable.start()
    assert killable.api("GET", f"/projects/1/jobs/{job_id}/artifacts").status == 404
    # The remaining blob is an orphan, which is removed a day later.
    [blob] = (killable.settings.data / "blobs" / "kept" / "artifacts").rglob("archive-*")
    killable.kill()
    os.utime(blob, (1_700_000_000, 1_700_000_000))
    killable.start()
    wait_until(lambda: not blob.exists(), "the orphan is removed")


def test_while_a_job_is_erased(killable: KillableCell) -> None:
    killable.start("cell.job_erased")
    job_id = run_failed_job(killable, expire_in="never")
    wait_until(lambda: list_files(killable, "traces") == [], "the trace is archived")
    killable.expect_kill_during(lambda: killable.api("POST", f"/projects/1/jobs/{job_id}/erase"))
    killable.start()
    assert killable.api("GET", f"/projects/1/jobs/{job_id}/trace").body == b""
    assert killable.api("GET", f"/projects/1/jobs/{job_id}/artifacts").status == 404
    assert killable.api("GET", f"/projects/1/jobs/{job_id}").json()["erased_at"]
