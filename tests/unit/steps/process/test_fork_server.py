"""Steps that the fork server starts leave the same files as steps under the shim; its workers run several steps."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remuda.steps.process import shim
from remuda.steps.process.fork_server import WAITS, ForkServer, Worker, build_request
from remuda.steps.process.step_files import StepFiles
from remuda.testing.waiting import wait_until

ENV = {"PATH": "/usr/bin:/bin", "MARK": "set"}


@pytest.fixture
def files(tmp_path: Path) -> StepFiles:
    return StepFiles(tmp_path, 0)


@pytest.fixture
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


def read_exit_code(files: StepFiles) -> int | None:
    record = shim.read_record(files)
    return record.exit_code if record else None


def spawn(fork_server: ForkServer, files: StepFiles, inputs: object = None) -> tuple[int, int] | None:
    """Start a checkout, which does nothing by default, and dismiss its worker. Returns process id and start time."""
    worker = fork_server.spawn(prepare_request(files, inputs))
    if worker is None:
        return None
    worker.leave()
    return worker.pid, worker.start


def prepare_request(files: StepFiles, inputs: object = None, open_files: int = 512) -> dict[str, Any]:
    Path(files.own_path(".raw")).touch()
    files.inputs.parent.mkdir(exist_ok=True)
    files.inputs.write_text(json.dumps(inputs or {"strategy": "none"}))
    work_dir = files.base.parent / "work"
    work_dir.mkdir(exist_ok=True)
    env = ENV | {"REMUDA_INPUTS": str(files.inputs)}
    return build_request(files, ["checkout"], work_dir=work_dir, env=env, open_files=open_files)


def wait_for_exit_code(files: StepFiles) -> int:
    wait_until(lambda: read_exit_code(files) is not None)
    code = read_exit_code(files)
    assert code is not None
    return code


def test_files_of_a_step(fork_server: ForkServer, files: StepFiles) -> None:
    started = spawn(fork_server, files)
    assert started is not None
    assert wait_for_exit_code(files) == 0
    assert shim.read_claim(files) == started
    assert Path(files.own_path(".raw")).read_text() == "Skipping Git repository setup\n"
    record = shim.read_record(files)
    assert record is not None
    assert record.usage is not None
    assert record.usage[2] > 1000


def test_each_step_has_its_own_environment_and_directory(fork_server: ForkServer, tmp_path: Path) -> None:
    for number in (0, 1):
        files = StepFiles(tmp_path, number)
        assert spawn(fork_server, files, {"strategy": "empty"}) is not None
        assert wait_for_exit_code(files) == 0
    assert os.getcwd() != str(tmp_path / "work")
    assert "MARK" not in os.environ


def test_a_failed_step_prints_its_error(fork_server: ForkServer, files: StepFiles) -> None:
    spawn(fork_server, files, {"strategy": "fetch", "sha": "no"})
    assert wait_for_exit_code(files) != 0
    assert "ERROR: input sha" in Path(files.own_path(".raw")).read_text()


def test_a_claimed_step_is_not_started(fork_server: ForkServer, files: StepFiles) -> None:
    assert shim.forbid(files)
    started = spawn(fork_server, files)
    assert started is not None
    wait_until(lambda: shim.start_time(started[0]) is None)
    assert read_exit_code(files) is None
    assert Path(files.own_path(".raw")).read_text() == ""


@contextmanager
def spawn_waiting_fetch(fork_server: ForkServer, files: StepFiles) -> Iterator[tuple[int, socket.socket]]:
    """Start a checkout that waits for the response of a git server. Yields its process id and the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x.git"
        started = spawn(fork_server, files, {"repo_url": url, "sha": "0" * 40})
        assert started is not None
        connection = server.accept()[0]
        with connection:
            connection.recv(1)
            yield started[0], connection


def test_a_signal_to_the_group_ends_the_step_with_its_exit_code(fork_server: ForkServer, files: StepFiles) -> None:
    with spawn_waiting_fetch(fork_server, files) as (pid, _):
        os.killpg(pid, signal.SIGTERM)
        assert wait_for_exit_code(files) == 128 + signal.SIGTERM


def test_a_step_outlives_the_fork_server(fork_server: ForkServer, files: StepFiles) -> None:
    with spawn_waiting_fetch(fork_server, files) as (_, connection):
        fork_server.close()
        connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        connection.close()
        assert wait_for_exit_code(files) != 0
    assert "git fetch failed" in Path(files.own_path(".raw")).read_text()


def test_spawn_returns_none_if_the_fork_server_is_gone(fork_server: ForkServer, files: StepFiles) -> None:
    assert fork_server._pid is not None
    os.kill(fork_server._pid, signal.SIGKILL)
    assert spawn(fork_server, files) is None
    assert spawn(fork_server, files) is None


def is_waiting(worker: Worker) -> bool:
    """Wait for a message of the worker. True if it waits for a step, False if it has exited."""
    os.set_blocking(worker.line, True)
    return os.read(worker.line, 64) == WAITS


def start_worker(fork_server: ForkServer, files: StepFiles) -> Worker:
    """Run a step that does nothing; the worker then waits for the next step."""
    worker = fork_server.spawn(prepare_request(files))
    assert worker is not None
    assert is_waiting(worker)
    return worker


def test_a_worker_runs_the_next_step(fork_server: ForkServer, tmp_path: Path) -> None:
    first, second = StepFiles(tmp_path, 0), StepFiles(tmp_path, 1)
    worker = start_worker(fork_server, first)
    assert worker.take(prepare_request(second, {"strategy": "empty"}))
    assert is_waiting(worker)
    worker.leave()
    wait_until(lambda: shim.start_time(worker.pid) is None)
    for files in (first, second):
        assert shim.read_claim(files) == (worker.pid, worker.start)
        assert read_exit_code(files) == 0
    assert Path(first.own_path(".raw")).read_text() != Path(second.own_path(".raw")).read_text()
    assert "empty build directory" in Path(second.own_path(".raw")).read_text()


def test_a_worker_reports_the_usage_of_each_step_separately(fork_server: ForkServer, tmp_path: Path) -> None:
    first, second = StepFiles(tmp_path, 0), StepFiles(tmp_path, 1)
    worker = start_worker(fork_server, first)
    # The time that the worker uses between two steps belongs to neither.
    assert worker.take(prepare_request(second))
    assert is_waiting(worker)
    worker.leave()
    record = shim.read_record(second)
    assert record is not None
    assert record.usage is not None
    assert 0 <= record.usage[0] < 1
    assert record.usage[2] > 1000


def test_a_waiting_worker_has_no_open_files_of_the_step(fork_server: ForkServer, files: StepFiles) -> None:
    worker = start_worker(fork_server, files)
    assert os.readlink(f"/proc/{worker.pid}/cwd") == "/"
    open_paths = {os.readlink(f"/proc/{worker.pid}/fd/{name}") for name in os.listdir(f"/proc/{worker.pid}/fd")}
    assert not any(path.startswith(str(files.base.parent)) for path in open_paths)
    worker.leave()


def test_a_worker_exits_after_a_failed_step(fork_server: ForkServer, files: StepFiles) -> None:
    worker = fork_server.spawn(prepare_request(files, {"strategy": "fetch", "sha": "no"}))
    assert worker is not None
    assert not is_waiting(worker)
    assert wait_for_exit_code(files) != 0
    worker.leave()


def test_a_signal_ends_a_waiting_worker(fork_server: ForkServer, files: StepFiles) -> None:
    worker = start_worker(fork_server, files)
    os.killpg(worker.pid, signal.SIGTERM)
    wait_until(lambda: shim.start_time(worker.pid) is None)
    assert read_exit_code(files) == 0
    assert not worker.take(prepare_request(files))


def test_a_worker_does_not_run_a_claimed_step(fork_server: ForkServer, tmp_path: Path) -> None:
    first, second = StepFiles(tmp_path, 0), StepFiles(tmp_path, 1)
    worker = start_worker(fork_server, first)
    assert shim.forbid(second)
    assert worker.take(prepare_request(second))
    assert not is_waiting(worker)
    assert Path(second.own_path(".raw")).read_text() == ""
    worker.leave()


def test_close_waits_for_dismissed_workers(fork_server: ForkServer, files: StepFiles) -> None:
    worker = start_worker(fork_server, files)
    fork_server.part(worker)
    fork_server.close()
    assert not worker.lives()
