"""Installs and starts the agent on a machine over SSH, and delegates a step to it."""

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.machines.ssh_machine import SshMachine

from remuda.testing.agent_process import steps_text
from remuda.testing.waiting import until

PROGRAM = (sys.executable, "-m", "remuda.steps")

pytestmark = pytest.mark.skipif(bool(SshMachine.missing()), reason=SshMachine.missing() or "available")


@pytest.fixture
def machine() -> Iterator[SshMachine]:
    with SshMachine(()) as running:
        yield running


@pytest.mark.long
async def test_delegation_over_ssh_survives_a_lost_connection(machine: SshMachine, tmp_path: Path) -> None:
    """The connection is killed during the job; the job on the machine continues, and its log arrives once, complete."""
    file, data = tmp_path / "machine" / "remuda-agent", tmp_path / "machine" / "data"
    bootstrap = await asyncio.create_subprocess_exec(
        *PROGRAM, "bootstrap", "--through", shlex.join(machine.command()), str(file), stdout=asyncio.subprocess.PIPE
    )
    message, _ = await bootstrap.communicate()
    assert bootstrap.returncode == 0
    assert b" zipapp " in message
    wait = f"touch {tmp_path}/half; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
    lines = f"for n in 1 2 3; do echo line $n; done; {wait}"
    order = {
        "command": machine.command(f"{file} proxy --start --idle-exit 1 --data {data}"),
        "key": "1/deploy/1",
        "results": str(tmp_path / "results"),
        "work_dir": str(tmp_path / "machine" / "work"),
        "steps": steps_text({"name": "deploy", "script": f"echo run >>{tmp_path}/runs; {lines}; echo line 4; exit 6"}),
    }
    (tmp_path / "order").write_text(json.dumps(order))
    with (tmp_path / "output").open("wb") as output:
        process = await asyncio.create_subprocess_exec(*PROGRAM, "delegate", str(tmp_path / "order"), stdout=output)
    await until((tmp_path / "half").exists, seconds=60)
    await until(lambda: b"line 3" in (tmp_path / "output").read_bytes())
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    (tmp_path / "go").touch()
    async with asyncio.timeout(60):
        assert await process.wait() == 6
    output_lines = [line for line in (tmp_path / "output").read_bytes().split(b"\n") if line.startswith(b"line")]
    assert output_lines == [f"line {n}".encode() for n in range(1, 5)]
    assert (tmp_path / "runs").read_text() == "run\n"
    assert json.loads((tmp_path / "results").read_text().splitlines()[-1])["exit_code"] == 6
    # The agent on the machine is idle and ends.
    await until(lambda: not (data / "agent.sock").exists(), seconds=30)
