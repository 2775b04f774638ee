"""CA files that a job in a container names: the agent opens no path and no file of the job with its own rights."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from tests.support.servers.vault_server import JWT, FakeVault
from tests.support.step_jobs import Build
from tests.support.step_packages import a_certificate

from remuda.testing.agent_process import AgentProcess, run_job, steps_text
from remuda.wire.agent_client import JobVariable

BOX = {"name": "box", "step": "builtin://container", "inputs": {"image": "none"}, "origin": "compiled", "if": "false"}
REPLACE_FILE = 'rm -f "$CI_SERVER_TLS_CA_FILE"; ln -s "$PWD/no" "$CI_SERVER_TLS_CA_FILE"'


@pytest.mark.parametrize("is_file", [True, False])
async def test_no_file_named_by_job_is_opened(agent: AgentProcess, a_job: Build, tmp_path: Path, is_file: bool) -> None:
    """The file does not exist, so opening it would be an error in the log."""
    certificate = a_certificate("elsewhere.example")[1].public_bytes(Encoding.PEM).decode()
    variable = JobVariable(
        key="CI_SERVER_TLS_CA_FILE", value=certificate if is_file else str(tmp_path / "no"), file=is_file
    )
    secret = FakeVault(port=1).secret()
    secret["vault"]["server"]["url"] = "https://127.0.0.1:1"
    inputs = {"secrets": {"A": secret}, "logins": {"A": {"jwt": JWT}}}
    steps = steps_text(
        {"name": "replace", "script": REPLACE_FILE if is_file else "true", "origin": "compiled"},
        {"name": "secrets", "step": "builtin://secrets", "inputs": inputs, "origin": "compiled"},
        BOX | {"run": [{"name": "own", "script": "true"}]},
    )
    env = {"REMUDA_PATIENCE_SECONDS": "1"}
    seen = await run_job(agent, a_job(steps=steps, env=env, variables=(variable,)))
    assert seen.check().status == "failure"
    assert b"the server cannot be reached: 127.0.0.1:1: [Errno 111]" in seen.log, seen.log.decode()
    assert b"No such file" not in seen.log, seen.log.decode()
