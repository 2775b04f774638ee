"""Shells in jobs, from a user's terminal to the job's environment, with a real cell, manager, agent and pty."""

import json
import os
import re
import signal
import subprocess
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.user_terminal import REMUDA, UserTerminal

from remuda.testing.lab import ADMIN_TOKEN, Lab

WAITS = "echo begun; touch begun; while [ ! -e go ]; do sleep 0.1; done; exit ${CODE:-0}"
FILE = f"""
look:
  variables: {{SECRET: of the job}}
  script:
    - |
      {WAITS}
"""
FAILS = """
broken:
  script:
    - echo made >made
    - exit 3
next:
  stage: deploy
  when: on_failure
  script: echo next
"""


class Terminal(UserTerminal):
    """Runs a remuda command in a pseudo-terminal, as a user of the lab's cell."""

    def __init__(self, lab: Lab, *words: str, size: tuple[int, int] = (90, 33)) -> None:
        super().__init__(*words, env=environment(lab), size=size)


def environment(lab: Lab) -> dict[str, str]:
    return dict(os.environ) | {"REMUDA_URL": lab.url, "REMUDA_TOKEN": ADMIN_TOKEN, "HOME": str(lab.home)}


def remuda(lab: Lab, *words: str, feed: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*REMUDA, *words], input=feed, capture_output=True, env=environment(lab), timeout=60)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "lab") as lab:
        yield lab


def configure(lab: Lab, text: str) -> None:
    """Add settings to `[runners.remuda]` and restart the manager."""
    lab.manager.stop()
    lab.config.write_text(f"{lab.config.read_text()}\n[runners.remuda]\n{text}\n")
    lab.manager.start()


def start_job(lab: Lab, file: str, name: str = "look", status: str = "running") -> int:
    project = lab.call("POST", "/api/v4/projects", {"name": "app"})["id"]
    actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": file}]
    body = {"branch": "main", "commit_message": "First", "actions": actions}
    lab.call("POST", f"/api/v4/projects/{project}/repository/commits", body)
    matches: list[dict[str, Any]] = []

    def has_status() -> bool:
        jobs = lab.call("GET", f"/api/v4/projects/{project}/jobs")
        matches[:] = [job for job in jobs if job["name"] == name and job["status"] == status]
        return bool(matches)

    lab.wait_until(has_status, f"{name} is {status}")
    return int(matches[0]["id"])


def wait_for_script(lab: Lab) -> Path:
    """Wait until the script of a job runs. Returns its working directory."""
    lab.wait_until(lambda: list(lab.folder.glob("builds/**/begun")), "the script runs")
    return next(lab.folder.glob("builds/**/begun")).parent


def is_on_hold(lab: Lab, job: int) -> bool:
    return bool(lab.call("GET", f"/api/remuda/v1/jobs/{job}")["held_until"])


def test_a_terminal_in_a_running_job(lab: Lab) -> None:
    job = start_job(lab, FILE)
    folder = wait_for_script(lab)
    terminal = Terminal(lab, "job", "shell", str(job))
    try:
        terminal.type('stty size; pwd; echo "$SECRET $TERM"; echo $((40+2))\n')
        output = terminal.read_until("\r\n42\r\n")
        assert "33 90" in output
        assert str(folder) in output
        assert "of the job vt220" in output
        terminal.resize(70, 20)
        terminal.type("until stty size | grep '20 70'; do sleep 0.1; done\n")
        terminal.read_until("20 70\r\n")
        terminal.type("sleep 100\n")
        terminal.read_until("sleep 100")
        terminal.type("\x03")
        terminal.type("echo aft''er; exit 7\n")
        terminal.read_until("after")
        assert terminal.wait_for_exit() == 7
    finally:
        terminal.close()
    (folder / "go").touch()


def test_hanging_up_ends_the_processes_of_the_shell(lab: Lab) -> None:
    job = start_job(lab, FILE)
    folder = wait_for_script(lab)
    terminal = Terminal(lab, "job", "shell", str(job))
    try:
        terminal.type("sleep 4321 & echo re''ady\n")
        terminal.read_until("ready")
        terminal.type("~.")
        assert terminal.wait_for_exit() == 129
    finally:
        terminal.close()
    lab.wait_until(lambda: not is_running("sleep 4321"), "all processes of the shell have ended")
    (folder / "go").touch()


def is_running(command: str) -> bool:
    command_line = command.replace(" ", "\0").encode() + b"\0"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == command_line:
                return True
        except OSError:
            continue
    return False


def test_commands_without_a_terminal(lab: Lab) -> None:
    job = start_job(lab, FILE)
    folder = wait_for_script(lab)
    (folder / "binary").write_bytes(bytes(range(256)) * 8000)
    result = remuda(lab, "job", "shell", str(job), "--", "cat", "binary")
    assert (result.returncode, result.stdout, result.stderr) == (0, bytes(range(256)) * 8000, b"")
    result = remuda(
        lab, "job", "shell", str(job), "--", "sh", "-c", "cat >there; echo no >&2; exit 5", feed=b"x\0" * 500_000
    )
    assert (result.returncode, result.stdout, result.stderr) == (5, b"", b"no\n")
    assert (folder / "there").read_bytes() == b"x\0" * 500_000
    result = remuda(lab, "job", "shell", str(job), feed=b"echo $SECRET; exit 3\n")
    assert (result.returncode, result.stdout) == (3, b"of the job\n")
    (folder / "go").touch()


def test_errors_if_there_is_no_environment(lab: Lab) -> None:
    job = start_job(lab, FILE)
    folder = wait_for_script(lab)
    result = remuda(lab, "job", "shell", "999999", "--", "true")
    assert (result.returncode, b"there is no job 999999" in result.stderr) == (2, True)
    (folder / "go").touch()
    lab.wait_until(lambda: lab.call("GET", f"/api/remuda/v1/jobs/{job}")["status"] == "success", "the job has ended")
    result = remuda(lab, "job", "shell", str(job), "--", "true")
    assert (result.returncode, b"its environment is gone" in result.stderr) == (2, True)
    result = remuda(lab, "job", "release", str(job))
    assert (result.returncode, b"is not on hold" in result.stderr) == (2, True)


def test_the_runner_can_forbid_shells(lab: Lab) -> None:
    configure(lab, "allow_shell = false\nhold_failed = '10m'")
    job = start_job(lab, FILE)
    folder = wait_for_script(lab)
    result = remuda(lab, "job", "shell", str(job), "--", "true")
    assert (result.returncode, b"allow_shell = false" in result.stderr) == (1, True)
    (folder / "go").touch()


def test_shells_end_if_the_manager_is_killed(lab: Lab) -> None:
    job = start_job(lab, FILE)
    folder = wait_for_script(lab)
    terminal = Terminal(lab, "job", "shell", str(job))
    try:
        terminal.type("echo re''ady\n")
        terminal.read_until("ready")
        lab.manager.kill()
        lab.manager.start()
        terminal.read_until("the runner manager was restarted")
        assert terminal.wait_for_exit() == 1
    finally:
        terminal.close()
    result = remuda(lab, "job", "shell", str(job), "--", "echo", "again")
    assert (result.returncode, result.stdout) == (0, b"again\n")
    (folder / "go").touch()


def test_shells_survive_if_the_cell_is_killed(lab: Lab) -> None:
    job = start_job(lab, FILE)
    folder = wait_for_script(lab)
    terminal = Terminal(lab, "job", "shell", str(job))
    try:
        terminal.type("echo re''ady\n")
        terminal.read_until("ready")
        lab.cell.kill()
        terminal.type("echo meanw''hile\n")
        lab.start_cell()
        terminal.read_until("meanwhile")
        terminal.type("exit 4\n")
        assert terminal.wait_for_exit() == 4
    finally:
        terminal.close()
    (folder / "go").touch()


def test_a_failed_job_on_hold_survives_its_manager(lab: Lab) -> None:
    configure(lab, "hold_failed = '10m'")
    job = start_job(lab, FAILS, "broken", "failed")
    lab.wait_until(lambda: is_on_hold(lab, job), "the cell shows the hold")
    # Following jobs do not wait for the end of the hold.
    project = lab.call("GET", f"/api/remuda/v1/jobs/{job}")["pipeline"]["project_id"]
    lab.wait_until(
        lambda: (
            [
                entry["status"]
                for entry in lab.call("GET", f"/api/v4/projects/{project}/jobs")
                if entry["name"] == "next"
            ]
            == ["success"]
        ),
        "the next job has run",
    )
    log = remuda(lab, "job", "log", str(job)).stdout.decode()
    assert re.search(rf"stays for 10m\..*remuda job shell {job}", log)
    assert "held" in remuda(lab, "job", "show", str(job)).stdout.decode()
    listed = json.loads(remuda(lab, "job", "list", "--held", "--output", "json").stdout)
    assert [entry["id"] for entry in listed] == [job]
    result = remuda(lab, "job", "shell", str(job), "--", "cat", "made")
    assert (result.returncode, result.stdout) == (0, b"made\n")
    lab.manager.kill()
    lab.kill_agent()
    lab.manager.start()
    result = remuda(lab, "job", "shell", str(job), "--", "cat", "made")
    assert (result.returncode, result.stdout) == (0, b"made\n"), result.stderr
    assert is_on_hold(lab, job)
    assert remuda(lab, "job", "release", str(job)).returncode == 0
    lab.wait_until(lambda: not is_on_hold(lab, job), "the hold is released")
    assert remuda(lab, "job", "shell", str(job), "--", "true").returncode == 2


def test_a_hold_continues_if_the_manager_dies_at_its_begin(tmp_path: Path) -> None:
    with Lab(tmp_path / "lab", kill_point="manager.held") as lab:
        configure(lab, "hold_failed = '10m'")
        lab.supervise()
        job = start_job(lab, FAILS, "broken", "failed")
        lab.wait_until(lambda: is_on_hold(lab, job), "the cell shows the hold")
        assert lab.mark.exists()
        assert remuda(lab, "job", "shell", str(job), "--", "cat", "made").stdout == b"made\n"


def test_a_job_can_request_a_hold(lab: Lab) -> None:
    configure(lab, "hold_by_job = '1h'")
    file = FAILS.replace("broken:", "broken:\n  variables: {REMUDA_HOLD_FAILED: 20m}")
    job = start_job(lab, file, "broken", "failed")
    lab.wait_until(lambda: is_on_hold(lab, job), "the job is on hold")
    # A drain does not wait for the hold.
    assert lab.manager.process is not None
    lab.manager.process.send_signal(signal.SIGQUIT)
    assert lab.manager.process.wait(30) == 0


def test_a_job_cannot_request_more_than_the_runner_allows(lab: Lab) -> None:
    file = FAILS.replace("broken:", "broken:\n  variables: {REMUDA_HOLD_FAILED: 20m}")
    job = start_job(lab, file, "broken", "failed")
    log = remuda(lab, "job", "log", str(job)).stdout.decode()
    assert "REMUDA_HOLD_FAILED=20m: this runner does not let jobs ask for a longer hold" in log
    assert not is_on_hold(lab, job)
    with pytest.raises(urllib.error.HTTPError) as refused:
        lab.call("POST", f"/api/remuda/v1/jobs/{job}/shells", {})
    refused.value.close()
    assert refused.value.code == 409


def test_a_job_on_hold_is_reachable_after_the_runner_gets_a_new_token(lab: Lab) -> None:
    configure(lab, 'hold_failed = "10m"')
    job = start_job(lab, FAILS, name="broken", status="failed")
    lab.wait_until(lambda: is_on_hold(lab, job), "the job is on hold")
    before = lab.config.read_text()
    assert remuda(lab, "manager", "reset-token", "--config", str(lab.config), "--all-runners").returncode == 0
    assert lab.config.read_text() != before
    log = lab.folder / "manager.out"
    lab.wait_until(lambda: b"configuration reloaded" in log.read_bytes(), "the new token is used")

    lab.wait_until(
        lambda: remuda(lab, "job", "shell", str(job), "--", "cat", "made").stdout == b"made\n", "the shell works"
    )
    assert remuda(lab, "job", "release", str(job)).returncode == 0
