"""Kills a standard step during its work: it leaves no archive and no git configuration with a token."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.step_jobs import Build

from remuda.testing.agent_process import AgentProcess, follow, steps_text
from remuda.testing.waiting import until

LONG = pytest.mark.long


class SilentServer:
    """A server that accepts data and never answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.received = threading.Event()
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, name="silent server")
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            if connection.recv(1):
                self.received.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            connection.close()
        self._thread.join()


@pytest.fixture
def silent() -> Iterator[SilentServer]:
    server = SilentServer()
    yield server
    server.close()


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentProcess]:
    """An agent with its own folder for temporary files."""
    (tmp_path / "tmp").mkdir()
    async with AgentProcess(tmp_path / "data") as process:
        await process.start(env={"TMPDIR": str(tmp_path / "tmp")})
        yield process


def inputs_of(step: str, url: str) -> dict[str, Any]:
    api = {"api_url": url, "token": "t"}
    inputs: dict[str, dict[str, Any]] = {
        "artifacts_upload": api | {"job_id": 1, "paths": ["file"], "when": "always", "artifact_format": "zip"},
        "artifacts_download": api | {"dependencies": [{"id": 1, "name": "a"}]},
        "cache_save": {"upload": f"{url}/x", "paths": ["file"]},
        "cache_restore": {"downloads": [f"{url}/x"]},
        "checkout": {"strategy": "fetch", "repo_url": f"{url}/x.git", "sha": "0" * 40, "ref": "main"},
    }
    return inputs[step]


def find_leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("remuda-*"))


@pytest.mark.parametrize(
    "ending", ["killed", *(pytest.param(ending, marks=LONG) for ending in ("closed", "cancelled"))]
)
@pytest.mark.parametrize("step", ["artifacts_upload", "artifacts_download", "cache_save", "cache_restore", "checkout"])
async def test_nothing_is_left_of_a_step_that_is_killed(
    agent: AgentProcess, a_job: Build, tmp_path: Path, silent: SilentServer, step: str, ending: str
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/file").write_text("something")
    call = {"name": "it", "step": f"builtin://{step}", "inputs": inputs_of(step, silent.url), "origin": "compiled"}
    async with agent.client() as client:
        await client.start(a_job(steps=steps_text(call)))
        await until(silent.received.is_set)
        assert find_leftovers(agent.data) != []
        match ending:
            case "killed":
                [claim] = (agent.data / "jobs").glob("*/step-*.pid")
                os.killpg(int(claim.read_text().split()[0]), signal.SIGKILL)
                await follow(client, "1")
            case "closed":
                await client.close_job("1")
            case _:
                await client.cancel("1")
                await follow(client, "1")
        assert (find_leftovers(tmp_path / "tmp"), find_leftovers(agent.data)) == ([], [])


SAVE = """
import os, sys
from pathlib import Path
from remuda.stdsteps.cache_save import step as cache_save

def stall(output, *rest, **more):
    Path(output).write_bytes(b"half an archive")
    print("writes", flush=True)
    sys.stdin.read()

cache_save.write_zip = stall
with cache_save.open_folder(f"{sys.argv[1]}/cache", sys.argv[1], is_made=True) as folder:
    cache_save.save(folder / "key.zip", Path(sys.argv[1]), {"file"})
"""


def test_nothing_is_left_of_a_cache_whose_saver_is_killed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("something")
    command = [sys.executable, "-c", SAVE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as saver:
        assert saver.stdout is not None
        assert saver.stdout.readline() == b"writes\n"
        saver.kill()
    assert list((tmp_path / "cache").iterdir()) == []
