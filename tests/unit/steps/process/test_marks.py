"""Who bears the mark of a job: what was started for it, and nothing that another thread starts meanwhile."""

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
CHANCE_SECONDS = 0.3
"""How long another thread may take to start its program too early."""


@contextmanager
def a_child(key: str = "") -> Iterator["subprocess.Popen[bytes]"]:
    """A process that waits for the end of its input; with the mark of a job, if one is named."""
    words = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    if key:
        with marks.mark_children(key):
            process = subprocess.Popen(words, stdin=subprocess.PIPE)
    else:
        process = subprocess.Popen(words, stdin=subprocess.PIPE)
    with process:
        yield process


def start_meanwhile(start: Callable[[], object]) -> None:
    """Start a program in a thread while a job's is being started."""
    thread = threading.Thread(target=start)
    with marks.mark_children("job"):
        thread.start()
        thread.join(CHANCE_SECONDS)
    thread.join()


def a_program(folder: Path, name: str) -> Path:
    """A program of this name in a folder, which writes down its limits and becomes the real one."""
    path, seen = folder / name, folder / "limits"
    path.write_text(f'#!/bin/sh\ncat /proc/$$/limits >>{seen}\nexec {shutil.which(name)} "$@"\n')
    path.chmod(0o755)
    return seen


def is_marked(seen: Path) -> bool:
    return str(marks.number_of("job")) in seen.read_text()


def test_what_is_started_for_a_job_is_marked() -> None:
    before = resource.getrlimit(FILE_LOCKS)
    with a_child("job") as process:
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
    seen = a_program(tmp_path, "git")
    where = git.repository("https://h/p", {"PATH": f"{tmp_path}:{os.environ['PATH']}"})

    start_meanwhile(lambda: git.write_commit(where, "HEAD", repo / ".git", target))

    assert (target / "file").read_text() == "x"
    assert not is_marked(seen)


def test_zstd_of_another_thread_is_not_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = subprocess.run(["zstd", "-qc"], input=b"x", check=True, capture_output=True).stdout
    (tmp_path / "in").write_bytes(packed)
    seen = a_program(tmp_path, "zstd")
    monkeypatch.setattr(decompression, "LIBRARIES", ("libnowhere.so.1",))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    start_meanwhile(lambda: decompression.unpack(tmp_path / "in", tmp_path / "out", limit_bytes=1000))

    assert (tmp_path / "out").read_bytes() == b"x"
    assert not is_marked(seen)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Have it end, and leave its exit status."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_what_a_job_has_left_is_reaped_at_once() -> None:
    with a_child("job") as process:
        end(process)
        leftovers.Reaper(SystemClock()).look()
        with pytest.raises(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)


def test_an_agent_inside_a_job_keeps_what_it_has_started_itself() -> None:
    """It bears the mark of the outer job, and so does all that it starts."""
    with marks.mark_children("outer"), a_child() as process:
        end(process)
        leftovers.Reaper(SystemClock()).look()
        assert os.waitpid(process.pid, os.WNOHANG)[0] == process.pid
