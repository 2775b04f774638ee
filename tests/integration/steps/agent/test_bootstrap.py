"""`bootstrap` installs the agent at a path: it keeps a current agent and replaces other files."""

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
    process = subprocess.run([*program, "bootstrap", *arguments], capture_output=True, text=True, env=env, check=False)
    assert "Traceback" not in process.stderr
    return process.returncode, process.stdout.strip(), process.stderr.strip()


async def test_bootstrap_installs_an_agent_that_runs_jobs(tmp_path: Path) -> None:
    file = tmp_path / "new folder" / "remuda-agent"
    code, message, _ = bootstrap(file)
    assert code == 0
    assert message.startswith(f"{file}: remuda-agent ")
    assert " zipapp " in message
    assert file.stat().st_mode & 0o777 == 0o755
    inode = file.stat().st_ino
    assert bootstrap(file)[1].endswith("(already installed)")
    assert file.stat().st_ino == inode
    async with AgentProcess(tmp_path / "data", program=(str(file),)) as agent:
        await agent.start()
        job = JobStart(id="1", work_dir=str(tmp_path / "w"), steps=steps_text({"name": "a", "script": "echo ok"}))
        assert (await run_job(agent, job)).lines == [b"ok"]


def test_bootstrap_by_the_remuda_command(tmp_path: Path) -> None:
    file = tmp_path / "agent"
    assert bootstrap(file, program=(str(Path(sys.executable).with_name("remuda")), "agent"))[0] == 0
    assert bootstrap(file)[1].endswith("(already installed)")


def test_a_packed_agent_installs_itself(tmp_path: Path) -> None:
    packed = tmp_path / "packed.pyz"
    pack(packed)
    file = tmp_path / "agent"
    assert bootstrap(file, program=(sys.executable, str(packed)))[0] == 0
    assert file.read_bytes().partition(b"\n")[2] == packed.read_bytes().partition(b"\n")[2]
    # The installed agent is recognized, whichever form of the agent runs bootstrap.
    assert bootstrap(file)[1].endswith("(already installed)")


def test_another_file_at_the_path_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "agent"
    file.write_text("#!/bin/sh\necho remuda-agent 0.0.1 protocol 1 zipapp 123\n")
    file.chmod(0o755)
    assert bootstrap(file)[0] == 0
    assert file.read_bytes().startswith(b"#!")
    assert b"PK" in file.read_bytes()


def test_bootstrap_through_a_command_such_as_ssh(tmp_path: Path) -> None:
    """The command gets a command line; its stderr and exit code are reported."""
    file = tmp_path / "it's $HOME" / "agent"
    assert bootstrap("--through", "env THERE=1 sh -c", file)[0] == 0
    assert file.exists()
    code, _, message = bootstrap("--through", "sh -c 'echo no route to host >&2; exit 255'", file)
    assert code == 1
    assert "exit code 255" in message
    assert "no route to host" in message


def test_a_machine_without_python_needs_a_frozen_agent(tmp_path: Path) -> None:
    for name in ("sh", "uname", "mkdir", "cat", "chmod", "mv", "rm"):
        (tmp_path / name).symlink_to(f"/bin/{name}")
    machine = f"env -i PATH={tmp_path} /bin/sh -c"
    code, _, message = bootstrap("--through", machine, tmp_path / "agent")
    assert code == 1
    assert "no Python 3.11 or newer" in message
    assert "--frozen" in message
    code, _, message = bootstrap("--through", machine, "--frozen", __file__, tmp_path / "agent")
    assert code == 1
    assert "is not a frozen agent" in message
    # An executable that is not an agent is installed and tried, which fails with an error.
    code, _, message = bootstrap("--through", machine, "--frozen", "/bin/false", tmp_path / "agent")
    assert code == 1
    assert "does not run as" in message


async def test_concurrent_bootstraps_of_one_path(tmp_path: Path) -> None:
    file = tmp_path / "agent"
    async with asyncio.TaskGroup() as tasks:
        codes = [tasks.create_task(asyncio.to_thread(bootstrap, file)) for _ in range(4)]
    assert [code.result()[0] for code in codes] == [0] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]


@pytest.mark.parametrize("path", ["/proc/agent", "/dev/null/agent"])
def test_error_for_a_path_that_cannot_be_written(path: str) -> None:
    code, _, message = bootstrap(path)
    assert code == 1
    assert f"does not run as {path}" in message
