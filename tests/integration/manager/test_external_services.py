"""Jobs that use an external service or key: secrets of a Vault, caches in a bucket, signed artifacts."""

import json
import zipfile
from pathlib import Path
from typing import Any

from tests.support.cells.served_cell import ServedCell
from tests.support.runners.manager_harness import ManagerHarness
from tests.support.servers.object_server import ObjectServer
from tests.support.servers.vault_server import JWT, PASSWORD, FakeVault

from remuda.cli.main import call
from remuda.stdsteps.signatures.statements import NAME, read_statement
from remuda.testing.coordinator import Coordinator, ServerJob

NO_SOURCES = [{"key": "GIT_STRATEGY", "value": "none"}]


def step_result(job: ServerJob, name: str) -> dict[str, Any]:
    """Return the result of a step."""
    [match] = [result for result in job.results if result["event"] == "finished" and result["name"] == name]
    return match


async def test_masked_secrets_of_a_job(harness: ManagerHarness, coordinator: Coordinator, vault: FakeVault) -> None:
    secret = vault.secret()["vault"]
    secret["server"]["auth"]["data"]["jwt"] = "$VAULT_ID_TOKEN"
    variables = [*NO_SOURCES, {"key": "VAULT_ID_TOKEN", "value": JWT, "masked": True}]
    secrets = {"PLAIN": {"vault": secret, "file": False}, "KEPT": {"vault": secret, "file": True}}
    async with harness.manager():
        job = await coordinator.enqueue(
            f'test "$PLAIN" = {PASSWORD}', 'cat "$KEPT"; echo', secrets=secrets, variables=variables
        )
        await coordinator.until_over(job)
        other = {"A": {"azure_key_vault": {"name": "x"}, "file": True}}
        refused = await coordinator.enqueue("true", secrets=other, variables=variables)
        await coordinator.until_over(refused)
    assert job.status == "success", job.trace
    assert list(step_result(job, "resolve_secrets")["outputs"]["names"]) == ["PLAIN", "KEPT"]
    visible = bytes(job.trace) + json.dumps(job.results).encode()
    assert PASSWORD.encode() not in visible
    assert JWT.encode() not in visible
    assert refused.status == "failed"
    assert b"azure_key_vault is not supported" in bytes(refused.trace)


async def test_cache_shared_in_bucket(harness: ManagerHarness, coordinator: Coordinator, storage: ObjectServer) -> None:
    s3 = storage.config
    harness.write_config(
        extra=f'[runners.cache]\nType = "s3"\nPath = "ci"\n[runners.cache.s3]\nServerAddress = "{s3.server_address}"\n'
        f'AccessKey = "{s3.access_key}"\nSecretKey = "{s3.secret_key}"\nBucketName = "{s3.bucket}"\nInsecure = true\n'
    )
    cache = [{"key": "deps", "paths": ["deps"], "fallback_keys": ["other"]}]
    new = [{"key": "new", "paths": ["deps"], "policy": "pull", "fallback_keys": ["deps"]}]
    async with harness.manager():
        first = await coordinator.enqueue("mkdir deps; echo one >deps/it", cache=cache, variables=NO_SOURCES)
        await coordinator.until_over(first)
        second = await coordinator.enqueue("cat deps/it", cache=cache, variables=NO_SOURCES)
        await coordinator.until_over(second)
        third = await coordinator.enqueue("cat deps/it", cache=new, variables=NO_SOURCES)
        await coordinator.until_over(third)
    assert (first.status, second.status, third.status) == ("success", "success", "success"), first.trace
    outputs = [step_result(job, "restore_cache")["outputs"] for job in (first, second, third)]
    assert [(output["hit"], output["key"], output["fallback"]) for output in outputs] == [
        (False, "", False),
        (True, "deps", False),
        (True, "deps", True),
    ]
    assert (outputs[1]["bytes"], outputs[1]["seconds"] > 0) == (len(storage.objects["deps"]), True)
    assert not (harness.jobs / "cache/group").exists()
    assert b"X-Amz" not in bytes(first.trace) + json.dumps([first.results, second.results, third.results]).encode()


SIGNED = "make: {script: [mkdir out, date >out/app], artifacts: {paths: [out]}}"


async def run_pipeline(cell: ServedCell, harness: ManagerHarness, pipeline_file: str) -> dict[str, Any]:
    """Run a pipeline with one job. Returns the job with its log."""
    cell.new_project("app", pipeline_file)
    async with harness.manager():
        [job] = (await cell.wait_for_jobs()).values()
    await harness.close()
    return job


async def test_artifacts_in_a_cell_are_signed(
    cell: ServedCell, cell_harness: ManagerHarness, signing_key: Path, tmp_path: Path
) -> None:
    public, archive = tmp_path / "public.pem", tmp_path / "artifacts.zip"
    cell_harness.write_config(extra=f'[runners.remuda]\nsigning_key = "{signing_key}"\n')
    job = await run_pipeline(cell, cell_harness, SIGNED)
    assert job["status"] == "success"
    archive.write_bytes(cell.api("GET", f"/projects/1/jobs/{job['id']}/artifacts").body)
    verify = ["artifacts", "verify", str(archive), "--key", str(public)]
    assert call(verify) == 0
    with zipfile.ZipFile(archive) as opened:
        names = opened.namelist()
        about = read_statement(opened.read(NAME)).predicate
        with zipfile.ZipFile(tmp_path / "changed.zip", "w") as changed:
            for name in names:
                changed.writestr(name, opened.read(name) + (b"!" if name == "out/app" else b""))
    assert (about["project"]["path"], about["runner"], about["job"]["name"]) == ("root/app", "bench", "make")
    assert call(["artifacts", "verify", str(tmp_path / "changed.zip"), "--key", str(public)]) == 1


WITH_SECRETS = """
deploy:
  id_tokens: {VAULT_ID_TOKEN: {aud: https://vault.example.com}}
  variables: {VAULT_SERVER_URL: "http://127.0.0.1:PORT", VAULT_AUTH_PATH: gitlab, VAULT_AUTH_ROLE: deploy}
  secrets:
    PASSWORD: {vault: db/password@ops, file: false}
    AS_FILE: {vault: {engine: {name: kv-v1, path: ops}, path: db, field: password}, token: $VAULT_ID_TOKEN}
  script: ['echo "<$PASSWORD> <$(cat $AS_FILE)>"', 'test -n "$PASSWORD"']
"""


async def test_secrets_use_the_jobs_own_token(cell: ServedCell, cell_harness: ManagerHarness, vault: FakeVault) -> None:
    vault.jwt = None
    job = await run_pipeline(cell, cell_harness, WITH_SECRETS.replace("PORT", str(vault.port)))
    assert job["status"] == "success", job["log"]
    assert "<[MASKED]> <[MASKED]>" in job["log"]
    assert vault.requests == [
        "POST /v1/auth/gitlab/login",
        "GET /v1/ops/data/db",
        "GET /v1/ops/db",
        "POST /v1/auth/token/revoke-self",
    ]
