"""Secrets in real jobs, from a fake Vault over real HTTP, from files and from variables."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.vault_server import JWT, PASSWORD, TOKEN, FakeVault
from tests.support.step_jobs import Build

from remuda.testing.agent_process import AgentProcess, Seen, run_job, steps_text


@pytest.fixture
def run(agent: AgentProcess, a_job: Build) -> Callable[..., Any]:
    """Run a step that fetches secrets, and a script after it."""

    async def call(secrets: dict[str, Any], script: str = ":", *, patience: int = 30, **more: Any) -> Seen:
        inputs = {"secrets": secrets, "logins": {name: {"jwt": JWT} for name in secrets}} | more
        steps = steps_text(
            {"name": "resolve_secrets", "step": "builtin://secrets", "inputs": inputs, "origin": "compiled"},
            {"name": "script", "step": "builtin://script", "inputs": {"script": script}},
        )
        return await run_job(
            agent, a_job(steps=steps, env={"REMUDA_PATIENCE_SECONDS": str(patience), "GIVEN": "env-secret"})
        )

    return call


async def test_a_value_is_a_variable_of_later_steps_and_shows_nowhere(run: Any, vault: FakeVault) -> None:
    script = f'test "$PASSWORD" = {PASSWORD} && test "$PORT" = 5432 && echo "it is $PASSWORD" && env >dump && cat dump'
    seen = await run({"PASSWORD": vault.secret(), "PORT": vault.secret("port")}, script)
    assert seen.check().status == "success", seen.lines
    assert b"it is [MASKED]" in seen.lines
    log_and_results = b"\n".join(seen.lines) + json.dumps(seen.results).encode()
    for secret in (PASSWORD, JWT, TOKEN):
        assert secret.encode() not in log_and_results
    result = seen.result_of("/resolve_secrets")
    assert result["outputs"] == {
        "names": ["PASSWORD", "PORT"],
        "sources": {"PASSWORD": "vault", "PORT": "vault"},
        "files": [],
    }
    assert result["exports"] == {"PASSWORD": "[MASKED]", "PORT": "[MASKED]"}
    assert vault.requests == [
        "POST /v1/auth/gitlab/login",
        "GET /v1/ops/data/db",
        "POST /v1/auth/token/revoke-self",
    ]
    assert vault.namespaces == {"team"}


async def test_a_file_holds_the_value_and_goes_with_the_job(run: Any, vault: FakeVault, tmp_path: Path) -> None:
    script = 'stat -c %a "$KEY"; cat "$KEY"; cp "$KEY" copy; echo "$KEY" >path'
    seen = await run({"KEY": vault.secret("key", file=True), "OLD": vault.secret(engine="kv-v1", file=None)}, script)
    assert seen.check().status == "success", seen.lines
    assert (tmp_path / "work/copy").read_text() == "first line\nsecond line\n}"
    assert b"600" in seen.lines
    assert seen.lines.count(b"[MASKED]") == 2
    assert seen.result_of("/resolve_secrets")["outputs"]["files"] == ["KEY", "OLD"]
    file = Path((tmp_path / "work/path").read_text().strip())
    assert file.name == "KEY"
    assert file.parent.parent.name == "exchange"


async def test_files_and_other_variables_are_sources_too(run: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("file-secret\n")
    secrets = {
        "ONE": {"local_file": {"path": str(tmp_path / "token")}, "file": False},
        "TWO": {"environment": {"name": "GIVEN"}, "file": False},
    }
    seen = await run(secrets, 'echo "$ONE/$TWO/$GIVEN"')
    assert seen.check().status == "success", seen.lines
    assert b"[MASKED]/[MASKED]/[MASKED]" in seen.lines
    assert seen.result_of("/resolve_secrets")["outputs"]["sources"] == {"ONE": "local_file", "TWO": "environment"}


@pytest.mark.parametrize(
    ("answers", "secret", "text"),
    [
        ([403], {}, "secret A: logging in to read secrets from .* failed: the server answered 403 .*said by the vault"),
        ([0, 403], {}, "secret A: reading the secret ops/data/db from .* failed: the server answered 403"),
        ([], {"path": "none"}, "secret A: reading the secret ops/data/none .*: the server answered 404"),
        ([], {"name": "user"}, "secret A: the secret ops/data/db has no field 'user'"),
        ([], {"path": "../../sys"}, "secret A: path: '../../sys' is not a valid path"),
        ([307], {}, "secret A: .*failed 3 times: the server answered 307"),
    ],
)
async def test_a_secret_that_cannot_be_read_fails_the_job(
    run: Any, vault: FakeVault, answers: list[int], secret: dict[str, Any], text: str
) -> None:
    vault.answers = answers * 3 if answers == [307] else answers
    seen = await run({"A": vault.secret(**secret)}, "echo ran")
    assert seen.check().status == "failure"
    assert any(re.search(text, line.decode()) for line in seen.lines), seen.lines
    assert b"ran" not in seen.lines


@pytest.mark.parametrize("rest", ["/containers/x/kill?a=", "/a#"])
async def test_the_url_of_a_vault_cannot_change_the_path(run: Any, vault: FakeVault, rest: str) -> None:
    secret = vault.secret()
    secret["vault"]["server"]["url"] += rest
    seen = await run({"A": secret})
    assert seen.check().status == "failure"
    assert any(b"is not an http or https URL of a server" in line for line in seen.lines), seen.lines
    assert not vault.requests


async def test_requests_to_a_failing_vault_are_retried(run: Any, vault: FakeVault) -> None:
    vault.answers = [503, 500, 0, 502]
    seen = await run({"A": vault.secret()}, f'test "$A" = {PASSWORD}')
    assert seen.check().status == "success", seen.lines
    assert vault.requests.count("POST /v1/auth/gitlab/login") == 3


async def test_a_vault_that_does_not_answer_is_the_platforms_fault(run: Any, vault: FakeVault) -> None:
    vault.answers = [-1, -1, -1, -1]
    seen = await run({"A": vault.secret()}, patience=1, timeout_seconds=1)
    status = seen.check()
    assert (status.status, seen.result_of("/resolve_secrets")["exit_code"]) == ("failure", 75)
    assert any(b"cannot be reached" in line for line in seen.lines), seen.lines
