"""Delegates steps to another agent: they run once, and log, results and exit code come back although processes die."""

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.agent_process import AgentProcess, steps_text
from remuda.testing.waiting import until

PROGRAM = (sys.executable, "-m", "remuda.steps")


class DelegateProgram:
    """The program `delegate` with its order file, its output and its results."""

    def __init__(self, folder: Path, agent: AgentProcess, *steps: dict[str, Any], **values: Any) -> None:
        self.folder = folder
        self.order = folder / "order.json"
        self.results_file = folder / "results"
        value = {
            "command": [*PROGRAM, "proxy", "--data", str(agent.data)],
            "key": "7/outer/1",
            "results": str(self.results_file),
            "work_dir": str(folder / "there"),
            "steps": steps_text(*steps),
        }
        self.order.write_text(json.dumps(value | values))
        self.output = folder / "output"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *options: str) -> None:
        with self.output.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *PROGRAM, "delegate", *options, str(self.order), stdout=output
            )

    async def wait(self) -> int:
        assert self._process is not None
        async with asyncio.timeout(60):
            return await self._process.wait()

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def results(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.results_file.read_text().splitlines()]

    @property
    def lines(self) -> list[bytes]:
        """The output of the delegated steps."""
        return [line for line in self.output.read_bytes().split(b"\n")[:-1] if not line.startswith(b"section_")]


def a_step(script: str, name: str = "inner") -> dict[str, Any]:
    return {"name": name, "script": script}


async def list_jobs(agent: AgentProcess) -> Sequence[str]:
    async with agent.client() as client:
        return sorted((await client.hello()).jobs)


async def test_log_results_and_exit_code_come_back(agent: AgentProcess, tmp_path: Path) -> None:
    variables = [{"key": "A", "value": "one"}, {"key": "T", "value": "s3cret", "masked": True}]
    steps = (a_step("echo $A $B $T", "first"), a_step("seq 1 3000; printf a; sleep 0.7; echo b; exit 3", "second"))
    run = DelegateProgram(tmp_path, agent, *steps, variables=variables, env={"B": "two"})
    await run.start()
    assert await run.wait() == 3
    assert run.lines == [b"one two [MASKED]", *(str(n).encode() for n in range(1, 3001)), b"ab"]
    events = [(event["event"], event.get("path", "")) for event in run.results]
    assert events == [
        *(("started", "/first"), ("finished", "/first"), ("started", "/second"), ("finished", "/second")),
        *(("used", ""), ("end", "")),
    ]
    end = run.results[-1]
    assert (end["status"], end["reason"], end["exit_code"]) == ("failure", "script_failure", 3)
    assert "log_start" not in run.results[0]
    # The other agent has no job left.
    assert not await list_jobs(agent)


async def test_exit_code_after_success_is_0(agent: AgentProcess, tmp_path: Path) -> None:
    run = DelegateProgram(tmp_path, agent, a_step("echo ok"))
    await run.start()
    assert await run.wait() == 0
    assert run.lines == [b"ok"]
    assert run.results[-1]["status"] == "success"


async def test_a_killed_delegate_program_resumes_after_a_restart(agent: AgentProcess, tmp_path: Path) -> None:
    script = f"echo run >>{tmp_path}/runs; for n in $(seq 1 30); do echo line $n; sleep 0.05; done"
    run = DelegateProgram(tmp_path, agent, a_step(script))
    for number in (5, 15):
        await run.start()
        await until(lambda: f"line {number}\n".encode() in run.output.read_bytes())  # noqa: B023 - called at once
        run.signal(signal.SIGKILL)
        await run.wait()
    await run.start()
    assert await run.wait() == 0
    assert (tmp_path / "runs").read_text() == "run\n"
    # A line that was forwarded and not yet recorded may come twice; no line is missing or in the wrong place.
    assert list(dict.fromkeys(run.lines)) == [f"line {n}".encode() for n in range(1, 31)]
    assert [event.get("seq") for event in run.results] == [1, 2, 3, None]


async def test_a_restart_after_the_end_runs_nothing(agent: AgentProcess, tmp_path: Path) -> None:
    run = DelegateProgram(tmp_path, agent, a_step(f"echo run >>{tmp_path}/runs; exit 5"))
    for _ in range(2):
        await run.start()
        assert await run.wait() == 5
    assert (tmp_path / "runs").read_text() == "run\n"


async def test_sigterm_cancels_the_delegated_job(agent: AgentProcess, tmp_path: Path) -> None:
    run = DelegateProgram(tmp_path, agent, a_step(f"touch {tmp_path}/up; sleep 60"))
    await run.start()
    await until((tmp_path / "up").exists)
    run.signal(signal.SIGTERM)
    assert await run.wait() == 143
    assert run.results[-1]["status"] == "cancelled"
    assert not await list_jobs(agent)


async def test_option_end_kills_the_delegated_job(agent: AgentProcess, tmp_path: Path) -> None:
    run = DelegateProgram(tmp_path, agent, a_step(f"touch {tmp_path}/up; sleep 60"))
    await run.start()
    await until((tmp_path / "up").exists)
    run.signal(signal.SIGKILL)
    await run.wait()
    assert len(await list_jobs(agent)) == 1
    for _ in range(2):
        await run.start("--end")
        assert await run.wait() == 0
    assert not await list_jobs(agent)


async def test_the_other_agent_is_killed_and_restarts(agent: AgentProcess, tmp_path: Path) -> None:
    script = f"touch {tmp_path}/up; echo a; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo b"
    run = DelegateProgram(tmp_path, agent, a_step(script))
    await run.start()
    await until((tmp_path / "up").exists)
    await agent.kill()
    (tmp_path / "go").touch()
    await agent.start()
    assert await run.wait() == 0
    assert run.lines == [b"a", b"b"]


async def test_a_job_that_the_other_agent_has_lost_is_not_started_again(agent: AgentProcess, tmp_path: Path) -> None:
    run = DelegateProgram(tmp_path, agent, a_step(f"echo run >>{tmp_path}/runs; sleep 60"))
    await run.start()
    await until((tmp_path / "runs").exists)
    async with agent.client() as client:
        for job in (await client.hello()).jobs:
            await client.close_job(job)
    assert await run.wait() == 1
    assert run.results[-1]["reason"] == "runner_system_failure"
    assert b"has lost the job" in run.lines[-1]
    assert (tmp_path / "runs").read_text() == "run\n"


async def test_container_exit_before_ready_is_reported(agent: AgentProcess, tmp_path: Path) -> None:
    """The command that leads to the other agent ends early: its exit code and its stderr are reported."""
    command = ["sh", "-c", "echo no such image >&2; exit 125"]
    run = DelegateProgram(tmp_path, agent, a_step("echo"), command=command, patience_seconds=0.3)
    await run.start()
    assert await run.wait() == 1
    end = run.results[-1]
    assert end["reason"] == "runner_system_failure"
    assert "ended with 125: no such image" in end["message"]
    assert b"no such image" in run.lines[-1]


async def test_a_refused_job_is_a_system_failure(agent: AgentProcess, tmp_path: Path) -> None:
    run = DelegateProgram(tmp_path, agent, steps="{}\n---\nnonsense: 1")
    await run.start()
    assert await run.wait() == 1
    assert "refuses the job" in run.results[-1]["message"]


EMPTY_KEY = {"command": ["x"], "key": "", "results": "r", "steps": ""}


@pytest.mark.parametrize("text", ["", "[]", '{"command": []}', json.dumps(EMPTY_KEY)])
async def test_error_for_an_invalid_order(tmp_path: Path, text: str) -> None:
    (tmp_path / "order").write_text(text)
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "delegate", str(tmp_path / "order"), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"is not an order to delegate" in errors
    assert b"Traceback" not in errors
