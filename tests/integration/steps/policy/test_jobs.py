"""Policies on whole jobs of a real agent: denied, inserted, limited, and what the results say of it."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
def a_job(place: Path) -> Callable[..., JobStart]:
    """A job of scripts, or of other entries, under the runner's policy."""

    def build(*entries: str | dict[str, Any], policy: dict[str, Any] | None = None, **values: Any) -> JobStart:
        listed = [a_script(f"s{at}", one) if isinstance(one, str) else one for at, one in enumerate(entries)]
        layers = [{"author": "runner r", "document": policy}] if policy is not None else []
        known = values.pop("inserted", {})
        return JobStart(
            id=values.pop("id", "1"),
            work_dir=str(place / "work"),
            steps=steps_text(*listed),
            policy=json.dumps({"version": 1, "layers": layers} | ({"variables": known} if known else {})),
            **values,
        )

    return build


def a_script(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "script": text} | more


def a_package(folder: Path, definition: str) -> str:
    folder.mkdir(parents=True)
    (folder / "func.yml").write_text(f"spec: {{remuda: 1}}\n---\n{definition}\n")
    return str(folder)


async def test_denied_step_fails_with_the_rule_and_nothing_runs(
    agent: AgentProcess, a_job: Callable[..., JobStart], place: Path
) -> None:
    rules = [{"name": "no scripts", "deny": "builtin:script", "reason": "use steps"}]
    seen = await run_job(agent, a_job(f"touch {place}/ran", policy={"rules": rules}))
    event = seen.result_of("/s0")
    assert (event["status"], event["fault"], event["error_kind"]) == ("failure", "user", "policy")
    assert event["error"] == 'builtin://script@1.0.0 is denied by "no scripts" in the policy of runner r: use steps'
    assert (event["policy"]["decision"], event["policy"]["rule"]) == ("denied", "runner r: no scripts")
    assert not (place / "ran").exists()
    assert seen.end is not None
    assert (seen.end.status, seen.end.reason) == ("failure", "script_failure")


async def test_nested_step_is_denied(agent: AgentProcess, a_job: Callable[..., JobStart], place: Path) -> None:
    inner = a_package(place / "work/inner", f"exec: {{command: [touch, {place}/ran]}}")
    a_package(place / "work/outer", "run: [{name: first, script: 'true'}, {name: inner, step: ../inner}]")
    policy = {"rules": [{"deny": f"local:{inner}/**"}]}
    seen = await run_job(agent, a_job({"name": "outer", "step": "./outer"}, policy=policy))
    assert seen.statuses == {"first": "success", "inner": "failure", "outer": "failure"}
    assert seen.result_of("/outer/inner")["error_kind"] == "policy"
    assert not (place / "ran").exists()


async def test_step_reached_through_an_expression_is_denied(
    agent: AgentProcess, a_job: Callable[..., JobStart], place: Path
) -> None:
    a_package(place / "work/evil", f"exec: {{command: [touch, {place}/ran]}}")
    entry = {"name": "it", "step": "./${{ vars.WHICH }}"}
    variables = [JobVariable(key="WHICH", value="evil")]
    job = a_job(entry, policy={"rules": [{"deny": "local"}]}, variables=variables)
    seen = await run_job(agent, job)
    assert seen.result_of("/it")["policy"]["decision"] == "denied"
    assert not (place / "ran").exists()


async def test_steps_are_inserted_before_and_after(agent: AgentProcess, a_job: Callable[..., JobStart]) -> None:
    insert = [
        {"name": "audit", "script": "echo audited", "before": "job"},
        {"name": "scan", "script": "echo scanned", "after": "job"},
    ]
    seen = await run_job(agent, a_job("echo works", "exit 3", "echo never", policy={"insert": insert}))
    order = [(one["path"], one["origin"], one["status"]) for one in seen.results if one["event"] == "finished"]
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


async def test_steps_are_inserted_around_a_nested_step(
    agent: AgentProcess, a_job: Callable[..., JobStart], place: Path
) -> None:
    a_package(place / "work/inner", "exec: {command: [echo, inner]}")
    a_package(place / "work/outer", "run: [{name: first, script: echo first}, {name: inner, step: ../inner}]")
    source = f"local:{place}/work/inner/**"
    insert = [
        {"name": "check", "script": "echo check", "before": source},
        {"name": "seal", "script": "echo seal", "after": source},
    ]
    job = a_job({"name": "outer", "step": "./outer"}, "echo last", policy={"insert": insert})
    seen = await run_job(agent, job)
    order = [one["path"] for one in seen.results if one["event"] == "finished"]
    assert order == ["/outer/first", "/outer/check", "/outer/inner", "/outer/seal", "/outer", "/s1"]
    assert seen.end is not None
    assert seen.end.status == "success"


@pytest.mark.parametrize("kill_point", ["agent.step_prepared", "agent.step_exited", "agent.result_stored"])
async def test_inserted_steps_run_once_though_the_agent_dies(
    place: Path, a_job: Callable[..., JobStart], kill_point: str
) -> None:
    source = f"local:{place}/work/inner/**"
    insert = [{"name": "check", "script": f"echo check >>{place}/trace", "before": [source, "builtin:script"]}]
    a_package(place / "work/inner", f"exec: {{command: [sh, -c, 'echo inner >>{place}/trace']}}")
    async with AgentProcess(place / "data") as process:
        await process.start(kill_point=kill_point)
        job = a_job({"name": "inner", "step": "./inner"}, f"echo last >>{place}/trace", policy={"insert": insert})
        seen = await through_deaths(process, job)
    assert [one["path"] for one in seen.results if one["event"] == "finished"] == ["/check", "/inner", "/check", "/s1"]
    assert (place / "trace").read_text().split() == ["check", "inner", "check", "last"]


async def test_job_cannot_bend_an_inserted_step(
    agent: AgentProcess, a_job: Callable[..., JobStart], place: Path
) -> None:
    (place / "evil").mkdir()
    (place / "evil/true").write_text(f"#!/bin/sh\ntouch {place}/bent\n")
    (place / "evil/true").chmod(0o755)
    insert = [{"name": "scan", "script": "env true; echo $CI_NAME", "after": "job"}]
    export = f'echo \'{{"name": "PATH", "value": "{place}/evil"}}\' >>$REMUDA_EXPORTS'
    env = {"PATH": f"{place}/evil:{os.environ['PATH']}", "CI_NAME": "forged"}
    seen = await run_job(agent, a_job(export, policy={"insert": insert}, env=env, inserted={"CI_NAME": "seen"}))
    assert seen.statuses == {"s0": "success", "scan": "success"}
    assert b"seen" in seen.lines
    assert not (place / "bent").exists()


BENDING = (
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


async def test_an_inserted_step_has_no_variable_of_the_job(agent: AgentProcess, a_job: Callable[..., JobStart]) -> None:
    """Neither one that changes what programs do nor a forged predefined one, unless the policy asks for it by name."""
    forged = [*BENDING, "LC_ALL", "LANG", "SHELL", "USER", "CI_COMMIT_SHA", "CI_INVENTED", "GITLAB_USER_LOGIN", "TOKEN"]
    job_variables = [JobVariable(key=name, value="forged") for name in forged]
    named = {"ASKED": "${{ vars.TOKEN }}", "SHA": "${{ vars.CI_COMMIT_SHA }}"}
    insert = [{"name": "scan", "script": "env", "after": "job", "env": named}]
    known = {"CI_COMMIT_SHA": "abc", "CI_JOB_ID": "7"}
    seen = await run_job(agent, a_job("true", policy={"insert": insert}, variables=job_variables, inserted=known))
    assert seen.check().status == "success", seen.log.decode()
    pairs = [line.decode().partition("=") for line in seen.lines if b"=" in line]
    found = {name: value for name, _, value in pairs}
    assert {name for name, value in found.items() if value == "forged"} == {"ASKED"}
    assert (found["CI_COMMIT_SHA"], found["SHA"], found["CI_JOB_ID"]) == ("abc", "abc", "7")
    assert found["CI_JOB_STATUS"] == "success"


async def test_exports_of_an_inserted_step_are_for_its_own_parts(
    agent: AgentProcess, a_job: Callable[..., JobStart], place: Path
) -> None:
    """A narrower policy must not decide what a program does that a wider one inserts behind its own."""
    say = """'echo {\\"name\\": \\"MAKEFILES\\", \\"value\\": \\"mine\\"} >>"$REMUDA_EXPORTS"'"""
    parts = f"[{{name: first, script: {say}}}, {{name: second, script: 'echo second $MAKEFILES'}}]"
    package = a_package(place / "package", f"run: {parts}")
    insert = [
        {"name": "narrow", "step": f"{package}/func.yml", "before": "job"},
        {"name": "wide", "script": 'echo "wide ${MAKEFILES-none}"', "after": "job"},
    ]
    seen = await run_job(agent, a_job("echo job $MAKEFILES", policy={"insert": insert}))
    assert seen.check().status == "success", seen.log.decode()
    said = [line for line in seen.lines if line.endswith((b"mine", b"none"))]
    assert said == [b"second mine", b"job mine", b"wide none"]


async def test_step_of_the_job_cannot_have_the_name(agent: AgentProcess, a_job: Callable[..., JobStart]) -> None:
    insert = [{"name": "scan", "script": "true", "after": "job"}]
    seen = await run_job(agent, a_job(a_script("scan", "echo mine"), policy={"insert": insert}))
    denied, ran = [one for one in seen.results if one["event"] == "finished"]
    assert (denied["origin"], denied["policy"]["decision"]) == ("user", "denied")
    assert (ran["origin"], ran["status"]) == ("inserted", "success")


async def test_step_without_network_cannot_connect(
    agent: AgentProcess, host: Host, a_job: Callable[..., JobStart], web: int
) -> None:
    if not host.has_networks:
        pytest.skip("this machine cannot")
    free = await run_job(agent, a_job(REACH.format(web), id="free"))
    assert b"reached" in free.lines
    cut = await run_job(agent, a_job(REACH.format(web), id="cut", policy={"limits": {"network": "none"}}))
    assert cut.statuses == {"s0": "failure"}
    assert any(b"ConnectionRefusedError" in line for line in cut.lines)
    assert "network" in cut.result_of("/s0")["policy"]["advisory"]


async def test_step_over_its_memory_is_killed_and_named(
    agent: AgentProcess, host: Host, a_job: Callable[..., JobStart]
) -> None:
    if not host.groups.limits("memory"):
        pytest.skip("this machine cannot")
    seen = await run_job(agent, a_job("echo fits", EAT, policy={"limits": {"memory": "64m"}}))
    event = seen.result_of("/s1")
    assert (event["status"], event["fault"]) == ("failure", "user")
    assert event["error"] == "the step used more memory than its limit of 64 MiB and was killed"
    assert any(event["error"].encode() in line for line in seen.agent_lines)
    assert event["usage"]["memory_peak_bytes"] <= 64 * 2**20


async def test_killed_process_counts_though_the_script_goes_on(
    agent: AgentProcess, host: Host, a_job: Callable[..., JobStart]
) -> None:
    if not host.groups.limits("memory"):
        pytest.skip("this machine cannot")
    seen = await run_job(agent, a_job(f"{EAT} || echo never mind", policy={"limits": {"memory": "64m"}}))
    assert seen.result_of("/s0")["error"] == "the step used more memory than its limit of 64 MiB and was killed"


async def test_time_is_limited(agent: AgentProcess, a_job: Callable[..., JobStart]) -> None:
    seen = await run_job(agent, a_job("sleep 60", policy={"limits": {"timeout": 1}}))
    assert seen.result_of("/s0")["error"] == "the step took longer than its limit of 1 s"


async def test_what_was_there_before_a_step_is_not_its_growth(
    agent: AgentProcess, a_job: Callable[..., JobStart], place: Path
) -> None:
    (place / "work").mkdir(exist_ok=True)
    (place / "work/large").write_bytes(bytes(3 * 2**20))
    seen = await run_job(agent, a_job("echo small >more", policy={"limits": {"disk": "1m"}}))
    assert seen.check().status == "success"
    job_folder = next((place / "data/jobs").iterdir())
    assert not list(job_folder.glob("step-*"))


async def test_full_disk_ends_the_step(agent: AgentProcess, a_job: Callable[..., JobStart]) -> None:
    script = "for i in 1 2 3; do head -c 900000 /dev/zero >$i; done; sleep 60"
    seen = await run_job(agent, a_job(script, policy={"limits": {"disk": "1m"}}))
    event = seen.result_of("/s0")
    assert event["status"] == "failure"
    assert event["error"].endswith("its limit is 1 MiB")


async def test_as_the_agents_own_user_the_result_says_advisory(
    agent: AgentProcess, a_job: Callable[..., JobStart]
) -> None:
    seen = await run_job(agent, a_job("true", policy={"limits": {"memory": "64m", "timeout": 60}}))
    told = seen.result_of("/s0")["policy"]
    assert (told["enforced"], told["advisory"]) == ([], ["steps", "memory", "timeout"])
    assert "own user" in told["why"]["steps"]


@as_root
async def test_agent_of_a_plain_user_says_advisory_and_limits_as_it_can(
    place: Path, host: Host, a_job: Callable[..., JobStart], web: int
) -> None:
    """In a user namespace, so that this program can be read though it is root's."""
    if not host.has_networks:
        pytest.skip("this machine cannot")
    program = ("unshare", "--user", "--map-user=1000", "--map-group=1000", sys.executable, "-m", "remuda.steps")
    async with AgentProcess(place / "data", program) as process:
        await process.start()
        job = a_job(f"id -u; {REACH.format(web)}", policy={"limits": {"network": "none"}})
        seen = await run_job(process, job)
        with pytest.raises(AgentRefusedError, match="this agent is user 1000, not root"):
            await run_job(process, a_job("true", id="2", run_as="123456"))
    assert b"1000" in seen.lines
    assert any(b"ConnectionRefusedError" in line for line in seen.lines)
    told = seen.result_of("/s0")["policy"]
    assert (told["enforced"], told["advisory"]) == ([], ["steps", "network"])


async def test_who_wants_nothing_advisory_gets_no_step(
    agent: AgentProcess, a_job: Callable[..., JobStart], place: Path
) -> None:
    seen = await run_job(agent, a_job(f"touch {place}/ran", policy={"advisory": "deny"}))
    assert seen.result_of("/s0")["error_kind"] == "policy"
    assert "refuses steps whose limits are advisory (steps: " in seen.result_of("/s0")["error"]
    assert not (place / "ran").exists()


@as_root
async def test_as_another_user_policy_is_enforced_and_the_agent_out_of_reach(
    agent: AgentProcess, a_job: Callable[..., JobStart], place: Path
) -> None:
    script = f"""
        id -u; echo $HOME; pwd
        cat {place}/data/jobs/*/request {place}/data/agent.log && exit 9
        ls {place}/data/jobs && exit 9
        kill -9 {agent.pid} && exit 9
        echo '{{"name": "V", "value": "exported"}}' >>$REMUDA_EXPORTS
        ln -sf /etc/shadow $REMUDA_OUTPUTS || rm -f $REMUDA_OUTPUTS && exit 9
        echo to the log >/dev/stderr
        echo "$SECRET" >$PWD/made
    """
    job = a_job("rm -f x", script, "echo $V; cat made", policy={"limits": {"pids": 100}}, run_as="123456")
    seen = await run_job(agent, job)
    assert seen.statuses == {"s0": "success", "s1": "success", "s2": "success"}, seen.lines
    told = seen.result_of("/s1")["policy"]
    assert set(told["enforced"]) >= {"steps"}
    assert "steps" not in told["advisory"]
    assert b"123456" in seen.lines
    assert b"to the log" in seen.lines
    assert b"exported" in seen.lines
    assert (place / "work/made").stat().st_uid == 123456


@as_root
@pytest.mark.parametrize("step", ["./linked", "{place}/outside"])
async def test_a_local_reference_leads_to_nothing_that_only_the_agent_may_read(
    agent: AgentProcess, a_job: Callable[..., JobStart], place: Path, step: str
) -> None:
    a_package(place / "outside", "exec: {command: [echo, s3cret]}")
    (place / "work/linked").mkdir(parents=True)
    (place / "work/linked/func.yml").symlink_to(place / "outside/func.yml")
    entry = {"name": "it", "step": step.format(place=place)}
    seen = await run_job(agent, a_job(entry, run_as="123456"))
    assert seen.result_of("/it")["error_kind"] == "load"
    assert b"s3cret" not in seen.log


@as_root
async def test_package_can_be_used_by_another_user(
    agent: AgentProcess, a_job: Callable[..., JobStart], place: Path
) -> None:
    a_package(place / "work/mine", 'exec: {command: [sh, -c, "id -u; ls ${{ func_dir }}"]}')
    seen = await run_job(agent, a_job({"name": "mine", "step": "./mine"}, run_as="123456"))
    assert seen.statuses == {"mine": "success"}
    assert seen.lines[-2:] == [b"123456", b"func.yml"]


@as_root
async def test_file_variables_may_have_any_name(agent: AgentProcess, a_job: Callable[..., JobStart]) -> None:
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
async def test_another_users_step_reads_its_file_variable_when_the_agent_has_died(
    place: Path, a_job: Callable[..., JobStart]
) -> None:
    script = 'touch started; while [ ! -e go ]; do sleep 0.05; done; cat "$FILE"'
    job = a_job(script, variables=[JobVariable(key="FILE", value="text\n", file=True)], run_as="123456")
    async with AgentProcess(place / "data") as process:
        await process.start()
        async with process.client() as client:
            await client.start(job)
        await until((place / "work/started").exists)
        await process.kill()
        await process.start()
        (place / "work/go").touch()
        seen = await through_deaths(process, job)
    assert (seen.check().status, seen.lines) == ("success", [b"text"]), seen.log.decode()


@as_root
async def test_another_users_job_goes_on_when_the_agent_dies(place: Path, a_job: Callable[..., JobStart]) -> None:
    async with AgentProcess(place / "data") as process:
        await process.start()
        job = a_job(
            f"touch started; while [ ! -e go ]; do sleep 0.05; done; {EAT}",
            policy={"limits": {"memory": "64m"}},
            run_as="123456",
        )
        async with process.client() as client:
            await client.start(job)
        await until((place / "work/started").exists)
        await process.kill()
        await process.start()
        (place / "work/go").touch()
        seen = await through_deaths(process, job)
    assert seen.result_of("/s0")["error"] == "the step used more memory than its limit of 64 MiB and was killed"


async def test_policy_that_cannot_be_read_is_refused(agent: AgentProcess, a_job: Callable[..., JobStart]) -> None:
    with pytest.raises(AgentRefusedError, match=r"policy of runner r: ruels: unknown key; did you mean rules\?"):
        await run_job(agent, a_job("true", policy={"ruels": []}))
    with pytest.raises(AgentRefusedError, match="run_as: there is no user"):
        await run_job(agent, a_job("true", run_as="no-such-user-here"))


async def test_nothing_is_left_of_a_job(agent: AgentProcess, a_job: Callable[..., JobStart], place: Path) -> None:
    groups = find_host(place / "data").groups
    if not groups.folders():
        pytest.skip("this machine cannot")
    job = a_job(
        f"setsid sh -c 'echo $$ >{place}/pid; sleep 300' >/dev/null 2>&1 & until [ -s {place}/pid ]; do :; done",
        policy={},
    )
    await run_job(agent, job)
    process = Path(f"/proc/{(place / 'pid').read_text().strip()}")
    await until(lambda: not process.exists())
    assert not any(folder.exists() for folder in groups.folders())


async def test_closing_a_job_ends_everything_of_it(
    agent: AgentProcess, a_job: Callable[..., JobStart], place: Path
) -> None:
    groups = find_host(place / "data").groups
    async with agent.client() as client:
        await client.start(a_job(f"echo $$ >{place}/pid; setsid sleep 300 & sleep 300", policy={}))
        await until(lambda: (place / "pid").exists() and (place / "pid").read_text() != "")
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
