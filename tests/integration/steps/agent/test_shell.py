"""Shells in jobs of a real agent: on a terminal and on pipes, in running jobs and in jobs on hold."""

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.step_files import open_command, write_step
from tests.support.step_jobs import Build

from remuda.testing.agent_process import AgentProcess, follow, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import AgentClient, AgentRefusedError, JobVariable
from remuda.wire.agent_shell import AgentShell, ShellCommand, ShellData, ShellExit, ShellOpened, open_shell

WAIT_SCRIPT = 'echo begun >begun; while [ ! -e "$CI_PROJECT_DIR/go" ]; do sleep 0.05; done; exit ${CODE:-0}'


class Screen:
    """The output of a shell and its exit code."""

    def __init__(self, shell: AgentShell) -> None:
        self._events = aiter(shell)
        self.output, self.errors = b"", b""
        self.code: int | None = None

    async def until(self, text: bytes) -> bytes:
        while text not in self.output:
            await self._next()
        return self.output

    async def end(self) -> int:
        while self.code is None:
            await self._next()
        return self.code

    async def _next(self) -> None:
        match await asyncio.wait_for(anext(self._events), 20):
            case ShellData(data, is_error):
                self.output, self.errors = self.output + (b"" if is_error else data), self.errors + data * is_error
            case ShellExit(code):
                self.code = code
            case ShellOpened():
                pass


@pytest.fixture
async def start_job(agent: AgentProcess, a_job: Build, tmp_path: Path) -> Callable[..., Awaitable[AgentClient]]:
    """Start a job, wait until its script runs, and return a client."""

    async def start(script: str = WAIT_SCRIPT, **values: object) -> AgentClient:
        work = tmp_path / "work"
        variables = [JobVariable(key="CI_PROJECT_DIR", value=str(work)), JobVariable(key="SECRET", value="s3cret")]
        variables.append(JobVariable(key="KEY_FILE", value="in the file\n", file=True))
        client = agent.client()
        await client.start(a_job(script=script, **{"variables": variables} | values))
        await until((work / "begun").exists)
        return client

    return start


async def test_command_on_pipes_is_in_the_job(start_job: Callable[..., Awaitable[AgentClient]], tmp_path: Path) -> None:
    async with await start_job() as client:
        command = ("sh", "-c", 'pwd; echo $SECRET; cat "$KEY_FILE"; echo no >&2; cat; exit 7')
        async with open_shell(client, "1", ShellCommand(command=command, terminal=False)) as shell:
            await shell.write(b"sent\0raw\n")
            await shell.end_input()
            screen = Screen(shell)
            assert await screen.end() == 7
        assert screen.output == f"{tmp_path}/work\ns3cret\nin the file\nsent\0raw\n".encode()
        assert screen.errors == b"no\n"


async def test_shell_on_a_terminal_of_the_callers_size(start_job: Callable[..., Awaitable[AgentClient]]) -> None:
    async with (
        await start_job() as client,
        open_shell(client, "1", ShellCommand(columns=101, rows=37, term="vt100")) as shell,
    ):
        screen = Screen(shell)
        await shell.write(b"stty size; tty; echo $TERM; echo $((40+2))\n")
        output = await screen.until(b"42\r\n")
        assert b"37 101\r\n" in output
        assert b"/dev/pts/" in output
        assert b"vt100\r\n" in output
        await shell.resize(55, 22)
        await shell.write(b"stty size\n")
        await screen.until(b"22 55\r\n")
        await shell.write(b"sh -c \"echo be''gun; exec sleep 1000\"\n")
        await screen.until(b"begun\r\n")
        await shell.write(b"\x03")  # an interrupt reaches the process in the foreground
        await shell.write(b"exit 3\n")
        assert await screen.end() == 3


async def test_shell_ends_without_its_caller(start_job: Callable[..., Awaitable[AgentClient]], tmp_path: Path) -> None:
    async with await start_job() as client:
        async with open_shell(client, "1", ShellCommand()) as shell:
            screen = Screen(shell)
            await shell.write(b"(trap '' HUP; echo $BASHPID >work-pid; exec sleep 1000) & sleep 0.1; echo re''ady\n")
            await screen.until(b"ready\r\n")
        pid = int((tmp_path / "work/work-pid").read_text())
        await until(lambda: not Path(f"/proc/{pid}").exists())
        # The job itself continues.
        (tmp_path / "work/go").touch()
        assert (await follow(client, "1")).check().status == "success"


async def test_shell_ends_with_the_job(start_job: Callable[..., Awaitable[AgentClient]], tmp_path: Path) -> None:
    async with await start_job() as client, open_shell(client, "1", ShellCommand()) as shell:
        screen = Screen(shell)
        await shell.write(b"touch go; echo do''ne\n")
        await screen.until(b"done")
        assert await screen.end() == 129
        assert (await follow(client, "1")).check().status == "success"
    async with await start_job() as client:
        with pytest.raises(AgentRefusedError, match="is over"):
            async with open_shell(client, "1", ShellCommand()) as shell:
                await Screen(shell).end()


async def test_shell_of_an_unknown_job(agent: AgentProcess) -> None:
    async with agent.client() as client:
        with pytest.raises(AgentRefusedError, match='no job with id "9"'):
            async with open_shell(client, "9", ShellCommand()) as shell:
                await Screen(shell).end()


async def test_one_job_has_a_bounded_number_of_shells(start_job: Callable[..., Awaitable[AgentClient]]) -> None:
    async with await start_job() as client:
        shells = [open_shell(client, "1", ShellCommand(command=["cat"], terminal=False)) for _ in range(21)]
        screens = [Screen(await shell.__aenter__()) for shell in shells]
        refused = [await asyncio.gather(screen._next(), return_exceptions=True) for screen in screens]
        assert sum(isinstance(error, AgentRefusedError) for (error,) in refused) == 1
        for shell in shells:
            await shell.__aexit__(None, None, None)


HOLD_NOTE = "You can look into it"


async def start_held_job(agent: AgentProcess, a_job: Build, seconds: int = 600) -> AgentClient:
    """Run a job that fails and is on hold then."""
    entry = {"name": "script", "step": "builtin://script"}
    script = 'echo \'{"name":"OUT","value":"x y"}\' >>"$REMUDA_EXPORTS"; exit 4'
    steps = steps_text(entry | {"inputs": {"script": script}})
    variables = [JobVariable(key="KEY_FILE", value="in the file\n", file=True)]
    client = agent.client()
    await client.start(a_job(steps=steps, variables=variables, hold_failed_seconds=seconds, hold_note=HOLD_NOTE))
    seen = await follow(client, "1")
    end = seen.check()
    assert (end.status, end.exit_code) == ("failure", 4)
    assert 0 < end.held_seconds <= seconds
    assert [line for line in seen.agent_lines if HOLD_NOTE.encode() in line]
    return client


async def test_failed_job_waits_for_close(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    async with await start_held_job(agent, a_job) as client:
        command = ("sh", "-c", 'cat "$KEY_FILE"')
        async with open_shell(client, "1", ShellCommand(command=command, terminal=False)) as shell:
            screen = Screen(shell)
            assert await screen.end() == 0
        assert screen.output == b"in the file\n"
        async with open_shell(client, "1", ShellCommand()) as shell:
            screen = Screen(shell)
            await shell.write(b"echo o''pen\n")
            await screen.until(b"open\r\n")
            await client.close_job("1")
            assert await screen.end() == 129
        assert not (await client.hello()).jobs


async def test_hold_ends_by_itself(agent: AgentProcess, a_job: Build) -> None:
    async with await start_held_job(agent, a_job, seconds=1) as client:
        while (await follow(client, "1")).check().held_seconds:  # noqa: ASYNC110 - the agent sends no event for this
            await asyncio.sleep(0.1)
        with pytest.raises(AgentRefusedError, match="is over"):
            async with open_shell(client, "1", ShellCommand()) as shell:
                await Screen(shell).end()


async def test_hold_outlives_the_agent(agent: AgentProcess, a_job: Build) -> None:
    (await start_held_job(agent, a_job)).close()
    await agent.kill()
    await agent.start()
    async with agent.client() as client:
        assert (await follow(client, "1")).check().held_seconds
        async with open_shell(
            client, "1", ShellCommand(command=["sh", "-c", 'cat "$KEY_FILE"'], terminal=False)
        ) as shell:
            screen = Screen(shell)
            assert await screen.end() == 0
        assert screen.output == b"in the file\n"
        await client.close_job("1")
        assert not (await client.hello()).jobs


async def test_successful_and_cancelled_end(start_job: Callable[..., Awaitable[AgentClient]], tmp_path: Path) -> None:
    async with await start_job(hold_failed_seconds=600) as client:
        await client.cancel("1")
        assert (await follow(client, "1")).check().held_seconds == 0
        await client.close_job("1")
    (tmp_path / "work/go").touch()
    async with await start_job(hold_failed_seconds=600) as client:
        assert (await follow(client, "1")).check().held_seconds == 0


@pytest.fixture
async def second_agent(tmp_path: Path) -> AsyncIterator[AgentProcess]:
    async with AgentProcess(tmp_path / "other") as process:
        await process.start()
        yield process


def steps_in_another_agent(agent: AgentProcess, work: Path, script: str, **more: Any) -> str:
    """A step with an environment of another agent, in which the script runs."""
    command = [sys.executable, "-m", "remuda.steps", "proxy", "--data", str(agent.data)]
    environment = {
        "open": {"command": open_command({"agent": command})},
        "close": {"command": ["sh", "-c", "echo closed >>../trail"]},
    }
    write_step(work / "machine", {"environment": environment})
    return steps_text({"name": "there", "step": "./machine", "run": [{"name": "own", "script": script}]} | more)


async def test_shell_in_an_environment_of_another_agent(
    agent: AgentProcess, second_agent: AgentProcess, a_job: Build, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    steps = steps_in_another_agent(second_agent, work, "touch begun; while [ ! -e go ]; do sleep 0.05; done")
    async with agent.client() as client:
        await client.start(a_job(steps=steps, variables=[JobVariable(key="SECRET", value="s3cret")]))
        await until((work / "begun").exists)
        command = ("sh", "-c", "echo $SECRET $PPID; cat; exit 6")
        async with open_shell(client, "1", ShellCommand(command=command, terminal=False)) as shell:
            await shell.write(b"sent\n")
            await shell.end_input()
            screen = Screen(shell)
            assert await screen.end() == 6
        assert screen.output == f"s3cret {second_agent.pid}\nsent\n".encode()
        (work / "go").touch()
        assert (await follow(client, "1")).check().status == "success"


async def test_the_other_agent_keeps_its_part_of_a_held_job(
    agent: AgentProcess, second_agent: AgentProcess, a_job: Build, tmp_path: Path
) -> None:
    steps = steps_in_another_agent(second_agent, tmp_path / "work", "echo made >made; exit 3")
    async with agent.client() as client, second_agent.client() as second_client:
        await client.start(a_job(steps=steps, hold_failed_seconds=600))
        end = (await follow(client, "1")).check()
        assert (end.exit_code, end.held_seconds > 0) == (3, True)
        assert len((await second_client.hello()).jobs) == 1
        assert not (tmp_path / "trail").exists()
        async with open_shell(client, "1", ShellCommand(command=("cat", "made"), terminal=False)) as shell:
            screen = Screen(shell)
            assert await screen.end() == 0
        assert screen.output == b"made\n"
        await client.close_job("1")
        assert not (await second_client.hello()).jobs
        assert (tmp_path / "trail").read_text() == "closed\n"


async def test_the_environment_is_closed_if_the_job_succeeds_despite_a_failed_step(
    agent: AgentProcess, second_agent: AgentProcess, a_job: Build, tmp_path: Path
) -> None:
    steps = steps_in_another_agent(second_agent, tmp_path / "work", "exit 3", continue_on_error=True)
    async with agent.client() as client, second_agent.client() as second_client:
        await client.start(a_job(steps=steps, hold_failed_seconds=600))
        end = (await follow(client, "1")).check()
        assert (end.status, end.held_seconds) == ("success", 0)
        assert not (await second_client.hello()).jobs
        assert (tmp_path / "trail").read_text() == "closed\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root runs jobs as another user")
async def test_shell_runs_as_steps_user(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o055)  # one of these folders may be /tmp
    variables = [JobVariable(key="KEY_FILE", value="in the file\n", file=True)]
    async with agent.client() as client:
        await client.start(a_job(script=WAIT_SCRIPT, run_as="65534:65534", variables=variables))
        await until((tmp_path / "work/begun").exists)
        command = ("sh", "-c", 'id -u; id -G; cat "$KEY_FILE"; cat /proc/self/status | grep NoNewPrivs')
        async with open_shell(client, "1", ShellCommand(command=command, terminal=False)) as shell:
            screen = Screen(shell)
            assert await screen.end() == 0, screen.errors
        assert screen.output == b"65534\n65534\nin the file\nNoNewPrivs:\t1\n"
        async with open_shell(client, "1", ShellCommand()) as shell:
            screen = Screen(shell)
            await shell.write(b"id -u; ls -ln $(tty); echo he''re >/dev/tty; exit\n")
            assert b"here\r\n" in await screen.until(b"here\r\n")
            assert b"65534 65534" in screen.output
            assert await screen.end() == 0
        await client.close_job("1")


async def test_shell_is_in_steps_sandbox(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    async with agent.client() as client:
        await client.start(a_job(script="touch begun; while [ ! -e go ]; do sleep 0.05; done", sandbox=True))
        await until((tmp_path / "work/begun").exists)
        async with open_shell(client, "1", ShellCommand()) as shell:
            screen = Screen(shell)
            await shell.write(b"stty size; grep -q root /etc/shadow || echo hid''den; touch he''re; exit 3\n")
            assert await screen.end() == 3
        assert b"24 80\r\n" in screen.output
        assert b"hidden\r\n" in screen.output
        assert (tmp_path / "work/here").exists()
        (tmp_path / "work/go").touch()
        assert (await follow(client, "1")).check().status == "success"


@pytest.mark.parametrize("seconds", [0, 600], ids=["plain", "held"])
async def test_unstarted_close_changes_nothing(agent: AgentProcess, a_job: Build, tmp_path: Path, seconds: int) -> None:
    package = tmp_path / "work/mine"
    opening = {"command": open_command({"exec": ["sh", f"{package}/enter"]})}
    write_step(package, {"environment": {"open": opening, "close": {"command": ["remuda-no-such-program"]}}})
    (package / "enter").write_text("exit 3\n")
    entry = {"name": "mine", "step": "./mine", "run": [{"name": "try", "script": "true"}]}
    async with agent.client() as client:
        await client.start(a_job(steps=steps_text(entry), hold_failed_seconds=seconds))
        seen = await follow(client, "1")
        end = seen.check()
        assert (end.status, end.reason, end.exit_code) == ("failure", "script_failure", 3), end.message
        assert bool(end.held_seconds) == bool(seconds)
        assert b"remuda-no-such-program" in seen.log
        await client.close_job("1")


async def test_failed_close_command_does_not_stop_next_one(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    async with await start_held_job(agent, a_job) as client:
        folder = next((tmp_path / "data/jobs").iterdir())
        last_line = {"argv": ["touch", str(tmp_path / "done")], "way": None}
        lines = [{"argv": ["true"], "env": {"A": "\0"}, "way": None}, {"argv": ["/no/such"], "way": None}, last_line]
        (folder / "closings").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        await client.close_job("1")
    assert (tmp_path / "done").exists()


def steps_in_an_environment(work: Path, *, opening: str = "true") -> str:
    """Steps of the platform and of the job; the job's run in an environment. Each one waits for a file."""
    package = work / "machine"
    *shell, write_output = open_command({"exec": ["sh", f"{package}/enter"]})
    environment = {
        "open": {"command": [*shell, f"{wait_for_file('opening')}; {opening} && {write_output}"]},
        "close": {"command": ["true"]},
    }
    write_step(package, {"environment": environment})
    (package / "enter").write_text('case "$1" in *shell-*) echo inside; exit;; esac\n' + wait_for_file("own"))
    own = {"name": "own", "script": "true", "origin": "user"}
    return steps_text(
        {"name": "first", "script": wait_for_file("first"), "origin": "compiled"},
        {"name": "box", "step": "./machine", "run": [own], "origin": "compiled"},
        {"name": "last", "script": wait_for_file("last"), "origin": "compiled", "if": "always()"},
    )


def wait_for_file(name: str) -> str:
    return f"touch {name}; until [ -e go-{name} ]; do sleep 0.05; done"


async def read_shell_output(agent: AgentProcess) -> bytes:
    async with agent.client() as client:
        async with open_shell(client, "1", ShellCommand(command=("echo", "machine"), terminal=False)) as shell:
            screen = Screen(shell)
            await screen.end()
        return screen.output


@pytest.mark.parametrize("restarted", [False, True], ids=["", "after_a_restart"])
async def test_no_shell_without_environment(agent: AgentProcess, a_job: Build, tmp_path: Path, restarted: bool) -> None:
    work = tmp_path / "work"
    async with agent.client() as client:
        await client.start(a_job(steps=steps_in_an_environment(work)))
    for stage, answer in (("first", "not open yet"), ("opening", "not open yet"), ("own", ""), ("last", "is closed")):
        await until((work / stage).exists)
        if restarted:
            await agent.kill()
            await agent.start()
        if answer:
            with pytest.raises(AgentRefusedError, match=answer):
                await read_shell_output(agent)
        else:
            assert await read_shell_output(agent) == b"inside\n"
        (work / f"go-{stage}").touch()
    async with agent.client() as client:
        assert (await follow(client, "1")).check().status == "success"


@pytest.mark.parametrize("restarted", [False, True], ids=["", "after_a_restart"])
async def test_no_shell_in_never_opened_job(agent: AgentProcess, a_job: Build, tmp_path: Path, restarted: bool) -> None:
    work = tmp_path / "work"
    steps = steps_in_an_environment(work, opening="false")
    for stage in ("first", "opening", "last"):
        (work / f"go-{stage}").touch()
    async with agent.client() as client:
        await client.start(a_job(steps=steps, hold_failed_seconds=600))
        assert (await follow(client, "1")).check().held_seconds
    if restarted:
        await agent.kill()
        await agent.start()
    with pytest.raises(AgentRefusedError, match="was not opened"):
        await read_shell_output(agent)


def policy_that_inserts(step: dict[str, Any]) -> str:
    """The policy of a runner that inserts this step after the job."""
    layer = {"author": "runner r", "document": {"insert": [{"name": "audit", "after": "job"} | step]}}
    return json.dumps({"version": 1, "layers": [layer]})


STUBBORN = "trap '' HUP TERM; echo $$ >new; mv new pid; while :; do sleep 0.05; done"


async def test_no_shell_in_an_inserted_step(start_job: Callable[..., Awaitable[AgentClient]], tmp_path: Path) -> None:
    work = tmp_path / "work"
    look = "if [ -e /proc/$(cat pid)/status ]; then echo beside; else echo alone; fi"
    policy = policy_that_inserts({"script": f"{look}; {wait_for_file('audit')}"})
    async with await start_job(policy=policy) as client:
        async with open_shell(client, "1", ShellCommand(command=("sh", "-c", STUBBORN), terminal=False)) as shell:
            await until((work / "pid").exists)
            (work / "go").touch()
            with pytest.raises(AgentRefusedError, match='step "audit" of a policy runs'):
                await Screen(shell).end()
        await until((work / "audit").exists)
        with pytest.raises(AgentRefusedError, match='step "audit" of a policy runs'):
            async with open_shell(client, "1", ShellCommand()) as shell:
                await Screen(shell).end()
        (work / "go-audit").touch()
        seen = await follow(client, "1")
        assert seen.check().status == "success"
        assert b"alone" in seen.lines


async def test_an_inserted_step_does_not_wait_for_a_shell_without_a_reader(
    agent: AgentProcess, start_job: Callable[..., Awaitable[AgentClient]], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    command = ("sh", "-c", "trap '' HUP TERM; touch full; exec yes")
    async with (
        await start_job(policy=policy_that_inserts({"script": "true"})) as client,
        open_shell(client, "1", ShellCommand(command=command, terminal=False)),
        asyncio.timeout(30),
    ):
        await until((work / "full").exists)
        await asyncio.sleep(0.5)  # until the buffers between shell and client are full
        (work / "go").touch()
        async with agent.client() as second_client:
            assert (await follow(second_client, "1")).check().status == "success"


async def test_inserted_steps_are_not_held(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    """Otherwise a shell in the held job would run in the environment that was opened last."""
    package = tmp_path / "policy"
    environment = {
        "open": {"command": open_command({"exec": ["sh", f"{package}/box/enter"]})},
        "close": {"command": ["touch", str(tmp_path / "closed")]},
    }
    write_step(package, {"run": [{"name": "box", "step": "./box", "run": [{"name": "in", "script": "true"}]}]})
    write_step(package / "box", {"environment": environment})
    (package / "box/enter").write_text("echo in the environment of the policy\n")
    policy = policy_that_inserts({"step": str(package)})
    async with agent.client() as client:
        await client.start(a_job(script="exit 3", policy=policy, hold_failed_seconds=600))
        seen = await follow(client, "1")
        assert seen.check().held_seconds
        assert b"in the environment of the policy" in seen.lines, seen.log.decode()
    assert (tmp_path / "closed").exists()
    assert await read_shell_output(agent) == b"machine\n"
