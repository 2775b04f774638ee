"""Access of a job in a container to the runner's machine: it gets its secrets, but not the host's keys and programs."""

import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ServedCell
from tests.support.runners.manager_harness import ManagerHarness
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine
from tests.support.servers.vault_server import FakeVault, run_vault_server

from remuda.cli.main import call
from remuda.stdsteps.signatures.statements import NAME, read_statement

PIPELINE = """
job:
  image: IMAGE
  id_tokens: {VAULT_ID_TOKEN: {aud: https://vault.example.com}}
  variables: {VAULT_SERVER_URL: "http://127.0.0.1:PORT", VAULT_AUTH_PATH: gitlab, VAULT_AUTH_ROLE: deploy}
  secrets:
    PLAIN: {vault: db/password@ops, file: false}
    KEPT: {vault: db/password@ops}
  script:
    - test ! -e KEY
    - test "$PLAIN" = "$(cat $KEPT)" && echo "it is $PLAIN"
    - mkdir out && echo built >out/app
    - ln -s FOLDER way && ln -s KEY out/link && ln -s KEY report.xml
  artifacts:
    paths: [out, way/key.pem]
    reports: {junit: report.xml}
"""
SETTINGS = """
[core]
	fsmonitor = "COMMAND"
	sshCommand = "COMMAND"
	alternateRefsCommand = "COMMAND"
	gitProxy = "COMMAND"
	hooksPath = hooks
[filter "evil"]
	smudge = "COMMAND; cat"
	clean = "COMMAND; cat"
[credential]
	helper = "!COMMAND"
[uploadpack]
	packObjectsHook = "COMMAND"
[diff]
	external = "COMMAND"
[extensions]
	worktreeConfig = true
"""
"""Settings in a repository's configuration that make git run a program."""
SEIZE_REPOSITORY = """
cd "$CI_PROJECT_DIR"
seize() {
    mkdir -p .git/info .git/hooks .git/modules/module/hooks module common
    for file in .git/config .git/config.worktree .git/modules/module/config common/config; do
        grep -qs evil $file || printf '%s' "$SETTINGS" >>$file
    done
    echo '* filter=evil' >.git/info/attributes
    for hook in post-checkout reference-transaction post-index-change; do
        printf '#!/bin/sh\n%s\n' "$COMMAND" >.git/hooks/$hook
        chmod 755 .git/hooks/$hook
    done
    echo "gitdir: ../.git/modules/module" >module/.git
    echo ../common >.git/commondir
}
"""
"""A shell function for the container: it writes these settings and hooks into the working directory."""


@pytest.fixture
def vault() -> Iterator[FakeVault]:
    with run_vault_server() as state:
        state.jwt = None
        yield state


async def run_job(engine: DockerEngine, cell: ServedCell, folder: Path, settings: str = "") -> dict[str, Any]:
    """Let a docker runner run the only job of the pipeline. Returns the job with its log."""
    harness = ManagerHarness(folder, cell)
    docker = f'[runners.docker]\nhost = "{engine.host}"\npull_policy = "never"\n{settings}'
    harness.write_config(concurrent=2, executor="docker", extra=docker)
    async with harness.manager():
        [job] = (await cell.wait_for_jobs()).values()
    await harness.close()
    assert job["status"] == "success", job["log"]
    return job


async def test_a_job_gets_its_secrets_but_not_the_signing_key(
    engine: DockerEngine, cell: ServedCell, vault: FakeVault, signing_key: Path, tmp_path: Path
) -> None:
    text = PIPELINE.replace("IMAGE", BUSYBOX).replace("PORT", str(vault.port))
    cell.new_project("app", text.replace("KEY", str(signing_key)).replace("FOLDER", str(tmp_path)))
    job = await run_job(engine, cell, tmp_path, f'[runners.remuda]\nsigning_key = "{signing_key}"\n')
    assert "it is [MASKED]" in job["log"]
    data = cell.api("GET", f"/projects/1/jobs/{job['id']}/artifacts").body
    (tmp_path / "artifacts.zip").write_bytes(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert "way/key.pem" not in archive.namelist()
        assert archive.read("out/link") == bytes(signing_key)
        assert read_statement(archive.read(NAME)).predicate["protection"] == "enforced"
        assert not any(b"PRIVATE KEY" in archive.read(name) for name in archive.namelist())
    assert call(["artifacts", "verify", str(tmp_path / "artifacts.zip"), "--key", str(tmp_path / "public.pem")]) == 0
    # The report is a link to the key, which is not a file of the job.
    assert "junit" not in {artifact["file_type"] for artifact in job["artifacts"]}


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    """The folder where an attack on git would create a file. No container can write there."""
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("time", ["during the checkout", "before it"])
async def test_no_hook_of_a_job_makes_the_checkout_run_a_program(
    engine: DockerEngine, cell: ServedCell, marks: Path, tmp_path: Path, time: str
) -> None:
    """Git runs on the machine, with the agent's rights; hooks run in containers that have the repository."""
    command = f"touch {marks}/by-git"
    is_during = time == "during the checkout"
    image: dict[str, Any] = {"name": BUSYBOX}
    if is_during:
        attack = f'( {SEIZE_REPOSITORY}\nwhile :; do seize; done ) >/dev/null 2>&1 & exec "$@"'
        image["entrypoint"] = ["sh", "-c", attack, "sh"]
    job = {
        "image": image,
        "variables": {"COMMAND": command, "SETTINGS": SETTINGS.replace("COMMAND", command)},
        "hooks": {
            "pre_get_sources_script": [
                "touch left; echo before",
                "sleep 1" if is_during else f"{SEIZE_REPOSITORY}\nseize",
            ],
            "post_get_sources_script": ["echo after with $(cat file.txt)"],
        },
        "script": ["echo done"],
    }
    files = {"file.txt": "content\n", ".gitattributes": "*.txt filter=evil\n"}
    cell.new_project("app", json.dumps({"job": job}), **files)
    log = (await run_job(engine, cell, tmp_path))["log"]
    assert os.listdir(marks) == [], log
    assert log.index("before") < log.index("Checking out") < log.index("after with content") < log.index("done")
