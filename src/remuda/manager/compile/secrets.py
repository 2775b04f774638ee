"""Compiles `secrets` of a job to its first step, which fetches them. Pure code without I/O.

Only HashiCorp Vault is supported; any other kind fails the job before it starts. The login tokens are a separate input
of the step, because the other input is visible in the step's result."""

from typing import Any

from remuda.manager.compile.step_entries import CompileError, Entry, entry
from remuda.manager.compile.variables import Variables
from remuda.wire.runner_api import JobPayload

NAME = "resolve_secrets"
METHODS = ("jwt",)
OPEN = ("role",)
"""Login data that is not secret."""


def resolve_secrets(payload: JobPayload, variables: Variables) -> list[Entry]:
    """Return at most one step, which fetches all secrets. Raises CompileError if one is unsupported or incomplete."""
    if not payload.secrets:
        return []
    secrets: dict[str, Any] = {}
    logins: dict[str, dict[str, str]] = {}
    for name, secret in payload.secrets.items():
        vault = secret.get("vault")
        if not isinstance(vault, dict):
            kinds = ", ".join(
                key for key, value in secret.items() if value is not None and key not in ("file", "token")
            )
            raise CompileError(f"secrets:{name}: {kinds or 'its kind'} is not supported; this runner knows only vault")
        secrets[name], logins[name] = _vault(name, _expand(vault, variables))
        secrets[name]["file"] = secret.get("file") is not False
    return [entry(NAME, "secrets", {"secrets": secrets, "logins": logins})]


def _vault(name: str, vault: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    server = _group(vault, "server", name)
    auth, engine = _group(server, "auth", name), _group(vault, "engine", name)
    method = auth.get("name") or METHODS[0]
    if method not in METHODS:
        raise CompileError(f"secrets:{name}: the login {method!r} is not supported; this runner knows only jwt")
    data = _group(auth, "data", name)
    login = {key: str(value) for key, value in data.items() if key not in OPEN and value is not None}
    if not login.get("jwt") or login["jwt"].startswith("$"):
        raise CompileError(
            f"secrets:{name}: there is no token to log in with; declare one under id_tokens and name it as token"
        )
    request = {
        "server": {
            "url": server.get("url") or "",
            "namespace": server.get("namespace") or "",
            "auth": {
                "name": method,
                "path": auth.get("path") or "jwt",
                "data": {key: data[key] for key in OPEN if data.get(key)},
            },
        },
        "engine": {"name": engine.get("name") or "kv-v2", "path": engine.get("path") or "kv-v2"},
        "path": vault.get("path") or "",
        "field": vault.get("field") or "",
    }
    missing = [key for key, value in (("server:url", server.get("url")), *request.items()) if not value]
    if missing:
        raise CompileError(f"secrets:{name}: the server sent no {', '.join(missing)} of the vault")
    return {"vault": request}, login


def _group(values: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    group = values.get(key) or {}
    if not isinstance(group, dict):
        raise CompileError(f"secrets:{name}: the server sent a {key} of the vault that is not a table")
    return group


def _expand(value: Any, variables: Variables) -> Any:
    match value:
        case str():
            return variables.expand(value)
        case dict():
            return {key: _expand(item, variables) for key, item in value.items()}
    return value
