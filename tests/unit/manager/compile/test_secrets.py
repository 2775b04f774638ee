"""Compilation of `secrets` of a payload into a step."""

from typing import Any

import msgspec
import pytest
from tests.support.manager_values import a_payload

from remuda.manager.compile.secrets import resolve_secrets
from remuda.manager.compile.step_entries import CompileError
from remuda.manager.compile.variables import Variables, variable_list
from remuda.wire.runner_api import JobPayload

VAULT = {
    "server": {
        "url": "$VAULT_ADDR",
        "namespace": "team",
        "auth": {"name": "jwt", "path": "gitlab", "data": {"jwt": "${TOKEN}", "role": "$ROLE"}},
    },
    "engine": {"name": "kv-v1", "path": "ops"},
    "path": "production/$ENV",
    "field": "password",
}
VARIABLES = Variables(variable_list({"VAULT_ADDR": "https://vault.test", "TOKEN": "a.jwt", "ROLE": "r", "ENV": "db"}))


def resolve(secrets: dict[str, Any], variables: Variables = VARIABLES) -> dict[str, Any]:
    [step] = resolve_secrets(a_payload(secrets=secrets), variables)
    inputs: dict[str, Any] = step["inputs"]
    return inputs


def test_the_login_of_a_vault_secret_is_separate() -> None:
    inputs = resolve({"A": {"vault": VAULT, "file": False}, "B": {"vault": VAULT}, "C": {"vault": VAULT, "file": None}})
    assert inputs["secrets"]["A"] == {
        "vault": {
            "server": {
                "url": "https://vault.test",
                "namespace": "team",
                "auth": {"name": "jwt", "path": "gitlab", "data": {"role": "r"}},
            },
            "engine": {"name": "kv-v1", "path": "ops"},
            "path": "production/db",
            "field": "password",
        },
        "file": False,
    }
    assert inputs["secrets"]["B"]["file"] is inputs["secrets"]["C"]["file"] is True
    assert inputs["logins"]["A"] == {"jwt": "a.jwt"}
    assert "a.jwt" not in repr(inputs["secrets"])


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ({"azure_key_vault": {"name": "x"}, "file": True}, "secrets:A: azure_key_vault is not supported"),
        ({"gcp_secret_manager": {}, "vault": None}, "secrets:A: gcp_secret_manager is not supported"),
        ({"vault": VAULT | {"path": ""}}, "secrets:A: the server sent no path"),
        ({"vault": VAULT | {"server": {"auth": {"data": {"jwt": "x"}}}}}, "no server:url"),
        (
            {"vault": VAULT | {"server": {"url": "u", "auth": {"data": {"jwt": "$NONE"}}}}},
            "declare one under id_tokens",
        ),
        ({"vault": VAULT | {"server": {"url": "u", "auth": {"name": "ldap"}}}}, "the login 'ldap' is not supported"),
        ({"vault": VAULT | {"server": "u"}}, "a server of the vault that is not a table"),
    ],
)
def test_unsupported_or_incomplete_secrets_fail_the_job(secret: dict[str, Any], text: str) -> None:
    with pytest.raises(CompileError, match=text):
        resolve({"A": secret})


def test_there_is_no_step_without_secrets() -> None:
    for text in ('{"id": 1, "token": "t", "secrets": null}', '{"id": 1, "token": "t", "secrets": {}}'):
        payload = msgspec.json.decode(text, type=JobPayload)
        assert resolve_secrets(payload, VARIABLES) == []
