"""What keeps every job of a runner from running on this machine: its engine, or the user of its jobs."""

import os
import shutil
import socketserver
import subprocess
import sys
import threading
from ast import literal_eval
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from remuda.manager.config.custom import CustomConfig
from remuda.manager.config.docker import DockerConfig
from remuda.manager.config.values import RemudaConfig, RunnerConfig
from remuda.manager.environments.obstacles import ObstacleSearch, find_engine_problem, find_user_problem
from remuda.steps.policy import hidden_folders

NOBODY = 60123
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes as another user")


class Ping(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Api-Version", "1.41")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[str]:
    """Serve the first call of every client of a container engine. Yields the address."""
    with socketserver.ThreadingUnixStreamServer(str(tmp_path / "engine.sock"), Ping) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"unix://{tmp_path}/engine.sock"
        server.shutdown()
        thread.join()


def docker_runner(host: str, *, executor: str = "docker") -> RunnerConfig:
    return RunnerConfig(executor=executor, docker=DockerConfig(host=host))


async def test_a_runner_with_an_engine_has_no_obstacle(engine: str) -> None:
    assert await ObstacleSearch(docker_runner(engine)).find() == ""


def test_a_missing_engine_is_named(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/none.sock"
    problem = find_engine_problem(docker_runner(address))
    assert problem.startswith(f"the container engine at {address} cannot be used: the socket does not exist")
    assert find_engine_problem(docker_runner(address, executor="docker-autoscaler")) == "", "it is on other machines"


def test_an_engine_that_is_looked_for(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine)
    assert find_engine_problem(docker_runner("auto")) == ""
    monkeypatch.setenv("DOCKER_HOST", f"{engine}.gone")
    problem = find_engine_problem(docker_runner("auto"))
    assert problem.startswith(f"no container engine answers. Tried: {engine}.gone (DOCKER_HOST): the socket does not")


@as_root
@pytest.mark.parametrize("key", ["first_uid", "run_as"])
def test_a_python_that_job_users_cannot_read(tmp_path: Path, key: str) -> None:
    closed = tmp_path / "home"
    closed.mkdir(mode=0o700)
    python = shutil.copy2(os.path.realpath(sys.executable), closed / "python")
    value: dict[str, str | int] = {key: NOBODY if key == "first_uid" else str(NOBODY)}
    runner = RunnerConfig(executor="shell", remuda=RemudaConfig(**value))  # type: ignore[arg-type]
    problem = find_user_problem(runner, python=str(python))
    assert f"user {NOBODY} ({key}) cannot read Remuda's Python" in problem
    assert "is closed to others" in problem
    assert "Permission denied" in problem
    assert "below /opt" in problem


@as_root
def test_a_user_that_does_not_exist() -> None:
    runner = RunnerConfig(executor="shell", remuda=RemudaConfig(run_as="no-such-user"))
    assert find_user_problem(runner).startswith("run_as cannot be used: there is no user 'no-such-user'")


def test_runners_without_a_user_of_their_own_are_not_checked(tmp_path: Path) -> None:
    assert find_user_problem(RunnerConfig(executor="shell"), python="/nowhere/python") == ""


async def test_programs_and_folders_without_which_all_jobs_fail(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    runner = RunnerConfig(executor="custom", custom=CustomConfig(run_exec=str(script)))
    assert await ObstacleSearch(runner).find() == f"custom.run_exec: {script}: there is no such program"
    script.write_text("#!/bin/sh\n")
    assert await ObstacleSearch(runner).find() == f"custom.run_exec: {script}: is not executable (chmod +x)"
    script.chmod(0o755)
    assert await ObstacleSearch(runner).find() == ""
    runner = RunnerConfig(executor="shell", builds_dir=str(script / "builds"))
    assert await ObstacleSearch(runner).find() == f"builds_dir: {script} is no folder; name another one"


FIND_PROBLEMS = """
import os, sys
from remuda.manager.config.custom import CustomConfig
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.obstacles import find_setup_problems
closed, user = sys.argv[1], int(sys.argv[2])
os.setgroups([]); os.setgid(user); os.setuid(user)
program = RunnerConfig(executor="custom", custom=CustomConfig(run_exec=f"{closed}/run"))
folder = RunnerConfig(executor="shell", builds_dir=f"{closed}/builds/of/jobs", cache_dir="/tmp")
print([*find_setup_problems(program), *find_setup_problems(folder)])
"""


@as_root
def test_a_folder_that_the_manager_may_not_enter(public_folder: Path) -> None:
    closed = public_folder / "closed"
    closed.mkdir(mode=0o700)
    (closed / "run").touch()
    (closed / "builds").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", FIND_PROBLEMS, str(closed), str(NOBODY)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert literal_eval(done.stdout) == [
        ("custom.run_exec", f"{closed}/run: there is no such program"),
        ("builds_dir", f"{closed} cannot be written to; let the manager's user write there, or name another"),
    ]


async def test_a_sandbox_without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_folders, "SEARCH", ())
    runner = RunnerConfig(executor="shell", remuda=RemudaConfig(sandbox=True))
    assert await ObstacleSearch(runner).find() == (
        "remuda.sandbox: there is no bwrap on this machine; install bubblewrap"
    )
