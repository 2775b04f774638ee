"""`remuda cell serve`, `remuda manager register` and `remuda manager run` as separate processes."""

import json
import os
import re
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.waiting import wait_until

TOKEN = "glpat-chosen-by-the-operator"


def call(url: str, path: str, body: object | None = None) -> Any:
    request = urllib.request.Request(
        url + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"PRIVATE-TOKEN": TOKEN, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.loads(response.read())


def start_cell(world: Any, *arguments: str, **variables: str) -> tuple[Any, str]:
    process = world.start("cell", "serve", "--data", "cell", "--listen", "127.0.0.1:0", *arguments, **variables)
    output = ""
    while not (match := re.search(r"serves on (http://\S+)", output)):
        line = process.stderr.readline().decode()
        assert line, f"the cell ended: {output}"
        output += line
    return process, match[1]


def test_a_job_runs_through_separate_processes(world: Any, finish: Any) -> None:
    cell, url = start_cell(world, REMUDA_ADMIN_TOKEN=TOKEN)
    runner = call(url, "/api/v4/user/runners", {"runner_type": "instance_type"})
    registered = world.remuda(
        *("manager", "register", "--url", url, "--token", runner["token"]),
        *("--executor", "shell", "--config", "config.toml", "--name", "mine"),
    )
    assert registered.code == 0, registered.err
    assert "config.toml" in registered.out
    project = call(url, "/api/v4/projects", {"name": "shop"})
    action = {"action": "create", "file_path": ".gitlab-ci.yml", "content": "hello: {script: [echo it works]}\n"}
    commit = {"branch": "main", "commit_message": "x", "actions": [action]}
    call(url, f"/api/v4/projects/{project['id']}/repository/commits", commit)

    manager = world.start("manager", "run", "--config", "config.toml", "--data", "manager")
    log = world.remuda("job", "log", "1", "--follow", REMUDA_URL=url, REMUDA_TOKEN=TOKEN)
    assert "it works" in log.out

    manager.send_signal(signal.SIGQUIT)
    assert finish(manager).code == 0
    cell.send_signal(signal.SIGTERM)
    assert finish(cell).code == 0
    # The agent runs longer than its manager and ends when it is idle for a while; the test does not wait for that.
    agent = int((world.folder / "manager.jobs" / "agent" / "agent.lock").read_text())
    os.kill(agent, signal.SIGTERM)
    wait_until(lambda: not world.processes(), "the agent has ended")


def test_the_token_of_a_first_start_is_printed_once(world: Any, finish: Any) -> None:
    cell = world.start("cell", "serve", "--data", "cell", "--listen", "127.0.0.1:0")
    output = ""
    while "serves on" not in output:
        output += cell.stderr.readline().decode()
    assert re.search(r"^    glpat-\S+$", output, re.MULTILINE)
    cell.terminate()
    assert finish(cell).code == 0
    restarted, _ = start_cell(world)
    restarted.terminate()
    assert "glpat-" not in finish(restarted).err


def test_a_port_in_use_is_reported(world: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        result = world.remuda("cell", "serve", "--data", "cell", "--listen", address)
    assert result.code == 2
    assert f"cannot listen on {address}" in result.err
    assert "Traceback" not in result.err


def test_a_data_folder_of_a_newer_version_is_refused_and_not_changed(world: Any) -> None:
    folder = world.folder / "cell"
    folder.mkdir()
    (folder / "version").write_text("99\n")
    result = world.remuda("cell", "serve", "--data", folder, "--listen", "127.0.0.1:0")
    assert result.code == 2
    assert "version 99" in result.err
    assert (folder / "version").read_text() == "99\n"
    assert not (folder / "cell.sqlite").exists()


def test_a_data_folder_in_use_is_reported(world: Any, finish: Any) -> None:
    cell, _ = start_cell(world)
    result = world.remuda("cell", "serve", "--data", "cell", "--listen", "127.0.0.1:0")
    assert result.code == 2
    assert "in use by another process" in result.err
    cell.terminate()
    assert finish(cell).code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "nowhere"], "HOST:PORT"),
        (["--database", "postgresql://127.0.0.1:1/d", "--listen", "127.0.0.1:0"], "check that PostgreSQL runs there"),
        (["--cell-id", "0"], "positive number"),
        (["--cell-id", "one"], "--cell-id"),
    ],
)
def test_bad_arguments_of_a_cell_are_reported(world: Any, arguments: list[str], message: str) -> None:
    result = world.remuda("cell", "serve", "--data", "cell", *arguments)
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no such file"),
        ("concurrent = x\n", "config.toml:1: not valid TOML"),
        ('[[runners]]\nurl = "http://127.0.0.1:1"\nexecutor = "shell"\n', "runners[0].token: is missing"),
        ('[[runners]]\nurl = "http://127.0.0.1:1"\ntoken = "t"\nexecutor = "kubernetes"\n', "not run jobs in pods"),
    ],
)
def test_a_bad_configuration_is_reported(world: Any, text: str | None, message: str) -> None:
    if text is not None:
        (world.folder / "config.toml").write_text(text)
    result = world.remuda("manager", "run", "--config", "config.toml", "--data", "manager")
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err


def test_failed_registration_is_reported_and_writes_nothing(world: Any, finish: Any) -> None:
    cell, url = start_cell(world)
    config = Path(world.folder / "config.toml")
    wrong = world.remuda("manager", "register", "--url", url, "--token", "glrt-wrong", "--config", config)
    assert wrong.code == 2
    assert "token is not valid there" in wrong.err
    cell.terminate()
    assert finish(cell).code == 0
    unreachable = world.remuda("manager", "register", "--url", url, "--token", "glrt-wrong", "--config", config)
    assert unreachable.code == 2
    assert "cannot be reached" in unreachable.err
    assert not config.exists()
