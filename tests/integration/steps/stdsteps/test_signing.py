"""Signed artifacts of jobs: an unchanged artifact verifies, a changed one does not, and no job can read the key."""

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


def signing_entries(server: StepServer, key: Path, **settings: Any) -> list[dict[str, Any]]:
    """The steps that sign and upload `out`, as the manager compiles them."""
    remuda = RemudaConfig(signing_key=str(key), **settings)
    runner = RunnerConfig(url=server.url, name="r", token="glrt-x", remuda=remuda)
    artifacts = [{"paths": ["out"], "exclude": ["*.json"]}]
    payload = a_payload(id=7, token=TOKEN, git_info={"sha": "a" * 40}, artifacts=artifacts)
    return upload_artifacts(payload, a_setting(runner), Variables([]))


async def run(agent: AgentProcess, public_folder: Path, *steps: dict[str, Any], **values: Any) -> Seen:
    return await run_job(
        agent, JobStart(id="1", work_dir=str(public_folder / "work"), steps=steps_text(*steps), **values)
    )


def a_script(text: str) -> dict[str, Any]:
    return {"name": "script", "step": "builtin://script", "inputs": {"script": text}}


def read_upload(server: StepServer) -> zipfile.ZipFile:
    [form] = server.forms
    return zipfile.ZipFile(io.BytesIO(form[form.index(b"PK") :]))


async def test_a_signed_artifact_verifies_and_a_changed_one_does_not(
    open_agent: AgentProcess,
    public_folder: Path,
    open_key: Path,
    server: StepServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = await run(
        open_agent, public_folder, a_script("mkdir out; echo built >out/app"), *signing_entries(server, open_key)
    )
    assert seen.check().status == "success", seen.lines
    outputs = seen.result_of("/sign_artifacts")["outputs"]
    assert (outputs["files"], outputs["protection"]) == (1, "advisory")
    archive = read_upload(server)
    assert {"out/app", NAME, NAME + SUFFIX} <= set(archive.namelist())
    predicate = read_statement(archive.read(NAME)).predicate
    assert (predicate["job"]["id"], predicate["commit"], predicate["key_id"]) == (7, "a" * 40, outputs["key_id"])
    folder = public_folder / "downloaded"
    archive.extractall(folder)
    command = ["artifacts", "verify", "--statement", str(folder / NAME), "--key", str(public_folder / "public.pem")]
    assert call(command) == 0
    (folder / "out/app").write_text("built!")
    assert call(command) == 1
    assert "out/app: changed since it was signed" in capsys.readouterr().out


@as_root
async def test_the_key_is_out_of_reach_of_another_users_job(
    open_agent: AgentProcess, public_folder: Path, open_key: Path, server: StepServer
) -> None:
    script = f"""
        mkdir out; id -u >out/app
        cat {open_key} && exit 9
        ln -s /etc/shadow {NAME}
        cd out
    """
    job_signing = {"name": "mine", "step": "builtin://sign", "inputs": {"key": str(open_key), "paths": ["out"]}}
    seen = await run(
        open_agent,
        public_folder,
        a_script(script),
        job_signing | {"continue_on_error": True},
        *signing_entries(server, open_key, run_as="123456"),
        run_as="123456",
    )
    assert seen.check().status == "success", seen.lines
    # A signing step of the job has only the job's rights.
    assert seen.result_of("/mine")["status"] == "failure"
    assert seen.result_of("/sign_artifacts")["outputs"]["protection"] == "enforced"
    archive = read_upload(server)
    assert archive.read("out/app") == b"123456\n"
    assert read_statement(archive.read(NAME)).predicate["protection"] == "enforced"


@as_root
async def test_a_job_cannot_choose_what_runs_with_the_agents_rights(
    open_agent: AgentProcess, public_folder: Path, open_key: Path, server: StepServer
) -> None:
    script = f"""
        mkdir out bin tmp; echo x >out/app; chmod 777 . tmp
        for name in git openssl python3; do
            echo '#!/bin/sh' >bin/$name; echo 'id -u >>{public_folder}/work/ran' >>bin/$name; chmod +x bin/$name
        done
        /usr/bin/git init -q; /usr/bin/git config core.fsmonitor 'id -u >>{public_folder}/work/ran'
    """
    variables = {
        "PATH": f"{public_folder}/work/bin:{os.environ['PATH']}",
        "TMPDIR": f"{public_folder}/work/tmp",
        "HOME": f"{public_folder}/work",
    }
    signing, upload = signing_entries(server, open_key, run_as="123456")
    signing["inputs"]["untracked"] = True
    seen = await run(
        open_agent,
        public_folder,
        a_script(script),
        signing,
        upload,
        run_as="123456",
        variables=[JobVariable(key=name, value=value) for name, value in variables.items()],
    )
    assert seen.result_of("/sign_artifacts")["status"] == "success", seen.lines
    ran = public_folder / "work/ran"
    assert not ran.exists() or "0" not in ran.read_text().split()


@as_root
async def test_secret_files_belong_to_the_user_of_the_job(open_agent: AgentProcess, public_folder: Path) -> None:
    (public_folder / "token").write_text("of the runner")
    (public_folder / "token").chmod(0o644)
    secrets = {
        "T": {"local_file": {"path": str(public_folder / "token")}},
        "U": {"environment": {"name": "LANG_"}, "file": False},
    }
    step = {"name": "secrets", "step": "builtin://secrets", "inputs": {"secrets": secrets}, "origin": "compiled"}
    seen = await run(
        open_agent,
        public_folder,
        step,
        a_script('cat "$T" | tr a-z A-Z; stat -c %u:%a "$T"; test "$U" = value'),
        run_as="123456",
        env={"LANG_": "value"},
    )
    assert seen.check().status == "success", seen.results
    assert seen.lines[-2:] == [b"OF THE RUNNER", b"123456:600"] or b"OF THE RUNNER123456:600" in seen.lines, seen.lines
