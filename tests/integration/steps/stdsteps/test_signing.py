"""Signed artifacts of whole jobs: what was signed verifies, what was changed does not, and no job has the key."""

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.manager_values import a_payload, a_setting
from tests.support.servers.step_server import TOKEN, StepServer

from remuda.cli.main import call
from remuda.manager.compile.stored_files import upload_artifacts
from remuda.manager.compile.variables import Variables
from remuda.manager.config.values import RemudaConfig, RunnerConfig
from remuda.stdsteps.signatures.statements import NAME, SUFFIX, read_statement
from remuda.testing.agent_process import AgentProcess, Seen, run_job, steps_text
from remuda.wire.agent_client import JobStart, JobVariable

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def entries(server: StepServer, key: Path, **own: Any) -> list[dict[str, Any]]:
    """Signature and upload of `out`, as the manager compiles them."""
    remuda = RemudaConfig(signing_key=str(key), **own)
    runner = RunnerConfig(url=server.url, name="r", token="glrt-x", remuda=remuda)
    artifacts = [{"paths": ["out"], "exclude": ["*.json"]}]
    payload = a_payload(id=7, token=TOKEN, git_info={"sha": "a" * 40}, artifacts=artifacts)
    return upload_artifacts(payload, a_setting(runner), Variables([]))


async def run(agent: AgentProcess, place: Path, *steps: dict[str, Any], **values: Any) -> Seen:
    return await run_job(agent, JobStart(id="1", work_dir=str(place / "work"), steps=steps_text(*steps), **values))


def a_script(text: str) -> dict[str, Any]:
    return {"name": "script", "step": "builtin://script", "inputs": {"script": text}}


def uploaded(server: StepServer) -> zipfile.ZipFile:
    [form] = server.forms
    return zipfile.ZipFile(io.BytesIO(form[form.index(b"PK") :]))


async def test_a_signed_artifact_verifies_and_a_changed_one_does_not(
    open_agent: AgentProcess, place: Path, open_key: Path, server: StepServer, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = await run(open_agent, place, a_script("mkdir out; echo built >out/app"), *entries(server, open_key))
    assert seen.check().status == "success", seen.lines
    told = seen.result_of("/sign_artifacts")["outputs"]
    assert (told["files"], told["protection"]) == (1, "advisory")
    archive = uploaded(server)
    assert {"out/app", NAME, NAME + SUFFIX} <= set(archive.namelist())
    about = read_statement(archive.read(NAME)).predicate
    assert (about["job"]["id"], about["commit"], about["key_id"]) == (7, "a" * 40, told["key_id"])
    folder = place / "downloaded"
    archive.extractall(folder)
    words = ["artifacts", "verify", "--statement", str(folder / NAME), "--key", str(place / "public.pem")]
    assert call(words) == 0
    (folder / "out/app").write_text("built!")
    assert call(words) == 1
    assert "out/app: changed since it was signed" in capsys.readouterr().out


@as_root
async def test_the_key_is_out_of_reach_of_another_users_job(
    open_agent: AgentProcess, place: Path, open_key: Path, server: StepServer
) -> None:
    script = f"""
        mkdir out; id -u >out/app
        cat {open_key} && exit 9
        ln -s /etc/shadow {NAME}
        cd out
    """
    with_own_call = {"name": "mine", "step": "builtin://sign", "inputs": {"key": str(open_key), "paths": ["out"]}}
    seen = await run(
        open_agent,
        place,
        a_script(script),
        with_own_call | {"continue_on_error": True},
        *entries(server, open_key, run_as="123456"),
        run_as="123456",
    )
    assert seen.check().status == "success", seen.lines
    # The job's own idea has the job's rights only.
    assert seen.result_of("/mine")["status"] == "failure"
    assert seen.result_of("/sign_artifacts")["outputs"]["protection"] == "enforced"
    archive = uploaded(server)
    assert archive.read("out/app") == b"123456\n"
    assert read_statement(archive.read(NAME)).predicate["protection"] == "enforced"


@as_root
async def test_a_job_cannot_choose_what_runs_with_the_agents_rights(
    open_agent: AgentProcess, place: Path, open_key: Path, server: StepServer
) -> None:
    script = f"""
        mkdir out bin tmp; echo x >out/app; chmod 777 . tmp
        for name in git openssl python3; do
            echo '#!/bin/sh' >bin/$name; echo 'id -u >>{place}/work/ran' >>bin/$name; chmod +x bin/$name
        done
        /usr/bin/git init -q; /usr/bin/git config core.fsmonitor 'id -u >>{place}/work/ran'
    """
    variables = {
        "PATH": f"{place}/work/bin:{os.environ['PATH']}",
        "TMPDIR": f"{place}/work/tmp",
        "HOME": f"{place}/work",
    }
    signing, upload = entries(server, open_key, run_as="123456")
    signing["inputs"]["untracked"] = True
    seen = await run(
        open_agent,
        place,
        a_script(script),
        signing,
        upload,
        run_as="123456",
        variables=[JobVariable(key=name, value=value) for name, value in variables.items()],
    )
    assert seen.result_of("/sign_artifacts")["status"] == "success", seen.lines
    ran = place / "work/ran"
    assert not ran.exists() or "0" not in ran.read_text().split()


@as_root
async def test_files_with_secrets_belong_to_whom_the_job_runs_as(open_agent: AgentProcess, place: Path) -> None:
    (place / "token").write_text("of the runner")
    (place / "token").chmod(0o644)
    secrets = {
        "T": {"local_file": {"path": str(place / "token")}},
        "U": {"environment": {"name": "LANG_"}, "file": False},
    }
    step = {"name": "secrets", "step": "builtin://secrets", "inputs": {"secrets": secrets}, "origin": "compiled"}
    seen = await run(
        open_agent,
        place,
        step,
        a_script('cat "$T" | tr a-z A-Z; stat -c %u:%a "$T"; test "$U" = value'),
        run_as="123456",
        env={"LANG_": "value"},
    )
    assert seen.check().status == "success", seen.results
    assert seen.lines[-2:] == [b"OF THE RUNNER", b"123456:600"] or b"OF THE RUNNER123456:600" in seen.lines, seen.lines
