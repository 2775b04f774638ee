"""A step started from the standby process leaves what one under the shim leaves."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.steps.process import shim
from remuda.steps.process.fork_server import WAITS, Leader, Standby, request_of
from remuda.steps.process.step_files import StepFiles

ENV = {"PATH": "/usr/bin:/bin", "MARK": "given"}


@pytest.fixture
def files(tmp_path: Path) -> StepFiles:
    return StepFiles(tmp_path, 0)


@pytest.fixture
def standby() -> Iterator[Standby]:
    made = Standby()
    yield made
    made.close()


def exit_code(files: StepFiles) -> int | None:
    found = shim.record(files)
    return found.exit_code if found else None


def spawn(standby: Standby, files: StepFiles, inputs: object = None) -> tuple[int, int] | None:
    """A checkout that does nothing, or one that finds its inputs wrong; its leader goes with it."""
    leader = standby.spawn(request(files, inputs))
    if leader is None:
        return None
    leader.leave()
    return leader.pid, leader.start


def request(files: StepFiles, inputs: object = None, open_files: int = 512) -> dict[str, Any]:
    files.raw.touch()
    files.inputs.parent.mkdir(exist_ok=True)
    files.inputs.write_text(json.dumps(inputs or {"strategy": "none"}))
    work_dir = files.base.parent / "work"
    work_dir.mkdir(exist_ok=True)
    env = ENV | {"REMUDA_INPUTS": str(files.inputs)}
    return request_of(files, ["checkout"], work_dir=work_dir, env=env, open_files=open_files)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()


def ended(files: StepFiles) -> int:
    until(lambda: exit_code(files) is not None)
    code = exit_code(files)
    assert code is not None
    return code


def test_files_of_a_step(standby: Standby, files: StepFiles) -> None:
    started = spawn(standby, files)
    assert started is not None
    assert ended(files) == 0
    assert shim.claimed(files) == started
    assert files.raw.read_text() == "Skipping Git repository setup\n"
    found = shim.record(files)
    assert found is not None
    assert found.usage is not None
    assert found.usage[2] > 1000


def test_steps_have_an_environment_and_a_directory_of_their_own(standby: Standby, tmp_path: Path) -> None:
    for number in (0, 1):
        files = StepFiles(tmp_path, number)
        assert spawn(standby, files, {"strategy": "empty"}) is not None
        assert ended(files) == 0
    assert os.getcwd() != str(tmp_path / "work")
    assert "MARK" not in os.environ


def test_a_step_that_fails_says_so(standby: Standby, files: StepFiles) -> None:
    spawn(standby, files, {"strategy": "fetch", "sha": "no"})
    assert ended(files) != 0
    assert "ERROR: input sha" in files.raw.read_text()


def test_a_step_that_somebody_claimed_is_not_started(standby: Standby, files: StepFiles) -> None:
    assert shim.forbid(files)
    started = spawn(standby, files)
    assert started is not None
    until(lambda: shim.start_time(started[0]) is None)
    assert exit_code(files) is None
    assert files.raw.read_text() == ""


def test_a_signal_to_the_group_ends_the_step_and_its_end_is_written(standby: Standby, files: StepFiles) -> None:
    # A server that accepts and says nothing holds the step.
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x.git"
        started = spawn(standby, files, {"repo_url": url, "sha": "0" * 40})
        assert started is not None
        connection = server.accept()[0]
        connection.recv(1)
        os.killpg(started[0], signal.SIGTERM)
        assert ended(files) == 128 + signal.SIGTERM
        connection.close()


def test_a_step_outlives_the_standby_process(standby: Standby, files: StepFiles) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x.git"
        started = spawn(standby, files, {"repo_url": url, "sha": "0" * 40})
        assert started is not None
        connection = server.accept()[0]
        connection.recv(1)
        standby.close()
        connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        connection.close()
        assert ended(files) != 0
    assert "git fetch failed" in files.raw.read_text()


def test_where_it_is_gone_the_shim_is_to_be_used(standby: Standby, files: StepFiles) -> None:
    assert standby._pid is not None
    os.kill(standby._pid, signal.SIGKILL)
    assert spawn(standby, files) is None
    assert spawn(standby, files) is None


def waits(leader: Leader) -> bool:
    """Whether it tells that it does; False when it is gone."""
    os.set_blocking(leader.line, True)
    return os.read(leader.line, 64) == WAITS


def test_a_leader_takes_the_next_step(standby: Standby, tmp_path: Path) -> None:
    first, second = StepFiles(tmp_path, 0), StepFiles(tmp_path, 1)
    leader = standby.spawn(request(first))
    assert leader is not None
    assert waits(leader)
    assert leader.take(request(second, {"strategy": "empty"}))
    assert waits(leader)
    leader.leave()
    until(lambda: shim.start_time(leader.pid) is None)
    for files in (first, second):
        assert shim.claimed(files) == (leader.pid, leader.start)
        assert exit_code(files) == 0
    assert first.raw.read_text() != second.raw.read_text()
    assert "empty build directory" in second.raw.read_text()


def test_a_leader_counts_for_each_step_what_that_used(standby: Standby, tmp_path: Path) -> None:
    first, second = StepFiles(tmp_path, 0), StepFiles(tmp_path, 1)
    leader = standby.spawn(request(first))
    assert leader is not None
    assert waits(leader)
    # What it has used meanwhile is nobody's.
    assert leader.take(request(second))
    assert waits(leader)
    leader.leave()
    found = shim.record(second)
    assert found is not None
    assert found.usage is not None
    assert 0 <= found.usage[0] < 1
    assert found.usage[2] > 1000


def test_a_leader_that_waits_holds_nothing_of_the_step(standby: Standby, files: StepFiles) -> None:
    leader = standby.spawn(request(files))
    assert leader is not None
    assert waits(leader)
    assert os.readlink(f"/proc/{leader.pid}/cwd") == "/"
    held = {os.readlink(f"/proc/{leader.pid}/fd/{name}") for name in os.listdir(f"/proc/{leader.pid}/fd")}
    assert not any(path.startswith(str(files.base.parent)) for path in held)
    leader.leave()


def test_a_leader_whose_step_failed_goes(standby: Standby, files: StepFiles) -> None:
    leader = standby.spawn(request(files, {"strategy": "fetch", "sha": "no"}))
    assert leader is not None
    assert not waits(leader)
    assert ended(files) != 0
    leader.leave()


def test_a_leader_that_waits_goes_by_a_signal(standby: Standby, files: StepFiles) -> None:
    leader = standby.spawn(request(files))
    assert leader is not None
    assert waits(leader)
    os.killpg(leader.pid, signal.SIGTERM)
    until(lambda: shim.start_time(leader.pid) is None)
    assert exit_code(files) == 0
    assert not leader.take(request(files))


def test_a_leader_does_not_run_what_somebody_claimed(standby: Standby, tmp_path: Path) -> None:
    first, second = StepFiles(tmp_path, 0), StepFiles(tmp_path, 1)
    leader = standby.spawn(request(first))
    assert leader is not None
    assert waits(leader)
    assert shim.forbid(second)
    assert leader.take(request(second))
    assert not waits(leader)
    assert second.raw.read_text() == ""
    leader.leave()


def test_who_closes_it_sees_those_off_that_were_let_go(standby: Standby, files: StepFiles) -> None:
    leader = standby.spawn(request(files))
    assert leader is not None
    assert waits(leader)
    standby.part(leader)
    standby.close()
    assert not leader.lives()
