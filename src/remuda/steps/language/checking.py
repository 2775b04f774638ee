"""Checks the inputs and outputs of a step against its spec. No I/O; `steps.engine` calls it before and after a step
runs.

A sensitive value is only accepted for an input that is declared sensitive, because only then the step's author knows to
keep it secret. All mistakes are reported in one error. Messages contain no values, which may be secrets."""

from collections.abc import Mapping
from typing import Any

from remuda.steps.language.errors import CheckError
from remuda.steps.language.operations import check_bounds, kind
from remuda.steps.language.report import did_you_mean
from remuda.steps.language.sensitive import Sensitive, is_sensitive, sensitive
from remuda.steps.language.values import MISSING, Parameter, Spec, ValueType

_KINDS = {"struct": "object"}
_WORDS = {"object": "struct"}


def check_inputs(spec: Spec, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declared inputs with values or defaults, those declared sensitive wrapped in `Sensitive`. Raises
    CheckError if an input is unknown, missing, of the wrong type, or sensitive without being declared so."""
    unknown, missing = 'step does not accept input with name "{}"', 'input "{}" required, but not defined'
    return _check("input", spec.inputs, values, unknown=unknown, missing=missing, takes_secrets=False)


def check_outputs(spec: Spec, written: Mapping[str, Any]) -> dict[str, Any]:
    """Return all declared outputs with values or defaults. A value that is marked sensitive stays so, even if its
    output is not declared sensitive. Raises CheckError if an output is unknown, missing or of the wrong type."""
    unknown, missing = 'output "{}" is not declared in the spec', 'output "{}" was not written and has no default'
    return _check("output", spec.outputs, written, unknown=unknown, missing=missing, takes_secrets=True)


def _check(
    what: str,
    declared: Mapping[str, Parameter],
    values: Mapping[str, Any],
    *,
    unknown: str,
    missing: str,
    takes_secrets: bool,
) -> dict[str, Any]:
    """Return the `declared` inputs or outputs with values or defaults. `what`, `unknown` and `missing` are for
    messages. `takes_secrets`: accept sensitive values for parameters not declared so. Raises CheckError if invalid."""
    mistakes = [unknown.format(name) + did_you_mean(name, declared) for name in values if name not in declared]
    checked: dict[str, Any] = {}
    for name, parameter in declared.items():
        value = check_bounds(values.get(name, parameter.default))
        if value is MISSING:
            mistakes.append(missing.format(name))
        elif mistake := mismatch(parameter.type, value):
            mistakes.append(f'{what} "{name}": {mistake}')
        elif not takes_secrets and not parameter.sensitive and is_sensitive(value):
            mistakes.append(
                f'{what} "{name}" is given a sensitive value, but is not declared "sensitive: true" by the step'
            )
        else:
            checked[name] = sensitive(value) if parameter.sensitive else value
    if mistakes:
        raise CheckError("; ".join(mistakes[:10]))
    return checked


def mismatch(expected: ValueType, value: Any) -> str:
    """Return a message that the value does not have the expected type; empty if it has."""
    plain = value.value if isinstance(value, Sensitive) else value
    actual = kind(plain)
    if actual == _KINDS.get(expected, expected):
        return ""
    hint = "; put it in quotes" if expected == "string" and actual in ("number", "boolean") else ""
    return f"{_a(expected)} is needed, not {_a(_WORDS.get(actual, actual))}{hint}"


def _a(name: str) -> str:
    return name if name == "null" else f"an {name}" if name == "array" else f"a {name}"
