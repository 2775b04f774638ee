"""Policies on jobs of a real agent: denied steps, inserted steps, limits, and what the results report."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.step_jobs import Build

from remuda.steps.policy.host_abilities import Host, find_host
from remuda.testing.agent_process import AgentProcess, run_job, steps_text, through_deaths
from remuda.testing.waiting import until
from remuda.wire.agent_client import AgentRefusedError, JobStart, JobVariable

EAT = "head -c 200000000 /dev/zero | tail -c 190000000 >/dev/null"
REACH = f'{sys.executable} -c \'import socket; socket.create_connection(("127.0.0.1", {{}}), 5); print("reached")\''
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def agent(open_agent: AgentProcess) -> AgentProcess:
    return open_agent


@pytest.fixture
def a_job(public_folder: Path) -> Build:
    """Build a job of scripts or other entries under the runner's policy. `inserted`: variables of inserted steps."""

    def build(*entries: str | dict[str, Any], policy: dict[str, Any] | None = None, **values: Any) -> JobStart:
        steps = [
            a_script(f"s{number}", entry) if isinstance(entry, str) else entry for number, entry in enumerate(entries)
        ]
        layers = [{"author": "runner r", "document": policy}] if policy is not None else []
        variables = values.pop("inserted", {})
        return JobStart(
            id=values.pop("id", "1"),
            work_dir=str(public_folder / "work"),
            steps=steps_text(*steps),
            policy=json.dumps({"version": 1, "layers": layers} | ({"variables": variables} if variables else {})),
            **values,
        )

    return build


def a_script(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "script": text} | more


def write_package(folder: Path, definition: str) -> str:
    """Write a step, whose definition is YAML. Returns its folder."""
    folder.mkdir(parents=True)
    (folder / "func.yml").write_text(f"spec: {{remuda: 1}}\n---\n{definition}\n")
    return str(folder)


async def test_denied_step_names_rule_and_never_runs(agent: AgentProcess, a_job: Build, public_folder: Path) -> None:
    rules = [{"name": "no scripts", "deny": "builtin:script", "reason": "use steps"}]
    seen = await run_job(agent, a_job(f"touch {public_folder}/ran", policy={"rules": rules}))
    event = seen.result_of("/s0")
    assert (event["status"], event["fault"], event["error_kind"]) == ("failure", "user", "policy")
    assert event["error"] == 'builtin://script@1.0.0 is denied by "no scripts" in the policy of runner r: use steps'
    assert (event["policy"]["decision"], event["policy"]["rule"]) == ("denied", "runner r: no scripts")
    assert not (public_folder / "ran").exists()
    assert seen.end is not None
    assert (seen.end.status, seen.end.reason) == ("failure", "script_failure")


async def test_nested_step_is_denied(agent: AgentProcess, a_job: Build, public_folder: Path) -> None:
    inner = write_package(public_folder / "work/inner", f"exec: {{command: [touch, {public_folder}/ran]}}")
    write_package(public_folder / "work/outer", "run: [{name: first, script: 'true'}, {name: inner, step: ../inner}]")
    policy = {"rules": [{"deny": f"local:{inner}/**"}]}
    seen = await run_job(agent, a_job({"name": "outer", "step": "./outer"}, policy=policy))
    assert seen.statuses == {"first": "success", "inner": "failure", "outer": "failure"}
    assert seen.result_of("/outer/inner")["error_kind"] == "policy"
    assert not (public_folder / "ran").exists()


async def test_step_reached_by_an_expression_is_denied(agent: AgentProcess, a_job: Build, public_folder: Path) -> None:
    write_package(public_folder / "work/evil", f"exec: {{command: [touch, {public_folder}/ran]}}")
    entry = {"name": "it", "step": "./${{ vars.WHICH }}"}
    variables = [JobVariable(key="WHICH", value="evil")]
    job = a_job(entry, policy={"rules": [{"deny": "local"}]}, variables=variables)
    seen = await run_job(agent, job)
    assert seen.result_of("/it")["policy"]["decision"] == "denied"
    assert not (public_folder / "ran").exists()


async def test_steps_are_inserted_before_and_after(agent: AgentProcess, a_job: Build) -> None:
    insert = [
        {"name": "audit", "script": "echo audited", "before": "job"},
        {"name": "scan", "script": "echo scanned", "after": "job"},
    ]
    seen = await run_job(agent, a_job("echo works", "exit 3", "echo never", policy={"insert": insert}))
    order = [
        (event["path"], event["origin"], event["status"]) for event in seen.results if event["event"] == "finished"
    ]
    assert order == [
        ("/audit", "inserted", "success"),
        ("/s0", "user", "success"),
        ("/s1", "user", "failure"),
        ("/s2", "user", "skipped"),
        ("/scan", "inserted", "success"),
    ]
    assert [line for line in seen.lines if line in (b"audited", b"works", b"scanned")] == [
        b"audited",
        b"works",
        b"scanned",
    ]
    assert seen.result_of("/audit")["policy"]["rule"] == "runner r: inserted steps"


async def test_steps_are_inserted_around_a_nested_step(agent: AgentProcess, a_job: Build, public_folder: Path) -> None:
    write_package(public_folder / "work/inner", "exec: {command: [echo, inner]}")
    write_package(
        public_folder / "work/outer", "run: [{name: first, script: echo first}, {name: inner, step: ../inner}]"
    )
    source = f"local:{public_folder}/work/inner/**"
    insert = [
        {"name": "check", "script": "echo check", "before": source},
        {"name": "seal", "script": "echo seal", "after": source},
    ]
    job = a_job({"name": "outer", "step": "./outer"}, "echo last", policy={"insert": insert})
    seen = await run_job(agent, job)
    order = [event["path"] for event in seen.results if event["event"] == "finished"]
    assert order == ["/outer/first", "/outer/check", "/outer/inner", "/outer/seal", "/outer", "/s1"]
    assert seen.end is not None
    assert seen.end.status == "success"


@pytest.mark.parametrize("kill_point", ["agent.step_prepared", "agent.step_exited", "agent.result_stored"])
async def test_inserted_steps_run_once_if_the_agent_dies(public_folder: Path, a_job: Build, kill_point: str) -> None:
    source = f"local:{public_folder}/work/inner/**"
    insert = [{"name": "check", "script": f"echo check >>{public_folder}/trace", "before": [source, "builtin:script"]}]
    write_package(public_folder / "work/inner", f"exec: {{command: [sh, -c, 'echo inner >>{public_folder}/trace']}}")
    async with AgentProcess(public_folder / "data") as process:
        await process.start(kill_point=kill_point)
        job = a_job(
            {"name": "inner", "step": "./inner"}, f"echo last >>{public_folder}/trace", policy={"insert": insert}
        )
        seen = await through_deaths(process, job)
    assert [event["path"] for event in seen.results if event["event"] == "finished"] == [
        "/check",
        "/inner",
        "/check",
        "/s1",
    ]
    assert (public_folder / "trace").read_text().split() == ["check", "inner", "check", "last"]


async def test_job_cannot_change_inserted_step_program(agent: AgentProcess, a_job: Build, public_folder: Path) -> None:
    (public_folder / "evil").mkdir()
    (public_folder / "evil/true").write_text(f"#!/bin/sh\ntouch {public_folder}/changed\n")
    (public_folder / "evil/true").chmod(0o755)
    insert = [{"name": "scan", "script": "env true; echo $CI_NAME", "after": "job"}]
    export = f'echo \'{{"name": "PATH", "value": "{public_folder}/evil"}}\' >>$REMUDA_EXPORTS'
    env = {"PATH": f"{public_folder}/evil:{os.environ['PATH']}", "CI_NAME": "forged"}
    seen = await run_job(agent, a_job(export, policy={"insert": insert}, env=env, inserted={"CI_NAME": "seen"}))
    assert seen.statuses == {"s0": "success", "scan": "success"}
    assert b"seen" in seen.lines
    assert not (public_folder / "changed").exists()


VARIABLES_THAT_CHANGE_PROGRAMS = (
    "MAKEFILES",
    "GNUMAKEFLAGS",
    "POSIXLY_CORRECT",
    "_JAVA_OPTIONS",
    "CC",
    "AWKPATH",
    "UNZIP",
    "TMOUT",
    "EXECIGNORE",
)


async def test_an_inserted_step_has_no_variable_of_the_job(agent: AgentProcess, a_job: Build) -> None:
    """This holds for variables that change programs and for forged predefined ones, unless the policy names them."""
    forged = [
        *VARIABLES_THAT_CHANGE_PROGRAMS,
        "LC_ALL",
        "LANG",
        "SHELL",
        "USER",
        "CI_COMMIT_SHA",
        "CI_INVENTED",
        "GITLAB_USER_LOGIN",
        "TOKEN",
    ]
    job_variables = [JobVariable(key=name, value="forged") for name in forged]
    policy_env = {"NAMED": "${{ vars.TOKEN }}", "SHA": "${{ vars.CI_COMMIT_SHA }}"}
    insert = [{"name": "scan", "script": "env", "after": "job", "env": policy_env}]
    predefined = {"CI_COMMIT_SHA": "abc", "CI_JOB_ID": "7"}
    seen = await run_job(agent, a_job("true", policy={"insert": insert}, variables=job_variables, inserted=predefined))
    assert seen.check().status == "success", seen.log.decode()
    pairs = [line.decode().partition("=") for line in seen.lines if b"=" in line]
    env = {name: value for name, _, value in pairs}
    assert {name for name, value in env.items() if value == "forged"} == {"NAMED"}
    assert (env["CI_COMMIT_SHA"], env["SHA"], env["CI_JOB_ID"]) == ("abc", "abc", "7")
    assert env["CI_JOB_STATUS"] == "success"


async def test_exports_reach_no_other_inserted_steps(agent: AgentProcess, a_job: Build, public_folder: Path) -> None:
    """A narrower policy must not control the programs of steps that a wider policy inserts."""
    export = """'echo {\\"name\\": \\"MAKEFILES\\", \\"value\\": \\"mine\\"} >>"$REMUDA_EXPORTS"'"""
    parts = f"[{{name: first, script: {export}}}, {{name: second, script: 'echo second $MAKEFILES'}}]"
    package = write_package(public_folder / "package", f"run: {parts}")
    insert = [
        {"name": "narrow", "step": f"{package}/func.yml", "before": "job"},
        {"name": "wide", "script": 'echo "wide ${MAKEFILES-none}"', "after": "job"},
    ]
    seen = await run_job(agent, a_job("echo job $MAKEFILES", policy={"insert": insert}))
    assert seen.check().status == "success", seen.log.decode()
    output = [line for line in seen.lines if line.endswith((b"mine", b"none"))]
    assert output == [b"second mine", b"job mine", b"wide none"]


async def test_step_of_job_cannot_take_inserted_steps_name(agent: AgentProcess, a_job: Build) -> None:
    insert = [{"name": "scan", "script": "true", "after": "job"}]
    seen = await run_job(agent, a_job(a_script("scan", "echo mine"), policy={"insert": insert}))
    denied, ran = [event for event in seen.results if event["event"] == "finished"]
    assert (denied["origin"], denied["policy"]["decision"]) == ("user", "denied")
    assert (ran["origin"], ran["status"]) == ("inserted", "success")


async def test_step_without_network(agent: AgentProcess, host: Host, a_job: Build, web: int) -> None:
    if not host.has_networks:
        pytest.skip("this machine cannot")
    free = await run_job(agent, a_job(REACH.format(web), id="free"))
    assert b"reached" in free.lines
    cut = await run_job(agent, a_job(REACH.format(web), id="cut", policy={"limits": {"network": "none"}}))
    assert cut.statuses == {"s0": "failure"}
    assert any(b"ConnectionRefusedError" in line for line in cut.lines)
    assert "network" in cut.result_of("/s0")["policy"]["advisory"]


async def test_step_over_its_memory_limit_ends_with_an_error(agent: AgentProcess, host: Host, a_job: Build) -> None:
    if not host.groups.limits("memory"):
        pytest.skip("this machine cannot")
    seen = await run_job(agent, a_job("echo fits", EAT, policy={"limits": {"memory": "64m"}}))
    event = seen.result_of("/s1")
    assert (event["status"], event["fault"]) == ("failure", "user")
    assert event["error"] == "the step used more memory than its limit of 64 MiB and was killed"
    assert any(event["error"].encode() in line for line in seen.agent_lines)
    assert event["usage"]["memory_peak_bytes"] <= 64 * 2**20


async def test_killed_process_fails_step_of_continued_script(agent: AgentProcess, host: Host, a_job: Build) -> None:
    if not host.groups.limits("memory"):
        pytest.skip("this machine cannot")
    seen = await run_job(agent, a_job(f"{EAT} || echo never mind", policy={"limits": {"memory": "64m"}}))
    assert seen.result_of("/s0")["error"] == "the step used more memory than its limit of 64 MiB and was killed"


async def test_step_over_its_timeout_fails(agent: AgentProcess, a_job: Build) -> None:
    seen = await run_job(agent, a_job("sleep 60", policy={"limits": {"timeout": 1}}))
    assert seen.result_of("/s0")["error"] == "the step took longer than its limit of 1 s"


async def test_files_before_a_step_are_not_in_its_limit(agent: AgentProcess, a_job: Build, public_folder: Path) -> None:
    (public_folder / "work").mkdir(exist_ok=True)
    (public_folder / "work/large").write_bytes(bytes(3 * 2**20))
    seen = await run_job(agent, a_job("echo small >more", policy={"limits": {"disk": "1m"}}))
    assert seen.check().status == "success"
    job_folder = next((public_folder / "data/jobs").iterdir())
    assert not list(job_folder.glob("step-*"))


async def test_full_disk_ends_the_step(agent: AgentProcess, a_job: Build) -> None:
    script = "for i in 1 2 3; do head -c 900000 /dev/zero >$i; done; sleep 60"
    seen = await run_job(agent, a_job(script, policy={"limits": {"disk": "1m"}}))
    event = seen.result_of("/s0")
    assert event["status"] == "failure"
    assert event["error"].endswith("the disk limit of the step is 1 MiB")


async def test_limits_are_advisory_for_the_agents_own_user(agent: AgentProcess, a_job: Build) -> None:
    seen = await run_job(agent, a_job("true", policy={"limits": {"memory": "64m", "timeout": 60}}))
    policy = seen.result_of("/s0")["policy"]
    assert (policy["enforced"], policy["advisory"]) == ([], ["steps", "memory", "timeout"])
    assert "own user" in policy["why"]["steps"]


@as_root
async def test_unprivileged_agent_has_advisory_limits(public_folder: Path, host: Host, a_job: Build, web: int) -> None:
    """The agent runs in a user namespace, where it can still read the Python of root."""
    if not host.has_networks:
        pytest.skip("this machine cannot")
    program = ("unshare", "--user", "--map-user=1000", "--map-group=1000", sys.executable, "-m", "remuda.steps")
    async with AgentProcess(public_folder / "data", program) as process:
        await process.start()
        job = a_job(f"id -u; {REACH.format(web)}", policy={"limits": {"network": "none"}})
        seen = await run_job(process, job)
        with pytest.raises(AgentRefusedError, match="this agent is user 1000, not root"):
            await run_job(process, a_job("true", id="2", run_as="123456"))
    assert b"1000" in seen.lines
    assert any(b"ConnectionRefusedError" in line for line in seen.lines)
    policy = seen.result_of("/s0")["policy"]
    assert (policy["enforced"], policy["advisory"]) == ([], ["steps", "network"])


async def test_policy_can_refuse_advisory_limits(agent: AgentProcess, a_job: Build, public_folder: Path) -> None:
    seen = await run_job(agent, a_job(f"touch {public_folder}/ran", policy={"advisory": "deny"}))
    assert seen.result_of("/s0")["error_kind"] == "policy"
    assert "refuses steps whose limits are advisory (steps: " in seen.result_of("/s0")["error"]
    assert not (public_folder / "ran").exists()


@as_root
async def test_limits_bind_a_user_who_cannot_see_agent(agent: AgentProcess, a_job: Build, public_folder: Path) -> None:
    script = f"""
        id -u; echo $HOME; pwd
        cat {public_folder}/data/jobs/*/request {public_folder}/data/agent.log && exit 9
        ls {public_folder}/data/jobs && exit 9
        kill -9 {agent.pid} && exit 9
        echo '{{"name": "V", "value": "exported"}}' >>$REMUDA_EXPORTS
        ln -sf /etc/shadow $REMUDA_OUTPUTS || rm -f $REMUDA_OUTPUTS && exit 9
        echo to the log >/dev/stderr
        echo "$SECRET" >$PWD/made
    """
    job = a_job("rm -f x", script, "echo $V; cat made", policy={"limits": {"pids": 100}}, run_as="123456")
    seen = await run_job(agent, job)
    assert seen.statuses == {"s0": "success", "s1": "success", "s2": "success"}, seen.lines
    policy = seen.result_of("/s1")["policy"]
    assert set(policy["enforced"]) >= {"steps"}
    assert "steps" not in policy["advisory"]
    assert b"123456" in seen.lines
    assert b"to the log" in seen.lines
    assert b"exported" in seen.lines
    assert (public_folder / "work/made").stat().st_uid == 123456


@as_root
@pytest.mark.parametrize("step", ["./linked", "{public_folder}/outside"])
async def test_local_reference_reads_no_file(agent: AgentProcess, a_job: Build, public_folder: Path, step: str) -> None:
    write_package(public_folder / "outside", "exec: {command: [echo, s3cret]}")
    (public_folder / "work/linked").mkdir(parents=True)
    (public_folder / "work/linked/func.yml").symlink_to(public_folder / "outside/func.yml")
    entry = {"name": "it", "step": step.format(public_folder=public_folder)}
    seen = await run_job(agent, a_job(entry, run_as="123456"))
    assert seen.result_of("/it")["error_kind"] == "load"
    assert b"s3cret" not in seen.log


@as_root
async def test_others_can_use_package(agent: AgentProcess, a_job: Build, public_folder: Path) -> None:
    write_package(public_folder / "work/mine", 'exec: {command: [sh, -c, "id -u; ls ${{ func_dir }}"]}')
    seen = await run_job(agent, a_job({"name": "mine", "step": "./mine"}, run_as="123456"))
    assert seen.statuses == {"mine": "success"}
    assert seen.lines[-2:] == [b"123456", b"func.yml"]


@as_root
async def test_file_variables_may_have_any_name(agent: AgentProcess, a_job: Build) -> None:
    names = ("secrets", "exchange", "job", "A" * 255)
    inputs = {"secrets": {"KEPT": {"environment": {"name": "GIVEN"}, "file": True}}}
    fetch = {"name": "fetch", "step": "builtin://secrets", "origin": "compiled", "inputs": inputs}
    script = "cat " + " ".join(f'"${name}"' for name in (*names, "KEPT"))
    variables = [JobVariable(key=name, value=f"{name[:9]}\n", file=True) for name in names]
    variables.append(JobVariable(key="GIVEN", value="given\n"))
    seen = await run_job(agent, a_job(fetch, script, variables=variables, run_as="123456"))
    assert seen.check().status == "success", seen.log.decode()
    assert seen.lines[-5:] == [*(name[:9].encode() for name in names), b"[MASKED]"]


@as_root
async def test_other_users_step_reads_its_file_variable_after_an_agent_kill(public_folder: Path, a_job: Build) -> None:
    script = 'touch started; while [ ! -e go ]; do sleep 0.05; done; cat "$FILE"'
    job = a_job(script, variables=[JobVariable(key="FILE", value="text\n", file=True)], run_as="123456")
    async with AgentProcess(public_folder / "data") as process:
        await process.start()
        async with process.client() as client:
            await client.start(job)
        await until((public_folder / "work/started").exists)
        await process.kill()
        await process.start()
        (public_folder / "work/go").touch()
        seen = await through_deaths(process, job)
    assert (seen.check().status, seen.lines) == ("success", [b"text"]), seen.log.decode()


@as_root
async def test_another_users_job_outlives_the_agent(public_folder: Path, a_job: Build) -> None:
    async with AgentProcess(public_folder / "data") as process:
        await process.start()
        job = a_job(
            f"touch started; while [ ! -e go ]; do sleep 0.05; done; {EAT}",
            policy={"limits": {"memory": "64m"}},
            run_as="123456",
        )
        async with process.client() as client:
            await client.start(job)
        await until((public_folder / "work/started").exists)
        await process.kill()
        await process.start()
        (public_folder / "work/go").touch()
        seen = await through_deaths(process, job)
    assert seen.result_of("/s0")["error"] == "the step used more memory than its limit of 64 MiB and was killed"


async def test_policy_that_cannot_be_read_is_refused(agent: AgentProcess, a_job: Build) -> None:
    with pytest.raises(AgentRefusedError, match=r"policy of runner r: ruels: unknown key; did you mean rules\?"):
        await run_job(agent, a_job("true", policy={"ruels": []}))
    with pytest.raises(AgentRefusedError, match="run_as: there is no user"):
        await run_job(agent, a_job("true", run_as="no-such-user-here"))


async def test_no_process_nor_cgroup_is_left_of_a_job(agent: AgentProcess, a_job: Build, public_folder: Path) -> None:
    groups = find_host(public_folder / "data").groups
    if not groups.folders():
        pytest.skip("this machine cannot")
    pid_file = f"{public_folder}/pid"
    daemon = f"setsid sh -c 'echo $$ >{pid_file}; sleep 300' >/dev/null 2>&1 & until [ -s {pid_file} ]; do :; done"
    job = a_job(daemon, policy={})
    await run_job(agent, job)
    process = Path(f"/proc/{(public_folder / 'pid').read_text().strip()}")
    await until(lambda: not process.exists())
    assert not any(folder.exists() for folder in groups.folders())


async def test_close_removes_cgroups(agent: AgentProcess, a_job: Build, public_folder: Path) -> None:
    groups = find_host(public_folder / "data").groups
    async with agent.client() as client:
        await client.start(a_job(f"echo $$ >{public_folder}/pid; setsid sleep 300 & sleep 300", policy={}))
        await until(lambda: (public_folder / "pid").exists() and (public_folder / "pid").read_text() != "")
        await client.close_job("1")
    assert not any(folder.exists() for folder in groups.folders())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_steps_run_in_the_control_group_of_their_slot(tmp_path: Path) -> None:
    script = "cat /proc/self/cgroup; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    steps = steps_text({"name": "look", "script": script})
    job = JobStart(id="1", work_dir=str(tmp_path), steps=steps, cgroup="remuda-tests/slot-3")
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        seen = await run_job(agent, job)
    assert any(b"/remuda-tests/slot-3/remuda-" in line for line in seen.lines), seen.log
    used = seen.check().used
    assert used.source == "cgroup"
    assert (used.memory_peak_bytes or 0) > 0
    assert (used.cpu_user_seconds or 0) > 0
