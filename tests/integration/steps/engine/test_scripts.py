"""Scripts of steps: their environment, their output in the log, and their exit codes."""

import asyncio
import os
import re
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.step_jobs import Build

from remuda.testing.agent_process import AgentProcess, follow, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import AgentRefusedError, JobVariable, LogChunk


async def test_script_job(agent: AgentProcess, a_job: Build) -> None:
    job = a_job(script=["echo one; echo two >&2", "printf 'a\\nb'\npwd"], banner=["Running with remuda"])
    seen = await run_job(agent, job)
    assert seen.lines == [
        b"\x1b[32;1m$ echo one; echo two >&2\x1b[0;m",
        b"one",
        b"two",
        b"\x1b[32;1m$ printf 'a\\nb' # collapsed multi-line command\x1b[0;m",
        b"a",
        b"b" + job.work_dir.encode(),
    ]
    banner, opened, closed, last = seen.agent_lines
    assert banner == b"Running with remuda"
    assert re.fullmatch(rb"section_start:\d{10}:script\r\x1b\[0K", opened)
    assert re.fullmatch(rb"section_end:\d{10}:script\r\x1b\[0K", closed)
    assert last == b"Job succeeded"
    end = seen.check()
    assert (end.status, end.reason, end.exit_code, end.message) == ("success", "", 0, "")
    started, finished = seen.results
    assert started["event"] == "started"
    assert finished["usage"]["cpu_user_seconds"] >= 0
    assert seen.log[finished["log_start"] : finished["log_end"]].startswith(seen.log.split(b"\n")[1])
    assert started["time"] == finished["started_at"] <= finished["finished_at"]


async def test_script_stops_at_first_failing_command(agent: AgentProcess, a_job: Build) -> None:
    seen = await run_job(agent, a_job(script=["echo before", "false | true", "echo after"]))
    assert b"after" not in seen.lines
    end = seen.check()
    assert (end.status, end.reason, end.exit_code) == ("failure", "script_failure", 1)
    assert end.message == 'step "script": exit status 1'
    assert seen.agent_lines[-1] == b"ERROR: Job failed: exit status 1"
    assert seen.results[-1]["fault"] == "user"


@pytest.mark.parametrize("name", ["TERM", "KILL", "HUP", "INT", "PIPE", "USR1"])
async def test_a_script_that_a_signal_ends_has_128_plus_its_number(
    agent: AgentProcess, a_job: Build, name: str
) -> None:
    seen = await run_job(agent, a_job(script=["echo before", f"kill -{name} $$", "echo after"]))
    assert [line for line in seen.lines if not line.startswith(b"\x1b")] == [b"before"]
    number = signal.Signals[f"SIG{name}"]
    end = seen.check()
    assert (end.status, end.reason, end.exit_code) == ("failure", "script_failure", 128 + number)
    assert end.message == f'step "script": exit status {128 + number}'
    assert (seen.results[-1]["signal"], seen.results[-1]["fault"]) == (number, "user")


async def test_errors_of_the_shell_name_no_folder_of_the_agent(agent: AgentProcess, a_job: Build) -> None:
    seen = await run_job(agent, a_job(script=["no_such_command || true", 'echo "$# ${_remuda_script-unset}"', "if"]))
    lines = [line for line in seen.lines if not line.startswith(b"\x1b")]
    assert lines[:2] == [b"script: line 1: no_such_command: command not found", b"0 unset"]
    assert lines[2].startswith(b"script: eval: line 4: ")
    assert seen.check().exit_code == 2
    assert str(agent.data).encode() not in seen.log


async def test_plain_text_stops_too_and_closing_braces_are_text(agent: AgentProcess, a_job: Build) -> None:
    text = """echo '{"a":{"b":1}} \\${{ x }}'\nexit 7\necho no"""
    seen = await run_job(agent, a_job(steps=steps_text({"name": "plain", "script": text}, extended=False)))
    assert seen.lines == [b'{"a":{"b":1}} ${{ x }}']
    assert seen.check().exit_code == 7


async def test_yaml_definition(agent: AgentProcess, a_job: Build) -> None:
    steps = "spec:\n---\nrun:\n  - name: hello\n    script: |\n      echo $WHO\n    env: {WHO: yes}\n"
    seen = await run_job(agent, a_job(steps=steps))
    assert seen.lines == [b"yes"]


async def test_masked_variable_never_reaches_the_log(agent: AgentProcess, a_job: Build) -> None:
    script = ["echo x$SECRET", "printf s3c; sleep 0.7; printf ret; sleep 0.7; echo -value", "echo glpat-abcDEF.1 z"]
    variables = [JobVariable(key="SECRET", value="s3cret-value", masked=True)]
    seen = await run_job(agent, a_job(script=script, variables=variables, masks=["zzz"], mask_prefixes=["glpat-"]))
    assert b"s3c" not in b"".join(line for line in seen.lines if not line.startswith(b"\x1b"))
    assert [line for line in seen.lines if b"$" not in line] == [b"x[MASKED]", b"[MASKED]", b"glpat-[MASKED] z"]
    for path in agent.data.rglob("*"):
        if path.is_file() and path.name != "request":
            assert b"s3cret-value" not in path.read_bytes()


async def test_partial_line_is_delivered_early_and_continued(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    job = a_job(script=f"printf waiting; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo ' done'")
    async with agent.client() as client:
        await client.start(job)
        async with client.watch() as watch, asyncio.timeout(10):
            await watch.subscribe(job.id)
            async for event in watch:
                if isinstance(event, LogChunk) and b"waiting\n" in event.data:
                    (tmp_path / "go").touch()
                    break
        seen = await follow(client, job.id)
    assert seen.lines == [b"waiting done"]
    assert re.search(rb"01O waiting\n[^\n]{28}01O\+ done\n", seen.log)


async def test_bytes_pass_unchanged_and_long_lines_stream(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    data = bytes(byte for byte in range(256) if byte != 10) * 1200
    work = tmp_path / "work"
    work.mkdir()
    (work / "data").write_bytes(data + b"\nend\n")
    seen = await run_job(agent, a_job(script="cat data"))
    assert seen.lines == [data, b"end"]
    assert max(map(len, seen.log.split(b"\n"))) < 200_000


async def test_log_limit_drops_output_and_lets_the_job_go_on(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    script = "head -c 3000000 /dev/zero | tr '\\0' 'x' | fold -w 100; echo; touch finished"
    seen = await run_job(agent, a_job(script=script, log_limit_bytes=20_000))
    assert sum(len(line) + 1 for line in seen.lines) == 20_000 + 1  # the last line is cut
    assert sum(b"has reached its limit of 20000 bytes" in line for line in seen.agent_lines) == 1
    assert seen.agent_lines[-1] == b"Job succeeded"
    assert (tmp_path / "work/finished").exists()


async def test_environment_is_clean_and_ordered(agent: AgentProcess, a_job: Build) -> None:
    entry = {"name": "show", "script": "env", "env": {"FROM": "step"}}
    variables = [
        JobVariable(key="FROM", value="job"),
        JobVariable(key="d", value="kept"),
        JobVariable(key="J", value="1"),
    ]
    seen = await run_job(agent, a_job(steps=steps_text(entry), variables=variables, env={"FROM": "request", "R": "2"}))
    env = dict(line.split(b"=", 1) for line in seen.lines)
    assert (env[b"FROM"], env[b"d"], env[b"J"], env[b"R"]) == (b"step", b"kept", b"1", b"2")
    assert env[b"CI_JOB_STATUS"] == b"running"
    assert env[b"PATH"] == os.environb[b"PATH"]
    assert not [key for key in env if key.startswith((b"PYTEST", b"_remuda", b"VIRTUAL_ENV"))]


async def test_file_variable_is_a_private_file(agent: AgentProcess, a_job: Build) -> None:
    variables = [JobVariable(key="CERT", value="line 1\nline 2\n", file=True)]
    seen = await run_job(agent, a_job(script="stat -c %a $CERT; cat $CERT; echo ${CERT##*/}", variables=variables))
    assert seen.lines == [b"600", b"line 1", b"line 2", b"CERT"]


async def test_environment_and_script_over_the_os_limit_still_start(agent: AgentProcess, a_job: Build) -> None:
    script = f"echo ${{#HUGE}} ${{#SMALL}}; env | grep -c ^SMALL=\n: {'x' * 300_000}"
    variables = [JobVariable(key="HUGE", value="h' \n" * 50_000), JobVariable(key="SMALL", value="s")]
    variables += [JobVariable(key=f"V{number}", value="v" * 100_000) for number in range(30)]
    seen = await run_job(agent, a_job(script=script, variables=variables))
    assert seen.lines == [b"200000 1", b"1"]
    assert any(b"too large for the environment" in line and b"HUGE" in line for line in seen.agent_lines)


async def test_secrets_are_in_no_argument(agent: AgentProcess, a_job: Build) -> None:
    script = "tr '\\0' ' ' </proc/$PPID/cmdline; tr '\\0' ' ' </proc/$$/cmdline; : needle"
    seen = await run_job(agent, a_job(script=script, variables=[JobVariable(key="S", value="needle")]))
    assert b"remuda-shim" in b"".join(seen.lines)
    assert b"needle" not in b"".join(seen.lines)


async def test_background_child_does_not_hang_the_step(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    seen = await run_job(agent, a_job(script="sleep 60 & echo $! >pid; echo started"))
    child = Path("/proc") / (tmp_path / "work/pid").read_text().strip()
    await until(lambda: not child.exists())
    assert seen.lines == [b"started"]


async def test_endlessly_printing_child_does_not_hang_a_step(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    async with agent.client() as client:
        await client.start(job := a_job(script="yes $(printf %0900d 1) & echo $! >pid; echo started"))
        # The child prints faster than the agent reads: the step ends only because the child is killed.
        seen = await follow(client, job.id)
    assert b"started" in seen.lines
    assert seen.statuses == {"script": "success"}
    child = Path(f"/proc/{(tmp_path / 'work/pid').read_text().strip()}")
    await until(lambda: not child.exists())


async def test_a_script_may_reopen_its_output(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    script = (
        "echo one; echo two >/dev/stderr; echo three; echo four | tee /dev/stderr; echo five >/dev/stdout; echo six"
    )
    seen = await run_job(
        agent, a_job(script=f"trap 'echo trapped >/dev/stderr' EXIT; {script}; sleep 60 & echo $! >pid; exit 3")
    )
    child = Path("/proc") / (tmp_path / "work/pid").read_text().strip()
    await until(lambda: not child.exists())
    assert seen.lines == [b"one", b"two", b"three", b"four", b"four", b"five", b"six", b"trapped"]
    assert seen.check().exit_code == 3
    (folder,) = (agent.data / "jobs").iterdir()
    assert not list(folder.glob("step-*"))


@pytest.mark.parametrize("entry", [{"script": "./called.sh"}, {"step": "./package"}])
async def test_program_reopens_output(agent: AgentProcess, a_job: Build, tmp_path: Path, entry: dict[str, Any]) -> None:
    (tmp_path / "work/package").mkdir(parents=True)
    (tmp_path / "work/package/func.yml").write_text("spec:\n---\nexec: {command: [./called.sh]}\n")
    called = tmp_path / "work/called.sh"
    called.write_text("#!/bin/sh\necho one; echo x >/dev/stderr; echo two; echo y >/dev/stderr; echo three; exit 4\n")
    called.chmod(0o755)
    seen = await run_job(agent, a_job(steps=steps_text({"name": "it"} | entry), env={"PATH": "/nowhere:/bin:/usr/bin"}))
    assert seen.lines == [b"one", b"x", b"two", b"y", b"three"]
    assert seen.check().exit_code == 4


async def test_last_output_of_a_cancelled_step_is_in_the_log(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    """The process that copies the output survives the signal and copies all of it."""
    script = "trap 'seq 20000; exit 1' TERM; touch up; while :; do sleep 0.02; done"
    async with agent.client() as client:
        await client.start(a_job(script=script))
        await until((tmp_path / "work/up").exists)
        await client.cancel("1")
        seen = await follow(client, "1")
    assert [int(line) for line in seen.lines if line.isdigit()] == list(range(1, 20001))


async def test_a_step_keeps_the_agents_own_limit_of_open_files(agent: AgentProcess, a_job: Build) -> None:
    seen = await run_job(agent, a_job(script="ulimit -Sn"))
    assert int(seen.lines[0]) == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"script": "true", "job_id": "x" * 201}, "id: 1 to 200 characters"),
        ({"script": "true", "job_id": ""}, "id: 1 to 200 characters"),
        ({"steps": "{}\n---\n{}"}, 'exactly one of "exec" and "run" is needed'),
        ({"steps": steps_text({"name": "a", "script": "x", "if": "always()"}, extended=False)}, "is an extension"),
        ({"script": "true", "variables": [JobVariable(key="../x", value="1", file=True)]}, "a name of letters"),
        ({"script": "true", "env": {"A": "a\0b"}}, "NUL byte"),
        ({"steps": steps_text({"name": "a", "s3cret": "x"}), "masks": ["s3cret"]}, "unknown key .*MASKED"),
    ],
)
async def test_bad_request_is_refused_and_leaves_nothing(
    agent: AgentProcess, a_job: Build, values: dict[str, object], text: str
) -> None:
    async with agent.client() as client:
        with pytest.raises(AgentRefusedError, match=text):
            await client.start(a_job(**values))
        assert not (await client.hello()).jobs
    assert not list((agent.data / "jobs").iterdir())
