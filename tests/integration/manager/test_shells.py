"""Shells in jobs, from a person's terminal to the job's environment: a cell, a manager, an agent, a real pty."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
REMUDA = [sys.executable, "-m", "remuda"]


class Terminal:
    """A person's: types, and reads what is shown."""

    def __init__(self, lab: Lab, *words: str, size: tuple[int, int] = (90, 33)) -> None:
        self._master, slave = pty.openpty()
        self.resize(*size)
        self.shown = b""
        self.process = subprocess.Popen(
            [*REMUDA, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(lab) | {"TERM": "vt220"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one thread, and nothing else
        )
        os.close(slave)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def types(self, text: str) -> None:
        os.write(self._master, text.encode())

    def shows(self, text: str, seconds: float = 30) -> str:
        """Everything shown so far, once this is part of it; what came is not looked for again."""
        deadline = time.monotonic() + seconds
        while (place := self.shown.find(text.encode())) < 0:
            ready, _, _ = select.select([self._master], [], [], max(deadline - time.monotonic(), 0))
            assert ready, f"{text!r} was not shown: {self.shown.decode(errors='replace')}"
            try:
                self.shown += os.read(self._master, 65536)
            except OSError:
                raise AssertionError(f"{text!r} was not shown at the end: {self.shown.decode()}") from None
        seen, self.shown = self.shown[: place + len(text)], self.shown[place + len(text) :]
        return seen.decode(errors="replace")

    def ends(self) -> int:
        while True:
            try:
                if not os.read(self._master, 65536):
                    break
            except OSError:
                break
        return self.process.wait(20)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


def environment(lab: Lab) -> dict[str, str]:
    return dict(os.environ) | {"REMUDA_URL": lab.url, "REMUDA_TOKEN": ADMIN_TOKEN, "HOME": str(lab.home)}


def remuda(lab: Lab, *words: str, feed: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*REMUDA, *words], input=feed, capture_output=True, env=environment(lab), timeout=60)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "lab") as running:
        yield running


def configure(lab: Lab, text: str) -> None:
    """More of `[runners.remuda]`; the manager reads it anew."""
    lab.manager.stop()
    lab.config.write_text(f"{lab.config.read_text()}\n[runners.remuda]\n{text}\n")
    lab.manager.start()


def a_job(lab: Lab, file: str, name: str = "look", status: str = "running") -> int:
    project = lab.call("POST", "/api/v4/projects", {"name": "app"})["id"]
    actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": file}]
    body = {"branch": "main", "commit_message": "First", "actions": actions}
    lab.call("POST", f"/api/v4/projects/{project}/repository/commits", body)
    found: list[dict[str, Any]] = []

    def is_so() -> bool:
        jobs = lab.call("GET", f"/api/v4/projects/{project}/jobs")
        found[:] = [job for job in jobs if job["name"] == name and job["status"] == status]
        return bool(found)

    lab.wait_until(is_so, f"{name} is {status}")
    return int(found[0]["id"])


def begun(lab: Lab) -> Path:
    """The working directory of a job that has begun its script."""
    lab.wait_until(lambda: list(lab.folder.glob("builds/**/begun")), "the script has begun")
    return next(lab.folder.glob("builds/**/begun")).parent


def is_held(lab: Lab, job: int) -> bool:
    return bool(lab.call("GET", f"/api/remuda/v1/jobs/{job}")["held_until"])


def test_terminal_into_a_running_job(lab: Lab) -> None:
    job = a_job(lab, FILE)
    folder = begun(lab)
    terminal = Terminal(lab, "job", "shell", str(job))
    try:
        terminal.types('stty size; pwd; echo "$SECRET $TERM"; echo $((40+2))\n')
        shown = terminal.shows("\r\n42\r\n")
        assert "33 90" in shown
        assert str(folder) in shown
        assert "of the job vt220" in shown
        terminal.resize(70, 20)
        terminal.types("until stty size | grep '20 70'; do sleep 0.1; done\n")
        terminal.shows("20 70\r\n")
        terminal.types("sleep 100\n")
        terminal.shows("sleep 100")
        terminal.types("\x03")
        terminal.types("echo aft''er; exit 7\n")
        terminal.shows("after")
        assert terminal.ends() == 7
    finally:
        terminal.close()
    (folder / "go").touch()


def test_hanging_up_ends_what_ran_there(lab: Lab) -> None:
    job = a_job(lab, FILE)
    folder = begun(lab)
    terminal = Terminal(lab, "job", "shell", str(job))
    try:
        terminal.types("sleep 4321 & echo re''ady\n")
        terminal.shows("ready")
        terminal.types("~.")
        assert terminal.ends() == 129
    finally:
        terminal.close()
    lab.wait_until(lambda: not is_running("sleep 4321"), "nothing of the shell is left")
    (folder / "go").touch()


def is_running(command: str) -> bool:
    wanted = command.replace(" ", "\0").encode() + b"\0"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == wanted:
                return True
        except OSError:
            continue
    return False


def test_commands_in_scripts(lab: Lab) -> None:
    job = a_job(lab, FILE)
    folder = begun(lab)
    (folder / "binary").write_bytes(bytes(range(256)) * 8000)
    got = remuda(lab, "job", "shell", str(job), "--", "cat", "binary")
    assert (got.returncode, got.stdout, got.stderr) == (0, bytes(range(256)) * 8000, b"")
    got = remuda(
        lab, "job", "shell", str(job), "--", "sh", "-c", "cat >there; echo no >&2; exit 5", feed=b"x\0" * 500_000
    )
    assert (got.returncode, got.stdout, got.stderr) == (5, b"", b"no\n")
    assert (folder / "there").read_bytes() == b"x\0" * 500_000
    got = remuda(lab, "job", "shell", str(job), feed=b"echo $SECRET; exit 3\n")
    assert (got.returncode, got.stdout) == (3, b"of the job\n")
    (folder / "go").touch()


def test_what_is_said_when_there_is_no_shell(lab: Lab) -> None:
    job = a_job(lab, FILE)
    folder = begun(lab)
    got = remuda(lab, "job", "shell", "999999", "--", "true")
    assert (got.returncode, b"404" in got.stderr) == (2, True)
    (folder / "go").touch()
    lab.wait_until(lambda: lab.call("GET", f"/api/remuda/v1/jobs/{job}")["status"] == "success", "it is over")
    got = remuda(lab, "job", "shell", str(job), "--", "true")
    assert (got.returncode, b"its environment is gone" in got.stderr) == (2, True)
    got = remuda(lab, "job", "release", str(job))
    assert (got.returncode, b"is not on hold" in got.stderr) == (2, True)


def test_runner_forbids_it(lab: Lab) -> None:
    configure(lab, "allow_shell = false\nhold_failed = '10m'")
    job = a_job(lab, FILE)
    folder = begun(lab)
    got = remuda(lab, "job", "shell", str(job), "--", "true")
    assert (got.returncode, b"allow_shell = false" in got.stderr) == (1, True)
    (folder / "go").touch()


def test_manager_that_is_killed_takes_its_shells_along(lab: Lab) -> None:
    job = a_job(lab, FILE)
    folder = begun(lab)
    terminal = Terminal(lab, "job", "shell", str(job))
    try:
        terminal.types("echo re''ady\n")
        terminal.shows("ready")
        lab.manager.kill()
        lab.manager.start()
        terminal.shows("the runner manager was restarted")
        assert terminal.ends() == 1
    finally:
        terminal.close()
    got = remuda(lab, "job", "shell", str(job), "--", "echo", "again")
    assert (got.returncode, got.stdout) == (0, b"again\n")
    (folder / "go").touch()


def test_cell_that_is_killed_does_not(lab: Lab) -> None:
    job = a_job(lab, FILE)
    folder = begun(lab)
    terminal = Terminal(lab, "job", "shell", str(job))
    try:
        terminal.types("echo re''ady\n")
        terminal.shows("ready")
        lab.cell.kill()
        terminal.types("echo meanw''hile\n")
        lab.start_cell()
        terminal.shows("meanwhile")
        terminal.types("exit 4\n")
        assert terminal.ends() == 4
    finally:
        terminal.close()
    (folder / "go").touch()


def test_failed_job_is_held_and_outlives_its_manager(lab: Lab) -> None:
    configure(lab, "hold_failed = '10m'")
    job = a_job(lab, FAILS, "broken", "failed")
    lab.wait_until(lambda: is_held(lab, job), "the cell knows that it is held")
    # Who waits for the job does not wait for the hold.
    project = lab.call("GET", f"/api/remuda/v1/jobs/{job}")["pipeline"]["project_id"]
    lab.wait_until(
        lambda: (
            [one["status"] for one in lab.call("GET", f"/api/v4/projects/{project}/jobs") if one["name"] == "next"]
            == ["success"]
        ),
        "the next job has run",
    )
    log = remuda(lab, "job", "log", str(job)).stdout.decode()
    assert re.search(rf"stays for 10m\..*remuda job shell {job}", log)
    assert "held" in remuda(lab, "job", "show", str(job)).stdout.decode()
    listed = json.loads(remuda(lab, "job", "list", "--held", "--output", "json").stdout)
    assert [one["id"] for one in listed] == [job]
    got = remuda(lab, "job", "shell", str(job), "--", "cat", "made")
    assert (got.returncode, got.stdout) == (0, b"made\n")
    lab.manager.kill()
    lab.kill_agent()
    lab.manager.start()
    got = remuda(lab, "job", "shell", str(job), "--", "cat", "made")
    assert (got.returncode, got.stdout) == (0, b"made\n"), got.stderr
    assert is_held(lab, job)
    assert remuda(lab, "job", "release", str(job)).returncode == 0
    lab.wait_until(lambda: not is_held(lab, job), "it is let go")
    assert remuda(lab, "job", "shell", str(job), "--", "true").returncode == 2


def test_manager_that_dies_when_a_hold_begins_goes_on_with_it(tmp_path: Path) -> None:
    with Lab(tmp_path / "lab", kill_point="manager.held") as lab:
        configure(lab, "hold_failed = '10m'")
        lab.supervise()
        job = a_job(lab, FAILS, "broken", "failed")
        lab.wait_until(lambda: is_held(lab, job), "the cell knows that it is held")
        assert lab.mark.exists()
        assert remuda(lab, "job", "shell", str(job), "--", "cat", "made").stdout == b"made\n"


def test_job_asks_to_be_held(lab: Lab) -> None:
    configure(lab, "hold_by_job = '1h'")
    file = FAILS.replace("broken:", "broken:\n  variables: {REMUDA_HOLD_FAILED: 20m}")
    job = a_job(lab, file, "broken", "failed")
    lab.wait_until(lambda: is_held(lab, job), "it is held")
    # A drain does not wait for it.
    assert lab.manager.process is not None
    lab.manager.process.send_signal(signal.SIGQUIT)
    assert lab.manager.process.wait(30) == 0


def test_job_may_not_ask_for_more_than_the_runner_allows(lab: Lab) -> None:
    file = FAILS.replace("broken:", "broken:\n  variables: {REMUDA_HOLD_FAILED: 20m}")
    job = a_job(lab, file, "broken", "failed")
    log = remuda(lab, "job", "log", str(job)).stdout.decode()
    assert "REMUDA_HOLD_FAILED=20m: this runner does not let jobs ask for a longer hold" in log
    assert not is_held(lab, job)
    with pytest.raises(urllib.error.HTTPError) as refused:
        lab.call("POST", f"/api/remuda/v1/jobs/{job}/shells", {})
    refused.value.close()
    assert refused.value.code == 409


def test_held_job_stays_in_reach_when_the_runner_gets_a_new_token(lab: Lab) -> None:
    configure(lab, 'hold_failed = "10m"')
    job = a_job(lab, FAILS, name="broken", status="failed")
    lab.wait_until(lambda: is_held(lab, job), "the job is held")
    before = lab.config.read_text()
    assert remuda(lab, "manager", "reset-token", "--config", str(lab.config), "--all-runners").returncode == 0
    assert lab.config.read_text() != before
    log = lab.folder / "manager.out"
    lab.wait_until(lambda: b"configuration reloaded" in log.read_bytes(), "the new token is used")

    lab.wait_until(lambda: remuda(lab, "job", "shell", str(job), "--", "cat", "made").stdout == b"made\n", "a shell")
    assert remuda(lab, "job", "release", str(job)).returncode == 0
