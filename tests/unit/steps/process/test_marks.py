"""Programs started for a job have its mark; programs that another thread starts meanwhile have not."""

import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remuda.lib.clock import SystemClock
from remuda.steps.process import leftovers, marks
from remuda.steps.resolving import decompression, git

FILE_LOCKS = 10
WAIT_SECONDS = 0.3
"""Time in which another thread could wrongly start its program."""


@contextmanager
def run_child(key: str = "") -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process that waits for the end of its input. `key`: the job whose mark it gets; empty for no mark."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    if key:
        with marks.mark_children(key):
            process = subprocess.Popen(command, stdin=subprocess.PIPE)
    else:
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
    with process:
        yield process


def start_meanwhile(start: Callable[[], object]) -> None:
    """Start a program in a thread while a program of a job is being started."""
    thread = threading.Thread(target=start)
    with marks.mark_children("job"):
        thread.start()
        thread.join(WAIT_SECONDS)
    thread.join()


def create_wrapper(folder: Path, name: str) -> Path:
    """Create a wrapper of a program, which writes its resource limits to a file first. Returns that file."""
    path, limits_file = folder / name, folder / "limits"
    path.write_text(f'#!/bin/sh\ncat /proc/$$/limits >>{limits_file}\nexec {shutil.which(name)} "$@"\n')
    path.chmod(0o755)
    return limits_file


def is_marked(limits_file: Path) -> bool:
    return str(marks.number_of("job")) in limits_file.read_text()


def test_a_program_started_for_a_job_is_marked() -> None:
    before = resource.getrlimit(FILE_LOCKS)
    with run_child("job") as process:
        assert marks.has_mark(process.pid, "job")
        assert not marks.has_mark(process.pid, "another")
        assert not marks.has_mark(os.getpid(), "job")
    assert resource.getrlimit(FILE_LOCKS) == before


def test_git_of_another_thread_is_not_marked(tmp_path: Path) -> None:
    repo, target = tmp_path / "repo", tmp_path / "target"
    target.mkdir()
    start = ["git", "-C", str(repo), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    (repo / "file").write_text("x")
    subprocess.run([*start, "add", "file"], check=True)
    subprocess.run([*start, "commit", "-qm", "one"], check=True)
    limits_file = create_wrapper(tmp_path, "git")
    repository = git.repository("https://h/p", {"PATH": f"{tmp_path}:{os.environ['PATH']}"})

    start_meanwhile(lambda: git.write_commit(repository, "HEAD", repo / ".git", target))

    assert (target / "file").read_text() == "x"
    assert not is_marked(limits_file)


def test_zstd_of_another_thread_is_not_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = subprocess.run(["zstd", "-qc"], input=b"x", check=True, capture_output=True).stdout
    (tmp_path / "in").write_bytes(packed)
    limits_file = create_wrapper(tmp_path, "zstd")
    monkeypatch.setattr(decompression, "LIBRARIES", ("libnowhere.so.1",))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    start_meanwhile(lambda: decompression.unpack(tmp_path / "in", tmp_path / "out", limit_bytes=1000))

    assert (tmp_path / "out").read_bytes() == b"x"
    assert not is_marked(limits_file)


def kill_without_reaping(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process, and leave it as a zombie."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_zombies_of_a_job_are_reaped_at_once() -> None:
    with run_child("job") as process:
        kill_without_reaping(process)
        leftovers.Reaper(SystemClock()).look()
        with pytest.raises(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)


def test_an_agent_inside_a_job_does_not_reap_its_own_children() -> None:
    """The agent and all processes that it starts have the mark of the outer job."""
    with marks.mark_children("outer"), run_child() as process:
        kill_without_reaping(process)
        leftovers.Reaper(SystemClock()).look()
        assert os.waitpid(process.pid, os.WNOHANG)[0] == process.pid
