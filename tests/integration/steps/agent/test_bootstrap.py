"""Placing the agent: the file runs where it is put, is left alone when it is there, and may be put there by many."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.steps.pack.zip_file import pack
from remuda.testing.agent_process import PROGRAM, AgentProcess, run_job, steps_text
from remuda.wire.agent_client import JobStart


def bootstrap(*arguments: str | Path, program: tuple[str, ...] = PROGRAM, path: str = "") -> tuple[int, str, str]:
    env = os.environ | ({"PATH": path} if path else {})
    done = subprocess.run([*program, "bootstrap", *arguments], capture_output=True, text=True, env=env, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout.strip(), done.stderr.strip()


async def test_it_places_an_agent_that_runs_jobs(tmp_path: Path) -> None:
    file = tmp_path / "new folder" / "remuda-agent"
    code, said, _ = bootstrap(file)
    assert code == 0
    assert said.startswith(f"{file}: remuda-agent ")
    assert " zipapp " in said
    assert file.stat().st_mode & 0o777 == 0o755
    before = file.stat().st_ino
    assert bootstrap(file)[1].endswith("(was there)")
    assert file.stat().st_ino == before
    async with AgentProcess(tmp_path / "data", program=(str(file),)) as agent:
        await agent.start()
        job = JobStart(id="1", work_dir=str(tmp_path / "w"), steps=steps_text({"name": "a", "script": "echo ok"}))
        assert (await run_job(agent, job)).lines == [b"ok"]


def test_by_the_command_line_of_remuda(tmp_path: Path) -> None:
    file = tmp_path / "agent"
    assert bootstrap(file, program=(str(Path(sys.executable).with_name("remuda")), "agent"))[0] == 0
    assert bootstrap(file)[1].endswith("(was there)")


def test_from_the_packed_file_it_places_that(tmp_path: Path) -> None:
    packed = tmp_path / "packed.pyz"
    pack(packed)
    file = tmp_path / "agent"
    assert bootstrap(file, program=(sys.executable, str(packed)))[0] == 0
    assert file.read_bytes().partition(b"\n")[2] == packed.read_bytes().partition(b"\n")[2]
    # The one that is there is recognized, whoever offers the same.
    assert bootstrap(file)[1].endswith("(was there)")


def test_something_else_in_its_place_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "agent"
    file.write_text("#!/bin/sh\necho remuda-agent 0.0.1 protocol 1 zipapp 123\n")
    file.chmod(0o755)
    assert bootstrap(file)[0] == 0
    assert file.read_bytes().startswith(b"#!")
    assert b"PK" in file.read_bytes()


def test_through_a_command_as_ssh_is(tmp_path: Path) -> None:
    """The command gets a command line; its stderr and exit code are told."""
    file = tmp_path / "it's $HOME" / "agent"
    assert bootstrap("--through", "env THERE=1 sh -c", file)[0] == 0
    assert file.exists()
    code, _, said = bootstrap("--through", "sh -c 'echo no route to host >&2; exit 255'", file)
    assert code == 1
    assert "exit code 255" in said
    assert "no route to host" in said


def test_a_machine_without_python_gets_the_frozen_one_or_an_error(tmp_path: Path) -> None:
    for name in ("sh", "uname", "mkdir", "cat", "chmod", "mv", "rm"):
        (tmp_path / name).symlink_to(f"/bin/{name}")
    there = f"env -i PATH={tmp_path} /bin/sh -c"
    code, _, said = bootstrap("--through", there, tmp_path / "agent")
    assert code == 1
    assert "no Python 3.11 or newer" in said
    assert "--frozen" in said
    code, _, said = bootstrap("--through", there, "--frozen", __file__, tmp_path / "agent")
    assert code == 1
    assert "is not a frozen agent" in said
    # An executable that is no agent is placed, tried and told of.
    code, _, said = bootstrap("--through", there, "--frozen", "/bin/false", tmp_path / "agent")
    assert code == 1
    assert "does not run as" in said


async def test_many_at_once(tmp_path: Path) -> None:
    file = tmp_path / "agent"
    async with asyncio.TaskGroup() as tasks:
        codes = [tasks.create_task(asyncio.to_thread(bootstrap, file)) for _ in range(4)]
    assert [code.result()[0] for code in codes] == [0] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]


@pytest.mark.parametrize("place", ["/proc/agent", "/dev/null/agent"])
def test_a_place_that_cannot_be_written(place: str) -> None:
    code, _, said = bootstrap(place)
    assert code == 1
    assert f"does not run as {place}" in said
