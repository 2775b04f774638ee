"""Sandboxed jobs: which folders, processes and sockets of the machine they can reach."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import pytest

from remuda.steps.errors import AgentError
from remuda.steps.policy import hidden_folders, sandbox
from remuda.steps.policy.enforcement import PolicyEnforcement
from remuda.steps.policy.sandbox import Sandbox
from remuda.steps.policy.values import Policy
from remuda.testing.agent_process import AgentProcess, Seen, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobStart, JobVariable

pytestmark = pytest.mark.skipif(sandbox.problem() is not None, reason=f"no sandbox here: {sandbox.problem()}")


def a_job(tmp_path: Path, script: str, **more: object) -> JobStart:
    work_dir = tmp_path / "builds/one"
    work_dir.mkdir(parents=True, exist_ok=True)
    steps = steps_text({"name": "try", "script": script})
    values = {"id": "1", "work_dir": str(work_dir), "steps": steps, "sandbox": True} | more
    return JobStart(**values)  # type: ignore[arg-type]


async def run_with_agent(tmp_path: Path, job: JobStart, **start_options: object) -> Seen:
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start(**start_options)  # type: ignore[arg-type]
        return await run_job(agent, job)


async def test_a_job_writes_to_its_own_folders_only(tmp_path: Path) -> None:
    cache, other = tmp_path / "cache", tmp_path / "builds/other"
    cache.mkdir()
    other.mkdir(parents=True)
    (other / "secret").write_text("of another job")
    script = f"""
        echo mine > made
        echo mine > {cache}/made
        ! echo x 2>/dev/null > {other}/made || exit 3
        ! cat {other}/secret || exit 4
        ! touch /usr/remuda-made /etc/remuda-made || exit 5
        echo temporary > /tmp/remuda-made
        ls {tmp_path} {tmp_path}/builds
    """
    seen = await run_with_agent(tmp_path, a_job(tmp_path, script, writable=(str(cache),)))
    assert seen.check().status == "success", seen.log
    assert (tmp_path / "builds/one/made").read_text() == (cache / "made").read_text() == "mine\n"
    assert not Path("/tmp/remuda-made").exists()
    assert b"other" not in seen.lines
    assert b"of another job" not in seen.log


async def test_a_writable_folder_is_created_and_its_neighbours_are_hidden(tmp_path: Path) -> None:
    neighbour, own = tmp_path / "cache/group/other", tmp_path / "cache/group/project"
    neighbour.mkdir(parents=True)
    (neighbour / "all.zip").write_text("of another project")
    script = f"""
        ! cat {neighbour}/all.zip || exit 3
        ! echo x 2>/dev/null >{neighbour}/all.zip || exit 4
        echo mine >{own}/all.zip
    """
    seen = await run_with_agent(tmp_path, a_job(tmp_path, script, writable=(str(own),)))
    assert seen.check().status == "success", seen.log
    assert ((own / "all.zip").read_text(), (neighbour / "all.zip").read_text()) == ("mine\n", "of another project")


async def test_a_job_sees_neither_the_agents_data_nor_other_processes(tmp_path: Path) -> None:
    script = f"""
        ! ls {tmp_path}/data/agent.sock || exit 3
        find {tmp_path}/data | sed 's/^/found /'
        ! kill -0 {os.getpid()} 2>/dev/null || exit 4
        ps=$(ls /proc | grep -c '^[0-9]*$'); [ "$ps" -lt 20 ] || exit 5
        ! cat /etc/shadow || exit 6
        ! ls {Path.home()}/. || exit 7
        echo "home $HOME"; [ -w "$HOME" ] || exit 8
    """
    seen = await run_with_agent(tmp_path, a_job(tmp_path, script))
    assert seen.check().status == "success", seen.log
    paths = [line for line in seen.lines if line.startswith(b"found ")]
    folder = next((tmp_path / "data/jobs").iterdir(), None)
    assert folder is None  # the job is closed and its folder removed
    assert all(b"/exchange" in line or line.count(b"/jobs/") <= 1 for line in paths)
    assert not [line for line in paths if line.endswith((b"/events", b"/request", b"/log"))]


async def test_a_hidden_agent_folder_also_hides_a_socket_outside_of_it(
    tmp_path: Path,
) -> None:
    """If the path of the agent's folder is too long for a socket, the socket is in a folder for temporary files."""
    data = tmp_path / ("long-" * 20) / "data"
    data.parent.mkdir()
    async with AgentProcess(data) as agent:
        await agent.start()
        socket = Path((data / "socket").read_text().strip())
        assert not socket.is_relative_to(data)
        script = f"! test -e {socket}"
        seen = await run_job(agent, a_job(tmp_path, script, hidden=(str(data),)))
    assert seen.check().status == "success", seen.log.decode()


async def test_outputs_git_and_exit_codes_work(tmp_path: Path) -> None:
    script = """
        printf '{"name": "said", "value": "yes"}\\n' >>"$REMUDA_OUTPUTS"
        git init -q . && git status --short && echo hello >/dev/stderr
        exit 7
    """
    seen = await run_with_agent(tmp_path, a_job(tmp_path, script))
    assert seen.check().exit_code == 7
    assert b"hello" in seen.lines


async def test_standard_steps_run_in_a_sandbox(tmp_path: Path) -> None:
    call = {"name": "sources", "step": "builtin://checkout", "inputs": {"strategy": "none"}}
    job = a_job(tmp_path, "true", steps=steps_text(call))
    seen = await run_with_agent(tmp_path, job)
    assert seen.check().status == "success", seen.log
    assert b"Skipping Git repository setup" in seen.lines


async def test_caches_work_with_a_mounted_cache_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cache/group/project"
    inputs = {"folder": str(folder), "root": str(tmp_path / "cache"), "key": "main"}
    calls: list[dict[str, Any]] = [
        {"name": "make", "script": "mkdir deps; echo one >deps/a"},
        {"name": "save", "step": "builtin://cache_save", "inputs": inputs | {"paths": ["deps"]}},
        {"name": "forget", "script": "rm -r deps"},
        {"name": "restore", "step": "builtin://cache_restore", "inputs": inputs},
        {"name": "look", "script": "cat deps/a"},
    ]
    seen = await run_with_agent(tmp_path, a_job(tmp_path, "", steps=steps_text(*calls), writable=(str(folder),)))
    assert seen.check().status == "success", seen.log.decode()
    assert (folder / "main.zip").is_file()


async def test_a_cancelled_step_may_tidy_up(tmp_path: Path) -> None:
    script = "trap 'echo tidy > tidied; exit 0' TERM; touch begun; while :; do sleep 0.05; done"
    job = a_job(tmp_path, script)
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        async with agent.client() as client:
            await client.start(job)
            await until((tmp_path / "builds/one/begun").exists)
            await client.cancel(job.id)
            await until((tmp_path / "builds/one/tidied").exists)


@pytest.mark.skipif(os.geteuid() != 0 or sandbox.problem(210077, 210077) is not None, reason="needs root")
async def test_another_user_can_be_sandboxed(tmp_path: Path) -> None:
    folder = Path("/var/tmp") / f"remuda-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        job = a_job(folder, "id -u; echo x > made; ! touch /usr/x", run_as="210077")
        async with AgentProcess(folder / "data") as agent:
            await agent.start()
            seen = await run_job(agent, job)
    finally:
        shutil.rmtree(folder)
    assert seen.check().status == "success", seen.log
    assert b"210077" in seen.lines


async def test_a_job_is_refused_if_no_sandbox_can_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_usable", set())
    enforcement = PolicyEnforcement(
        policy=Policy(),
        person=None,
        job=tmp_path / "data/jobs/one",
        work_dir=tmp_path,
        key="one",
        sandbox=Sandbox(work_dir=str(tmp_path), exchange=str(tmp_path)),
    )
    with monkeypatch.context() as missing:
        missing.setattr(hidden_folders, "SEARCH", (str(tmp_path),))
        with pytest.raises(
            AgentError, match=r"sandbox, but this machine cannot create one: .* .bwrap. is not installed"
        ):
            enforcement.prepare()
    enforcement.prepare()  # bwrap is found again


@pytest.mark.skipif(os.geteuid() != 0 or sandbox.problem(210077, 210077) is not None, reason="needs root")
async def test_code_that_the_jobs_user_cannot_read_is_a_system_failure_with_advice() -> None:
    """Scripts of the job run; a standard step needs Remuda's Python in the sandbox and does not."""
    with tempfile.TemporaryDirectory(prefix="remuda-test-", dir="/var/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        (place / "closed").mkdir(mode=0o700)
        venv.create(place / "closed/venv", symlinks=True)
        packages = next((place / "closed/venv/lib").glob("python*/site-packages"))
        (packages / "ours.pth").write_text("\n".join(folder for folder in sys.path if os.path.isdir(folder)))
        checkout = {"name": "sources", "step": "builtin://checkout", "inputs": {"strategy": "none"}}
        after = {"name": "after", "script": "id -u >after", "if": "always()"}
        job = a_job(place, "", run_as="210077", steps=steps_text(checkout, after))
        program = (str(place / "closed/venv/bin/python"), "-m", "remuda.steps")
        async with AgentProcess(place / "data", program) as agent:
            await agent.start()
            seen = await run_job(agent, job)
        assert (place / "builds/one/after").read_text() == "210077\n"
    end = seen.check()
    assert (end.status, end.reason) == ("failure", "runner_system_failure"), seen.log.decode()
    assert "cannot run in the sandbox of user 210077" in end.message
    assert "Permission denied" in end.message
    assert "Install Remuda and its Python where every user can read them" in end.message


ESCAPE = r"""
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void note(void) {{
    FILE *file;
    if (access("{outside}", F_OK) == 0 && (file = fopen("{work}/escaped", "a"))) {{
        fprintf(file, "as %d\n", (int)getuid());
        fclose(file);
    }}
    if ((file = fopen("{work}/loaded", "a"))) fclose(file);
}}
"""
"""A library that writes a file if it can see the outside of the sandbox."""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("gcc") is None, reason="needs root and a compiler")
@pytest.mark.parametrize("mode", ["sandbox", "run_as", "limits", "hidden"])
async def test_no_variable_of_a_job_loads_a_library_outside_of_the_sandbox(place: Path, mode: str) -> None:
    """The program that creates the sandbox runs outside of it: the job's variables are only for programs inside."""
    work, outside = place / "builds/one", place / "hidden/outside"
    for folder in (work, outside.parent):
        folder.mkdir(parents=True)
    outside.write_text("")
    (work / "evil.c").write_text(ESCAPE.format(outside=outside, work=work))
    compile_command = ["gcc", "-shared", "-fPIC", "-o", str(work / "evil.so"), str(work / "evil.c")]
    await asyncio.to_thread(subprocess.check_call, compile_command)
    limits = {"version": 1, "layers": [{"author": "r", "document": {"limits": {"pids": 100}}}]}
    more: Any = {
        "sandbox": {},
        "run_as": {"run_as": "210077"},
        "limits": {"policy": json.dumps(limits)},
        "hidden": {"hidden": (str(place / "data"), str(outside.parent))},
    }[mode]
    variables = [
        JobVariable(key="LD_PRELOAD", value=str(work / "evil.so")),
        JobVariable(key="PLAIN", value="a b\n$c '\"\\"),
        JobVariable(key="PATH", value=f"{work}:/usr/bin:/bin"),
    ]
    for name in ("sh", "bwrap", "env", "mkdir"):
        (work / name).write_text(f"#!/bin/sh\n[ -e {outside} ] && echo by path >>{work}/escaped\nexit 1\n")
        (work / name).chmod(0o755)
    script = (
        'test -f loaded; printf "%s|%s" "$PLAIN" "$PATH" >seen; ls -l /proc/self/fd | grep -q "9 ->" && exit 3; true'
    )
    seen = await run_with_agent(place, a_job(place, script, variables=variables, **more))
    assert not (work / "escaped").exists(), (work / "escaped").read_text()
    assert seen.check().status == "success", seen.log.decode()
    assert (work / "seen").read_text() == f"a b\n$c '\"\\|{work}:/usr/bin:/bin"


@pytest.mark.parametrize("is_sandboxed", [True, False])
async def test_no_variable_with_a_nul_character_reaches_a_step(tmp_path: Path, is_sandboxed: bool) -> None:
    """Variables become options of bubblewrap with NUL between them: a value with NUL could add options."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("of another job")
    value = f"a\0--bind\0{outside}\0/remuda-outside"
    line = json.dumps({"name": "bad", "value": value}).replace("\\", "\\\\")
    steps = steps_text(
        {"name": "one", "script": f"printf '{line}\\n' >>\"$REMUDA_OUTPUTS\""},
        {"name": "two", "env": {"BAD": "${{ steps.one.outputs.bad }}"}, "script": "cat /remuda-outside/secret"},
    )
    seen = await run_with_agent(tmp_path, a_job(tmp_path, "", steps=steps, sandbox=is_sandboxed))
    assert b"of another job" not in seen.log
    end = seen.check()
    assert (end.status, end.reason) == ("failure", "script_failure"), end
    assert "BAD" in end.message
    assert "NUL" in end.message
