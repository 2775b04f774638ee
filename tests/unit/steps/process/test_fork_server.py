"""A step started from the fork_server process leaves what one under the shim leaves."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.steps.process import shim
from remuda.steps.process.fork_server import WAITS, ForkServer, Worker, build_request
from remuda.steps.process.step_files import StepFiles
from remuda.testing.waiting import wait_until

ENV = {"PATH": "/usr/bin:/bin", "MARK": "given"}


@pytest.fixture
def files(tmp_path: Path) -> StepFiles:
    return StepFiles(tmp_path, 0)


@pytest.fixture
def fork_server() -> Iterator[ForkServer]:
    made = ForkServer()
    yield made
    made.close()


def exit_code(files: StepFiles) -> int | None:
    found = shim.read_record(files)
    return found.exit_code if found else None


def spawn(fork_server: ForkServer, files: StepFiles, inputs: object = None) -> tuple[int, int] | None:
    """A checkout that does nothing, or one that finds its inputs wrong; its worker goes with it."""
    worker = fork_server.spawn(request(files, inputs))
    if worker is None:
        return None
    worker.leave()
    return worker.pid, worker.start


def request(files: StepFiles, inputs: object = None, open_files: int = 512) -> dict[str, Any]:
    Path(files.own_path(".raw")).touch()
    files.inputs.parent.mkdir(exist_ok=True)
    files.inputs.write_text(json.dumps(inputs or {"strategy": "none"}))
    work_dir = files.base.parent / "work"
    work_dir.mkdir(exist_ok=True)
    env = ENV | {"REMUDA_INPUTS": str(files.inputs)}
    return build_request(files, ["checkout"], work_dir=work_dir, env=env, open_files=open_files)


def ended(files: StepFiles) -> int:
    wait_until(lambda: exit_code(files) is not None)
    code = exit_code(files)
    assert code is not None
    return code


def test_files_of_a_step(fork_server: ForkServer, files: StepFiles) -> None:
    started = spawn(fork_server, files)
    assert started is not None
    assert ended(files) == 0
    assert shim.read_claim(files) == started
    assert Path(files.own_path(".raw")).read_text() == "Skipping Git repository setup\n"
    found = shim.read_record(files)
    assert found is not None
    assert found.usage is not None
    assert found.usage[2] > 1000


def test_steps_have_an_environment_and_a_directory_of_their_own(fork_server: ForkServer, tmp_path: Path) -> None:
    for number in (0, 1):
        files = StepFiles(tmp_path, number)
        assert spawn(fork_server, files, {"strategy": "empty"}) is not None
        assert ended(files) == 0
    assert os.getcwd() != str(tmp_path / "work")
    assert "MARK" not in os.environ


def test_a_step_that_fails_says_so(fork_server: ForkServer, files: StepFiles) -> None:
    spawn(fork_server, files, {"strategy": "fetch", "sha": "no"})
    assert ended(files) != 0
    assert "ERROR: input sha" in Path(files.own_path(".raw")).read_text()


def test_a_step_that_somebody_claimed_is_not_started(fork_server: ForkServer, files: StepFiles) -> None:
    assert shim.forbid(files)
    started = spawn(fork_server, files)
    assert started is not None
    wait_until(lambda: shim.start_time(started[0]) is None)
    assert exit_code(files) is None
    assert Path(files.own_path(".raw")).read_text() == ""


def test_a_signal_to_the_group_ends_the_step_and_its_end_is_written(fork_server: ForkServer, files: StepFiles) -> None:
    # A server that accepts and says nothing holds the step.
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x.git"
        started = spawn(fork_server, files, {"repo_url": url, "sha": "0" * 40})
        assert started is not None
        connection = server.accept()[0]
        connection.recv(1)
        os.killpg(started[0], signal.SIGTERM)
        assert ended(files) == 128 + signal.SIGTERM
        connection.close()


def test_a_step_outlives_the_fork_server(fork_server: ForkServer, files: StepFiles) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x.git"
        started = spawn(fork_server, files, {"repo_url": url, "sha": "0" * 40})
        assert started is not None
        connection = server.accept()[0]
        connection.recv(1)
        fork_server.close()
        connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        connection.close()
        assert ended(files) != 0
    assert "git fetch failed" in Path(files.own_path(".raw")).read_text()


def test_where_it_is_gone_the_shim_is_to_be_used(fork_server: ForkServer, files: StepFiles) -> None:
    assert fork_server._pid is not None
    os.kill(fork_server._pid, signal.SIGKILL)
    assert spawn(fork_server, files) is None
    assert spawn(fork_server, files) is None


def waits(worker: Worker) -> bool:
    """Whether it tells that it does; False when it is gone."""
    os.set_blocking(worker.line, True)
    return os.read(worker.line, 64) == WAITS


def test_a_worker_takes_the_next_step(fork_server: ForkServer, tmp_path: Path) -> None:
    first, second = StepFiles(tmp_path, 0), StepFiles(tmp_path, 1)
    worker = fork_server.spawn(request(first))
    assert worker is not None
    assert waits(worker)
    assert worker.take(request(second, {"strategy": "empty"}))
    assert waits(worker)
    worker.leave()
    wait_until(lambda: shim.start_time(worker.pid) is None)
    for files in (first, second):
        assert shim.read_claim(files) == (worker.pid, worker.start)
        assert exit_code(files) == 0
    assert Path(first.own_path(".raw")).read_text() != Path(second.own_path(".raw")).read_text()
    assert "empty build directory" in Path(second.own_path(".raw")).read_text()


def test_a_worker_counts_for_each_step_what_that_used(fork_server: ForkServer, tmp_path: Path) -> None:
    first, second = StepFiles(tmp_path, 0), StepFiles(tmp_path, 1)
    worker = fork_server.spawn(request(first))
    assert worker is not None
    assert waits(worker)
    # What it has used meanwhile is nobody's.
    assert worker.take(request(second))
    assert waits(worker)
    worker.leave()
    found = shim.read_record(second)
    assert found is not None
    assert found.usage is not None
    assert 0 <= found.usage[0] < 1
    assert found.usage[2] > 1000


def test_a_worker_that_waits_holds_nothing_of_the_step(fork_server: ForkServer, files: StepFiles) -> None:
    worker = fork_server.spawn(request(files))
    assert worker is not None
    assert waits(worker)
    assert os.readlink(f"/proc/{worker.pid}/cwd") == "/"
    held = {os.readlink(f"/proc/{worker.pid}/fd/{name}") for name in os.listdir(f"/proc/{worker.pid}/fd")}
    assert not any(path.startswith(str(files.base.parent)) for path in held)
    worker.leave()


def test_a_worker_whose_step_failed_goes(fork_server: ForkServer, files: StepFiles) -> None:
    worker = fork_server.spawn(request(files, {"strategy": "fetch", "sha": "no"}))
    assert worker is not None
    assert not waits(worker)
    assert ended(files) != 0
    worker.leave()


def test_a_worker_that_waits_goes_by_a_signal(fork_server: ForkServer, files: StepFiles) -> None:
    worker = fork_server.spawn(request(files))
    assert worker is not None
    assert waits(worker)
    os.killpg(worker.pid, signal.SIGTERM)
    wait_until(lambda: shim.start_time(worker.pid) is None)
    assert exit_code(files) == 0
    assert not worker.take(request(files))


def test_a_worker_does_not_run_what_somebody_claimed(fork_server: ForkServer, tmp_path: Path) -> None:
    first, second = StepFiles(tmp_path, 0), StepFiles(tmp_path, 1)
    worker = fork_server.spawn(request(first))
    assert worker is not None
    assert waits(worker)
    assert shim.forbid(second)
    assert worker.take(request(second))
    assert not waits(worker)
    assert Path(second.own_path(".raw")).read_text() == ""
    worker.leave()


def test_who_closes_it_sees_those_off_that_were_let_go(fork_server: ForkServer, files: StepFiles) -> None:
    worker = fork_server.spawn(request(files))
    assert worker is not None
    assert waits(worker)
    fork_server.part(worker)
    fork_server.close()
    assert not worker.lives()
