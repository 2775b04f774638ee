"""Masks secrets in payloads and step results before people see them: tokens, credentials, masked variables, identity
tokens, and data to fetch external secrets. The value of a secret is masked wherever it occurs."""

from collections.abc import Iterable
from typing import Any

import msgspec

from remuda.cell.errors import InvalidError
from remuda.lib.masking import MASK, TOKEN_PREFIXES, Secrets
from remuda.wire.runner_api import JobPayload, Variable

MASKED = MASK.decode()
MAX_DEPTH = 64
_PLAIN = frozenset({"version", "seq", "event", "status", "time", "started_at", "finished_at", "origin", "reference"})
"""Fields of a step result that only the agent writes, and that must stay readable."""


def secrets_to_mask(values: Iterable[str]) -> Secrets:
    """Return an object that masks these values, and every text that begins like a token (such as `glpat-`)."""
    return Secrets(values, TOKEN_PREFIXES)


def without_secrets(value: Any, secrets: Secrets, depth: int = 0) -> Any:
    """Return a JSON value with secrets masked in all strings. Raises InvalidError if it is nested too deeply."""
    if isinstance(value, str):
        return secrets.mask_bytes(value.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
    if depth > MAX_DEPTH:
        raise InvalidError(f"it is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        return {
            without_secrets(key, secrets): without_secrets(inner, secrets, depth + 1) for key, inner in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(inner, secrets, depth + 1) for inner in value]
    return value


def clean_result(result: dict[str, Any], secrets: Secrets) -> dict[str, Any]:
    """Return a step result with secrets masked. Remuda's agent has masked them already, but other agents may not."""
    plain = {name: value for name, value in result.items() if name in _PLAIN}
    return plain | {
        without_secrets(name, secrets): _clean_field(value, secrets)
        for name, value in result.items()
        if name not in _PLAIN
    }


def _clean_field(value: Any, secrets: Secrets) -> Any:
    """Mask secrets in a field. One that is nested too deeply is replaced by a message; other fields are kept."""
    try:
        return without_secrets(value, secrets, 1)
    except InvalidError as error:
        return f"(left out: {error})"


def mask_payload(payload: JobPayload, secrets: Secrets) -> Any:
    """Return a payload as a JSON value, with its tokens, passwords, masked variables and all `secrets` masked."""
    values = {variable.value for variable in payload.variables if variable.masked}
    values |= {payload.token, *(dependency.token for dependency in payload.dependencies or ())}
    values |= {str(entry.get("password") or "") for entry in payload.credentials or ()}
    hidden = secrets_to_mask(values - {"", MASKED})
    document = msgspec.to_builtins(
        msgspec.structs.replace(
            payload,
            token=MASKED,
            variables=[_mask_variable(variable) for variable in payload.variables],
            credentials=[{**entry, "password": MASKED} for entry in payload.credentials or ()],
            dependencies=[msgspec.structs.replace(source, token=MASKED) for source in payload.dependencies or ()],
            secrets={name: {} for name in payload.secrets or {}},
        )
    )
    return without_secrets(without_secrets(document, hidden), secrets)


def _mask_variable(variable: Variable) -> Variable:
    return msgspec.structs.replace(variable, value=MASKED) if variable.masked else variable
