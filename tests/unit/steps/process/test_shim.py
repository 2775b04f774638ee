import os
import socket
import time
from pathlib import Path

import pytest

from remuda.steps.process import shim
from remuda.steps.process.pipes import Pipe
from remuda.steps.process.step_files import StepFiles
from remuda.testing.waiting import wait_until


@pytest.fixture
def files(tmp_path: Path) -> StepFiles:
    return StepFiles(tmp_path, 0)


def spawn(files: StepFiles, script: str, env: dict[str, str] | None = None) -> int:
    Path(files.own_path(".raw")).touch()
    return shim.spawn(
        files,
        ["/bin/sh", "-c", script],
        work_dir=files.base.parent,
        env=env or {"PATH": "/usr/bin:/bin"},
        open_files=512,
    )


def wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def read_exit_code(files: StepFiles) -> int | None:
    record = shim.read_record(files)
    assert record is not None
    return record.exit_code


def test_an_error_at_the_start_does_not_mention_the_shim(files: StepFiles) -> None:
    raw = Path(files.own_path(".raw"))
    raw.touch()
    wait(shim.spawn(files, ["/no/program"], work_dir=files.base.parent, env={"PATH": "/bin"}, open_files=512))
    assert raw.read_text() == "exec: /no/program: not found\n"
    assert read_exit_code(files) == 127


def test_files_of_a_step(files: StepFiles) -> None:
    pid = spawn(files, "echo out; echo err >&2; pwd; ulimit -Sn; exit 7")
    assert wait(pid) == 0
    record = shim.read_record(files)
    assert record is not None
    assert (record.pid, record.exit_code, record.usage) == (pid, 7, None)
    assert Path(files.own_path(".raw")).read_text() == f"out\nerr\n{files.base.parent}\n512\n"
    assert abs((record.ended_at or 0) - time.time()) < 5


def test_a_second_shim_exits_without_running_the_command(files: StepFiles) -> None:
    first = spawn(files, "echo run")
    assert wait(first) == 0
    assert wait(spawn(files, "echo run")) == shim.LOST_CLAIM
    assert Path(files.own_path(".raw")).read_text() == "run\n"


def test_a_forbidden_step_never_starts(files: StepFiles) -> None:
    assert shim.forbid(files)
    assert wait(spawn(files, "echo run")) == shim.LOST_CLAIM
    assert shim.read_claim(files) is None
    assert not shim.forbid(files)


def test_the_shim_survives_a_signal_to_its_group(files: StepFiles) -> None:
    pid = spawn(files, "echo up; exec sleep 60")
    wait_until(lambda: Path(files.own_path(".raw")).read_text() == "up\n")
    assert os.getpgid(pid) == os.getsid(pid) == pid
    os.killpg(pid, 15)
    assert wait(pid) == 0
    assert read_exit_code(files) == 128 + 15
    assert Path(files.own_path(".raw")).read_text() == "up\n"


def test_the_claim_contains_the_start_time_of_the_kernel(files: StepFiles) -> None:
    pid = spawn(files, "read line </dev/zero")
    wait_until(lambda: shim.read_claim(files))
    claim = shim.read_claim(files)
    assert claim == (pid, shim.start_time(pid))
    os.killpg(pid, 9)
    wait(pid)
    assert read_exit_code(files) is None
    assert shim.start_time(pid) is None


def test_the_exit_code_of_a_missing_program(files: StepFiles) -> None:
    pid = shim.spawn(files, ["/no/such"], work_dir=files.base.parent, env={}, open_files=512)
    wait(pid)
    assert read_exit_code(files) == 127
    assert b"/no/such" in Path(files.own_path(".raw")).read_bytes()


@pytest.mark.parametrize("text", ["", "12", "12 34"])
def test_an_incomplete_claim_is_ignored(files: StepFiles, text: str) -> None:
    Path(files.claim).write_text(text)
    assert shim.read_claim(files) is None


@pytest.mark.parametrize("text", ["", "1", "12 0.5"])
def test_an_incomplete_exit_code_is_ignored(files: StepFiles, text: str) -> None:
    Path(files.claim).write_text(f"12 34\n{text}")
    assert shim.read_record(files) == shim.Record(pid=12, start=34)


@pytest.mark.parametrize(
    "text",
    [
        *("0\n", "x y\n", "12 34 56\n", "1 34\n", "-12 34\n", "99999999999 34\n", "\xff\xfe\n", "\n\n"),
        *("12 34\nx\n", "12 34\n256\n", "12 34\n-1\n", "12 34\n0 1.0\n", "12 34\n0 nan 1.0 5\n"),
    ],
)
def test_a_malformed_claim_is_ignored(files: StepFiles, text: str) -> None:
    Path(files.claim).write_text(text, encoding="latin-1")
    assert shim.read_record(files) is None


def test_a_claim_that_is_not_a_regular_file_is_ignored(files: StepFiles) -> None:
    os.mkfifo(files.claim)
    assert shim.read_record(files) is None
    Path(files.claim).unlink()
    Path(files.claim).mkdir()
    assert shim.read_record(files) is None


def test_the_environment_arrives_unchanged(files: StepFiles) -> None:
    env = {"PATH": "/usr/bin:/bin", "d": "1", "w": "2", "n": "3", "s": "4", "stat": "5"}
    wait(spawn(files, "env", env))
    lines = Path(files.own_path(".raw")).read_text().splitlines()
    assert {line.split("=", 1)[0] for line in lines} - {"PWD", "OLDPWD", "SHLVL", "_"} == env.keys()
    assert {"d=1", "w=2", "n=3", "s=4", "stat=5"} <= set(lines)


def test_the_command_does_not_start_if_it_cannot_join_its_control_groups(files: StepFiles, tmp_path: Path) -> None:
    joins = [str(tmp_path / "one"), str(tmp_path / "two")]
    command = ["/bin/sh", "-c", "echo ran"]
    folder, env = files.base.parent, {"PATH": "/bin"}
    assert wait(shim.spawn(files, command, work_dir=folder, env=env, open_files=512, joins=joins)) == 0
    assert Path(files.own_path(".raw")).read_text() == "ran\n"
    assert [Path(join).read_text() for join in joins] == ["0\n", "0\n"]
    other = StepFiles(tmp_path, 1)
    missing = [*joins, str(tmp_path / "none/there")]
    assert wait(shim.spawn(other, command, work_dir=folder, env=env, open_files=512, joins=missing)) == 0
    assert read_exit_code(other) not in (0, None)
    assert "ran" not in Path(other.own_path(".raw")).read_text()


def spawn_piped(files: StepFiles, script: str) -> tuple[int, socket.socket, Pipe]:
    pipe, write_end = Pipe.make()
    ours, theirs = socket.socketpair()
    command = ["/bin/sh", "-c", script]
    env = {"PATH": "/usr/bin:/bin"}
    ends = (theirs.fileno(), write_end)
    pid = shim.spawn(files, command, work_dir=files.base.parent, env=env, open_files=512, ends=ends)
    theirs.close()
    os.close(write_end)
    return pid, ours, pipe


def test_a_shim_exits_when_its_agent_allows_it(files: StepFiles) -> None:
    pid, line, pipe = spawn_piped(files, "echo out; echo err >/dev/stderr; exit 7")
    assert line.recv(10) == b"\n"
    assert read_exit_code(files) == 7
    assert shim.read_claim(files) == (pid, shim.start_time(pid))
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    pipe.take(files.own_path(".raw"))
    line.sendall(b"\n")
    assert wait(pid) == 0
    assert Path(files.own_path(".raw")).read_text() == "out\nerr\n"
    line.close()
    pipe.close()


def test_a_shim_without_an_agent_keeps_the_output_of_its_command(files: StepFiles) -> None:
    pid, line, pipe = spawn_piped(files, "echo out; read line </dev/zero")
    line.close()
    wait_until(pipe.count_waiting)
    pipe.close()
    os.killpg(pid, 15)
    wait_until(lambda: read_exit_code(files) is not None)
    reopened = Pipe.open_of(pid)
    assert reopened is not None
    assert reopened.count_waiting() == 4
    assert shim.read_claim(files) == (pid, shim.start_time(pid))
    os.kill(pid, 9)
    assert wait(pid) == -9
    assert shim.read_claim(files) == (pid, 0)
    reopened.close()
