"""Control flow of steps: conditions, retries, timeouts, parallel groups, and environments around steps."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_kills import run_with_kills
from tests.support.step_files import open_command, write_step
from tests.support.step_jobs import Build

from remuda.testing.agent_process import (
    AgentProcess,
    Seen,
    follow,
    plain_lines,
    run_job,
    steps_text,
    through_deaths,
)
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobVariable

LONG = pytest.mark.long


def statuses_by_path(seen: Seen) -> dict[str, str]:
    return {event["path"]: event["status"] for event in seen.results if event["event"] == "finished"}


def all_lines(seen: Seen) -> list[bytes]:
    """The output lines of all steps, by log stream."""
    streams = sorted({line[28:31] for line in seen.log.splitlines()} - {b"00O"})
    return [line for stream in streams for line in plain_lines(seen.log, stream)]


async def test_conditions_are_expressions(agent: AgentProcess, a_job: Build) -> None:
    steps = steps_text(
        {"name": "a", "script": """echo '{"name":"n","value":3}' >>$REMUDA_OUTPUTS"""},
        {"name": "yes", "script": "echo yes", "if": "steps.a.outputs.n > 2 && vars.WHERE == 'here'"},
        {"name": "no", "script": "echo no", "if": "${{ steps.a.outputs.n > 3 }}"},
        {"name": "fail", "script": "exit 2"},
        {"name": "plain", "script": "echo no", "if": "true"},
        {"name": "rescue", "script": "echo rescue", "if": "failure() && steps.a.outputs.n == 3"},
        {"name": "stopped", "script": "echo no", "if": "cancelled()"},
    )
    seen = await run_job(agent, a_job(steps=steps, variables=[JobVariable(key="WHERE", value="here")]))
    assert all_lines(seen) == [b"yes", b"rescue"]
    assert statuses_by_path(seen) == {
        "/a": "success", "/yes": "success", "/no": "skipped", "/fail": "failure", "/plain": "skipped",
        "/rescue": "success", "/stopped": "skipped",
    }  # fmt: skip


async def test_control_flow_exists_in_packages(agent: AgentProcess, a_job: Build, work: Path) -> None:
    write_step(
        work / "outer",
        {
            "run": [
                {"name": "fails", "script": "echo one; exit 1", "continue_on_error": True},
                {"name": "breaks", "script": "exit 5"},
                {"name": "skipped", "script": "echo no"},
            ],
            "finally": [{"name": "clean", "script": "echo clean $CI_JOB_STATUS"}],
        },
    )
    seen = await run_job(
        agent, a_job(steps=steps_text({"name": "outer", "step": "./outer", "continue_on_error": True}))
    )
    assert seen.check().status == "success"
    assert all_lines(seen) == [b"one", b"clean failed"]
    assert statuses_by_path(seen)["/outer"] == "failure"
    assert any(b'WARNING: step "outer" failed: step "breaks": exit status 5' in line for line in seen.agent_lines)


async def test_per_step_timeout_and_retry(agent: AgentProcess, a_job: Build, work: Path) -> None:
    count = "n=$(cat tries 2>/dev/null || echo 0); n=$((n+1)); echo $n >tries; echo try $n; [ $n = 3 ] || sleep 60"
    steps = steps_text({"name": "flaky", "script": count, "retry": {"times": 3, "delay": 0.1}, "timeout": 0.5})
    seen = await run_job(agent, a_job(steps=steps))
    assert seen.check().status == "success"
    assert all_lines(seen) == [b"try 1", b"try 2", b"try 3"]
    finished = [event for event in seen.results if event["event"] == "finished"]
    assert [(event["attempt"], event["status"], event.get("retried")) for event in finished] == [
        (1, "failure", True), (2, "failure", True), (3, "success", None)
    ]  # fmt: skip


async def test_timeout_of_a_list_ends_all_below(agent: AgentProcess, a_job: Build, work: Path) -> None:
    write_step(
        work / "outer",
        {
            "run": [{"name": "slow", "script": "echo $$ >pid; sleep 60"}, {"name": "never", "script": "echo no"}],
            "finally": [{"name": "clean", "script": "echo clean"}],
        },
    )
    seen = await run_job(agent, a_job(steps=steps_text({"name": "outer", "step": "./outer", "timeout": 0.5})))
    assert seen.check().message == 'step "outer": the step took longer than its limit of 0.5 s'
    assert all_lines(seen) == [b"clean"]
    assert statuses_by_path(seen) == {
        "/outer/slow": "failure", "/outer/never": "skipped", "/outer/clean": "success", "/outer": "failure"
    }  # fmt: skip


async def test_members_of_a_group_run_at_the_same_time(agent: AgentProcess, a_job: Build, work: Path) -> None:
    meet = "touch {0}; while [ ! -e {1} ]; do sleep 0.02; done; for n in 1 2 3; do echo {0} $n; sleep 0.05; done"
    members = [
        {
            "name": "left",
            "script": meet.format("left", "right") + """; echo '{"name":"n","value":1}' >>$REMUDA_OUTPUTS""",
        },
        {"name": "right", "script": meet.format("right", "left") + "; printf unfinished; exit 4"},
        {"name": "skipped", "script": "echo no", "if": "failure()"},
    ]
    steps = steps_text(
        {"name": "both", "parallel": members},
        {"name": "never", "script": "echo no"},
        {"name": "after", "script": "echo got ${{ steps.left.outputs.n }}", "if": "always()"},
    )
    seen = await run_job(agent, a_job(steps=steps))
    assert seen.check().message == 'step "both": step "right": exit status 4'
    by_stream = [plain_lines(seen.log, stream) for stream in (b"01O", b"02O")]
    assert by_stream == [
        [b"left 1", b"left 2", b"left 3", b"got 1"],
        [b"right 1", b"right 2", b"right 3", b"unfinished"],
    ]
    assert statuses_by_path(seen) == {
        "/both/skipped": "skipped", "/both/left": "success", "/both/right": "failure", "/both": "failure",
        "/never": "skipped", "/after": "success",
    }  # fmt: skip
    streams = {event["path"]: event.get("log_stream") for event in seen.results if event["event"] == "finished"}
    assert (streams["/both/left"], streams["/both/right"], streams["/both"]) == ("01", "02", None)


async def test_cancel_reaches_every_level(agent: AgentProcess, a_job: Build, work: Path) -> None:
    write_step(
        work / "outer",
        {
            "run": [
                {"name": "group", "parallel": [{"name": n, "script": f"touch {n}; sleep 60"} for n in ("x", "y")]},
                {"name": "never", "script": "echo no"},
            ],
            "finally": [{"name": "clean", "script": "echo clean $CI_JOB_STATUS"}],
        },
    )
    steps = steps_text(
        {"name": "outer", "step": "./outer", "retry": 5},
        {"name": "last", "script": "echo last", "if": "cancelled()"},
    )
    async with agent.client() as client:
        await client.start(a_job(steps=steps))
        await until(lambda: (work / "x").exists() and (work / "y").exists())
        await client.cancel("1")
        seen = await follow(client, "1")
    assert seen.check().reason == "job_canceled"
    assert all_lines(seen) == [b"clean canceled", b"last"]
    assert statuses_by_path(seen) == {
        "/outer/group/x": "cancelled", "/outer/group/y": "cancelled", "/outer/group": "cancelled",
        "/outer/never": "skipped", "/outer/clean": "success", "/outer": "cancelled", "/last": "success",
    }  # fmt: skip


async def test_cancel_ends_the_wait_for_another_attempt(agent: AgentProcess, a_job: Build) -> None:
    steps = steps_text({"name": "a", "script": "exit 1", "retry": {"times": 1, "delay": "1h"}})
    async with agent.client() as client:
        await client.start(a_job(steps=steps))
        await until(lambda: b'"retried":true' in next((agent.data / "jobs").glob("*/events")).read_bytes())
        await client.cancel("1")
        seen = await follow(client, "1")
    assert seen.check().reason == "job_canceled"


@pytest.mark.parametrize("restarted", [False, True])
async def test_job_ends_what_left_its_session(agent: AgentProcess, a_job: Build, work: Path, restarted: bool) -> None:
    daemon = "setsid sh -c 'echo $$ >daemon; while :; do sleep 0.1; done' & while [ ! -s daemon ]; do sleep 0.02; done"
    async with agent.client() as client:
        await client.start(a_job(script=f"{daemon}; while [ ! -e go ]; do sleep 0.02; done"))
        await until(lambda: (work / "daemon").exists() and (work / "daemon").read_text().endswith("\n"))
    if restarted:
        await agent.kill()
        await agent.start()
    (work / "go").touch()
    async with agent.client() as client:
        assert (await follow(client, "1")).check().status == "success"
    pid = int((work / "daemon").read_text())
    await until(lambda: not is_alive(pid))


async def test_cancel_kills_a_process_that_left_its_session(agent: AgentProcess, a_job: Build, work: Path) -> None:
    script = "setsid sh -c 'trap : TERM; echo $$ >daemon; while :; do sleep 0.1; done' & sleep 60"
    async with agent.client() as client:
        await client.start(a_job(script=script))
        await until(lambda: (work / "daemon").exists() and (work / "daemon").read_text().endswith("\n"))
        await client.cancel("1")
        await follow(client, "1")
    pid = int((work / "daemon").read_text())
    await until(lambda: not is_alive(pid))


async def test_close_kills_a_process_that_left_its_session(agent: AgentProcess, a_job: Build, work: Path) -> None:
    script = "setsid sh -c 'echo $$ >daemon; while :; do sleep 0.1; done' & sleep 60"
    async with agent.client() as client:
        await client.start(a_job(script=script))
        await until(lambda: (work / "daemon").exists() and (work / "daemon").read_text().endswith("\n"))
        await client.close_job("1")
    pid = int((work / "daemon").read_text())
    await until(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# Runs the command of the request file and prints its output with a prefix before each line.
PREFIX = """#!/usr/bin/env python3
import json, os, subprocess, sys
request = json.load(open(sys.argv[-1]))
env = {"PATH": os.environ["PATH"], "WHERE": sys.argv[1]} | request["env"]
both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
process = subprocess.run(request["command"], cwd=request["work_dir"], env=env, **both)
for line in process.stdout.splitlines():
    print(f"{sys.argv[1]}> {line.decode()}")
sys.exit(process.returncode)
"""


def write_environment(work: Path, *, opening: str = "true", closing: str = "true") -> None:
    """Write the step ./place, which opens an environment. `opening` and `closing` are more shell commands of it."""
    spec = {
        "inputs": {"place": {"type": "string"}},
        "outputs": {"number": {"type": "number"}},
    }
    answer = json.dumps({"name": "environment", "value": {"exec": ["PREFIX", "PLACE"]}})
    number = json.dumps({"name": "number", "value": 7})
    write_outputs = (
        f"printf '%s\\n' '{answer}' '{number}' | sed s:PREFIX:$2/prefix: | sed s:PLACE:$1: >>$REMUDA_OUTPUTS"
    )
    open_script = f"echo open $1 >>../trail; {opening}; {write_outputs}"
    command = ["sh", "-ec", open_script, "sh", "${{ inputs.place }}", "${{ func_dir }}"]
    close = ["sh", "-ec", f"echo close $1 >>../trail; {closing}", "sh", "${{ inputs.place }}"]
    write_step(work / "place", {"environment": {"open": {"command": command}, "close": {"command": close}}}, spec)
    (work / "place/prefix").write_text(PREFIX)
    (work / "place/prefix").chmod(0o755)


def environment_step(*entries: dict[str, Any], place: str = "there") -> dict[str, Any]:
    """A step that opens the environment `place` and runs these entries in it."""
    return {
        "name": "env",
        "step": "./place",
        "inputs": {"place": place},
        "env": {"GIVEN": "given"},
        "run": list(entries),
    }


async def test_inner_steps_run_in_environment(agent: AgentProcess, a_job: Build, work: Path, tmp_path: Path) -> None:
    write_environment(work)
    write_step(work / "nested", {"run": [{"name": "deep", "script": "echo deep $WHERE ${HOME-homeless}"}]})
    write = (
        """echo '{"name":"n","value":5}' >>$REMUDA_OUTPUTS; echo '{"name":"EX","value":"ported"}' >>$REMUDA_EXPORTS"""
    )
    steps = steps_text(
        {"name": "before", "script": "echo before"},
        environment_step(
            {"name": "one", "script": f"echo $GIVEN $JOBVAR; {write}; false | true || echo pipefail"},
            {"name": "nested", "step": "./nested"},
            {"name": "two", "script": "echo ${{ steps.one.outputs.n }} $EX"},
        ),
        {"name": "after", "script": "echo after ${{ steps.env.outputs.number }} ${{ steps.one.outputs.n }} $EX"},
    )
    seen = await run_job(agent, a_job(steps=steps, variables=[JobVariable(key="JOBVAR", value="jobvar")]))
    assert seen.check().status == "success", seen.log
    assert all_lines(seen) == [
        b"before", b"there> given jobvar", b"there> pipefail", b"there> deep there homeless", b"there> 5 ported",
        b"after 7 5 ported",
    ]  # fmt: skip
    assert (tmp_path / "trail").read_text() == "open there\nclose there\n"
    results = {event["path"]: event for event in seen.results if event["event"] == "finished"}
    assert list(results) == [
        "/before", "/env/+open", "/env/one", "/env/nested/deep", "/env/nested", "/env/two", "/env/+close", "/env",
        "/after",
    ]  # fmt: skip
    assert results["/env/nested/deep"]["environment"] == "/env"
    assert "environment" not in results["/env/+open"]
    assert results["/env"]["outputs"] == {"number": 7}


async def test_an_environment_in_an_environment(agent: AgentProcess, a_job: Build, work: Path, tmp_path: Path) -> None:
    write_environment(work)
    inner = environment_step({"name": "two", "script": "echo two $WHERE; exit 6"}, place="inner") | {"name": "inner"}
    steps = steps_text(environment_step({"name": "one", "script": "echo one"}, inner, place="outer"))
    seen = await run_job(agent, a_job(steps=steps))
    assert seen.check().message == 'step "env": step "inner": step "two": exit status 6'
    assert all_lines(seen) == [b"outer> one", b"outer> inner> two inner"]
    trail = (tmp_path / "trail").read_text().split("\n")
    assert trail == ["open outer", "open inner", "close inner", "close outer", ""]


@pytest.mark.parametrize("ending", ["failure", "open", "cancel", "timeout"])
async def test_environment_closes(agent: AgentProcess, a_job: Build, work: Path, tmp_path: Path, ending: str) -> None:
    write_environment(work, opening="exit 3" if ending == "open" else "true")
    script = "exit 3" if ending == "failure" else "touch ../up; sleep 60"
    job = a_job(
        steps=steps_text(environment_step({"name": "in", "script": script})),
        timeout_seconds=2 if ending == "timeout" else 0,
    )
    async with agent.client() as client:
        await client.start(job)
        if ending == "cancel":
            await until((tmp_path / "up").exists)
            await client.cancel("1")
        seen = await follow(client, "1")
    assert seen.check().status == ("cancelled" if ending == "cancel" else "failure")
    assert (tmp_path / "trail").read_text() == "open there\nclose there\n"
    assert statuses_by_path(seen)["/env/+close"] == "success"
    if ending == "open":
        assert seen.check().message == 'step "env": open: exit status 3'


async def test_no_package_uses_the_agents_own_programs(agent: AgentProcess, a_job: Build, work: Path) -> None:
    command = open_command({"exec": ["remuda-step", "container_exec"]})
    write_step(work / "fake", {"environment": {"open": {"command": command}}})
    write_step(work / "own", {"exec": {"command": ["remuda-step", "checkout"]}})
    steps = steps_text({"name": "env", "step": "./fake", "run": [{"name": "in", "script": "true"}]})
    assert "does not come with the agent" in (await run_job(agent, a_job(steps=steps))).check().message
    seen = await run_job(agent, a_job("2", steps=steps_text({"name": "own", "step": "./own"})))
    assert "executable file not found" in seen.check().message


async def test_a_job_cannot_leave_its_environment(agent: AgentProcess, a_job: Build, work: Path) -> None:
    write_environment(work)
    own = {"name": "own", "step": "builtin://checkout", "inputs": {"strategy": "none"}}
    env = environment_step(own | {"origin": "user"}) | {"origin": "compiled"}
    seen = await run_job(agent, a_job(steps=steps_text(env)))
    assert "runs on the runner's machine, outside of the job's environment /env" in seen.check().message
    compiled = {"name": "own", "step": "builtin://cache_restore", "inputs": {"folder": "/none"}, "origin": "compiled"}
    seen = await run_job(agent, a_job("2", steps=steps_text(environment_step(compiled) | {"origin": "compiled"})))
    assert seen.check().status == "success", seen.log


async def test_no_checkout_runs_while_an_environment_is_open(agent: AgentProcess, a_job: Build, work: Path) -> None:
    """A policy may insert a checkout around a step of the job; git would have more rights than the environment."""
    write_environment(work)
    own = {"name": "own", "step": "builtin://checkout", "inputs": {"strategy": "none"}, "origin": "compiled"}
    seen = await run_job(agent, a_job(steps=steps_text(environment_step(own) | {"origin": "compiled"})))
    assert "builtin://checkout runs on the runner's machine, outside of" in seen.check().message


KILL_POINTS = [
    "agent.step_found", "agent.step_prepared", "agent.step_spawned", "agent.step_exited", "agent.result_stored",
    "agent.log_recorded",
]  # fmt: skip


def nested_steps(work: Path) -> str:
    """Steps with a package, a retry, a parallel group, an environment and a failure."""
    write_environment(work)
    write_step(
        work / "outer",
        {
            "run": [
                {"name": "x", "script": "echo x; echo x >>runs; " + EXPORT},
                {
                    "name": "flaky",
                    "script": "echo flaky >>runs; [ -e once ] || { touch once; exit 1; }",
                    "retry": {"times": 1, "delay": 0.3},
                },
            ],
            "finally": [{"name": "f", "script": "echo f >>runs"}],
            "outputs": {"o": "${{ steps.x.outputs.v }}"},
        },
        {"outputs": {"o": {"type": "string"}}},
    )
    members = [{"name": n, "script": f"echo {n} >>runs; sleep 0.2; echo {n} done"} for n in ("p", "q")]
    return steps_text(
        {"name": "outer", "step": "./outer"},
        {"name": "group", "parallel": members},
        environment_step({"name": "in", "script": "echo in >>runs; echo in $E ${{ steps.outer.outputs.o }}"}),
        {"name": "last", "script": "echo last >>runs; exit 3"},
    )


EXPORT = """echo '{"name":"E","value":"e"}' >>$REMUDA_EXPORTS; echo '{"name":"v","value":"w"}' >>$REMUDA_OUTPUTS"""


async def check_nested_steps(seen: Seen, work: Path) -> None:
    assert seen.check().message == 'step "last": exit status 3'
    runs = (work / "runs").read_text().split()
    assert sorted(runs) == sorted(["x", "flaky", "flaky", "f", "p", "q", "in", "last"])
    assert sorted(all_lines(seen)) == sorted([b"x", b"p done", b"q done", b"there> in e w"])
    assert (work.parent / "trail").read_text() == "open there\nclose there\n"
    starts = [line for line in seen.agent_lines if line.startswith(b"section_start")]
    ends = [line for line in seen.agent_lines if line.startswith(b"section_end")]
    assert len(starts) == len(ends) == 13


@pytest.mark.parametrize("point", KILL_POINTS)
@pytest.mark.parametrize("times", [1, pytest.param(6, marks=LONG), pytest.param(11, marks=LONG)])
async def test_killed_in_the_middle_of_a_tree(tmp_path: Path, a_job: Build, work: Path, point: str, times: int) -> None:
    """Kills the agent at a kill point of the first step that reaches it, or of a later one."""
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start(kill_point=point, env={"REMUDA_KILL_AFTER": str(times)})
        seen = await through_deaths(agent, a_job(steps=nested_steps(work)), kill_point=point)
        await check_nested_steps(seen, work)


@LONG
async def test_killed_at_any_moment_of_a_tree(tmp_path: Path, a_job: Build, work: Path) -> None:
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        pauses = (0.05, 0.15, 0.1, 0.2, 0.12, 0.3, 0.07)
        seen = await run_with_kills(agent, a_job(steps=nested_steps(work)), pauses)
        await check_nested_steps(seen, work)


def write_agent_environment(work: Path, agent: AgentProcess) -> None:
    """Write the step ./machine, which opens an environment of another agent."""
    command = [sys.executable, "-m", "remuda.steps", "proxy", "--data", str(agent.data)]
    definition = {
        "environment": {
            "open": {"command": open_command({"agent": command})},
            "close": {"command": ["sh", "-c", "echo closed >>../trail"]},
        }
    }
    write_step(work / "machine", definition)


async def test_inner_steps_run_in_another_agent(agent: AgentProcess, a_job: Build, work: Path, tmp_path: Path) -> None:
    write_environment(work)
    write_step(
        work / "outer",
        {
            "run": [
                {"name": "first", "script": 'echo \'{"name":"v","value":"w"}\' >>$REMUDA_OUTPUTS'},
                {
                    "name": "machine",
                    "step": "../machine",
                    "env": {"SAID": "said"},
                    "run": [
                        {"name": "one", "script": f"echo one {PARENT_OF_SHIM} $SAID ${{{{ inputs.who }}}}; {EXPORT}"},
                        environment_step({"name": "two", "script": "echo two $WHERE $E ${{ steps.first.outputs.v }}"}),
                        {"name": "three", "script": "echo three ${{ vars.MASKED }}; exit 4", "continue_on_error": True},
                    ],
                },
                {"name": "last", "script": "echo last $E ${{ steps.one.outputs.v }}"},
            ]
        },
        {"inputs": {"who": {"type": "string"}}},
    )
    variables = [JobVariable(key="MASKED", value="hide-this", masked=True), JobVariable(key="E", value="weak")]
    async with AgentProcess(tmp_path / "other") as other_agent:
        await other_agent.start()
        write_agent_environment(work, other_agent)
        steps = steps_text({"name": "outer", "step": "./outer", "inputs": {"who": "ann"}})
        seen = await run_job(agent, a_job(steps=steps, variables=variables))
        async with other_agent.client() as client:
            assert not (await client.hello()).jobs
    assert seen.check().status == "success", seen.log
    printed = [line for line in all_lines(seen) if not line.startswith((b"section_", b"WARNING"))]
    assert printed == [
        f"one {other_agent.pid} said ann".encode(), b"there> two there e w", b"three [MASKED]", b"last e w"
    ]  # fmt: skip
    statuses = statuses_by_path(seen)
    assert statuses == {
        "/outer/first": "success", "/outer/machine/+open": "success", "/outer/machine/one": "success",
        "/outer/machine/env/+open": "success", "/outer/machine/env/two": "success",
        "/outer/machine/env/+close": "success", "/outer/machine/env": "success", "/outer/machine/three": "failure",
        "/outer/machine/+delegate": "success", "/outer/machine/+close": "success", "/outer/machine": "success",
        "/outer/last": "success", "/outer": "success",
    }  # fmt: skip
    two = next(event for event in seen.results if event["path"] == "/outer/machine/env/two" and "status" in event)
    assert two["environment"] == "/outer/machine/env"
    assert (tmp_path / "trail").read_text().split("\n")[-2:] == ["closed", ""]


@LONG
@pytest.mark.parametrize("point", ["agent.step_spawned", "agent.step_exited", "agent.result_stored"])
async def test_delegated_part_survives_death_of_agent(a_job: Build, work: Path, tmp_path: Path, point: str) -> None:
    async with AgentProcess(tmp_path / "data") as agent, AgentProcess(tmp_path / "other") as other_agent:
        await agent.start(kill_point=point, env={"REMUDA_KILL_AFTER": "2"})
        await other_agent.start()
        write_agent_environment(work, other_agent)
        inner = [
            {"name": "one", "script": "echo one >>runs; sleep 0.5; echo one"},
            {"name": "two", "script": "echo two >>runs; exit 3"},
        ]
        steps = steps_text({"name": "machine", "step": "./machine", "run": inner})
        seen = await through_deaths(agent, a_job(steps=steps), kill_point=point)
    assert seen.check().message == 'step "machine": delegate: step "two": exit status 3'
    assert (work / "runs").read_text() == "one\ntwo\n"
    assert [line for line in all_lines(seen) if not line.startswith(b"section_")] == [b"one"]
    assert statuses_by_path(seen)["/machine/two"] == "failure"


async def test_cancel_reaches_another_agent(agent: AgentProcess, a_job: Build, work: Path, tmp_path: Path) -> None:
    async with AgentProcess(tmp_path / "other") as other_agent:
        await other_agent.start()
        write_agent_environment(work, other_agent)
        inner = [{"name": "one", "script": "touch up; sleep 60"}]
        job = a_job(steps=steps_text({"name": "machine", "step": "./machine", "run": inner}))
        async with agent.client() as client:
            await client.start(job)
            await until((work / "up").exists)
            await client.cancel("1")
            seen = await follow(client, "1")
        async with other_agent.client() as client:
            assert not (await client.hello()).jobs
    assert seen.check().reason == "job_canceled"
    assert statuses_by_path(seen)["/machine/one"] == "cancelled"
    assert (tmp_path / "trail").read_text() == "closed\n"


PARENT_OF_SHIM = "$(ps -o ppid= -p $PPID | tr -d ' ')"
