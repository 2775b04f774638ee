import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.steps import shim


def spawn(folder: Path, script: str, env: dict[str, str] | None = None) -> int:
    (folder / "raw").touch()
    return shim.spawn(
        folder, ["/bin/sh", "-c", script], work_dir=folder, env=env or {"PATH": "/usr/bin:/bin"}, open_files=512
    )


def wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()


def test_files_of_a_step(tmp_path: Path) -> None:
    pid = spawn(tmp_path, "echo out; echo err >&2; pwd; ulimit -Sn; exit 7")
    assert wait(pid) == 0
    claim = shim.claimed(tmp_path)
    assert claim is not None
    assert claim[0] == pid
    assert shim.exit_code(tmp_path) == 7
    assert (tmp_path / "raw").read_text() == f"out\nerr\n{tmp_path}\n512\n"
    assert abs((shim.exited_at(tmp_path) or 0) - time.time()) < 5


def test_the_second_shim_goes_without_running_anything(tmp_path: Path) -> None:
    first = spawn(tmp_path, "echo run")
    assert wait(first) == 0
    assert wait(spawn(tmp_path, "echo run")) == shim.LOST_CLAIM
    assert (tmp_path / "raw").read_text() == "run\n"


def test_a_forbidden_step_never_starts(tmp_path: Path) -> None:
    assert shim.forbid(tmp_path)
    assert wait(spawn(tmp_path, "echo run")) == shim.LOST_CLAIM
    assert shim.claimed(tmp_path) is None
    assert not shim.forbid(tmp_path)


def test_the_shim_outlives_a_signal_to_its_group(tmp_path: Path) -> None:
    pid = spawn(tmp_path, "echo up; exec sleep 60")
    until(lambda: (tmp_path / "raw").read_text() == "up\n")
    assert os.getpgid(pid) == os.getsid(pid) == pid
    os.killpg(pid, 15)
    assert wait(pid) == 0
    assert shim.exit_code(tmp_path) == 128 + 15
    assert (tmp_path / "raw").read_text() == "up\n"


def test_the_start_time_is_the_kernels(tmp_path: Path) -> None:
    pid = spawn(tmp_path, "read line </dev/zero")
    until(lambda: shim.claimed(tmp_path))
    claim = shim.claimed(tmp_path)
    assert claim == (pid, shim.start_time(pid))
    os.killpg(pid, 9)
    wait(pid)
    assert shim.exit_code(tmp_path) is None
    assert shim.start_time(pid) is None


def test_a_missing_program_and_folder_are_exit_codes(tmp_path: Path) -> None:
    pid = shim.spawn(tmp_path, ["/no/such"], work_dir=tmp_path, env={}, open_files=512)
    wait(pid)
    assert shim.exit_code(tmp_path) == 127
    assert b"/no/such" in (tmp_path / "raw").read_bytes()


@pytest.mark.parametrize("text", ["", "12", "12 34"])
def test_incomplete_files_do_not_count(tmp_path: Path, text: str) -> None:
    (tmp_path / "pid").write_text(text)
    (tmp_path / "exit").write_text(text)
    assert shim.claimed(tmp_path) is None
    assert shim.exit_code(tmp_path) is None


def test_the_environment_arrives_unchanged(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "d": "1", "w": "2", "n": "3", "s": "4", "stat": "5"}
    wait(spawn(tmp_path, "env", env))
    lines = (tmp_path / "raw").read_text().splitlines()
    assert {line.split("=", 1)[0] for line in lines} - {"PWD", "OLDPWD", "SHLVL", "_"} == env.keys()
    assert {"d=1", "w=2", "n=3", "s=4", "stat=5"} <= set(lines)
