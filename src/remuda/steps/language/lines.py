"""Parses a step's output and export files: lines of `{"name": ..., "value": ...}`. No I/O.

If lines have the same name, the last one counts; other keys are ignored; "name" and "value" may be in upper or lower
case. Anything else is an error of the step, reported with its line number. Messages contain no values, which may be
secrets."""

import json
from collections.abc import Mapping
from typing import Any

from remuda.steps.language.errors import CheckError, ExpressionError
from remuda.steps.language.operations import check_bounds, number, plain_number
from remuda.steps.language.values import NAME

MAX_BYTES = 16 * 1024 * 1024
"""Size limit of an output or export file."""

_LINE, _RESULT = 'one JSON object with "name" and "value"', "the result of a step as one JSON object"
_RESULT_KEYS = frozenset(
    {"step", "specDefinition", "status", "outputs", "exports", "env", "execResult", "subStepResults"}
)


def read_lines(data: bytes, *, what: str = "output file", limit_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Return the values in an output or export file by name, in the order of their first lines. `what` names the file
    in messages. Raises CheckError if a line is invalid or the file is larger than `limit_bytes`."""
    if len(data) > limit_bytes:
        raise CheckError(f"{what}: has {len(data)} bytes, and {limit_bytes} are allowed; keep large data in files")
    values: dict[str, Any] = {}
    for count, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            name, value = _read_line(line, f"{what}, line {count}")
            values[name] = value
    return values


def _read_line(line: bytes, place: str) -> tuple[str, Any]:
    entry = _load(line, place, _LINE)
    if not isinstance(entry, dict):
        raise CheckError(f"{place}: {_LINE} is needed")
    fields = {key.lower(): value for key, value in entry.items()}
    name, value = fields.get("name"), fields.get("value")
    if not isinstance(name, str) or not name:
        raise CheckError(f'{place}: "name" must be a string, and not an empty one')
    if value is None:
        raise CheckError(f'{place}: "value" of "{name[:100]}" is missing or null')
    return name, value


def export_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Convert exported variables to strings. Raises CheckError for an invalid name, a list or a mapping."""
    texts: dict[str, str] = {}
    for name, value in values.items():
        if not NAME.fullmatch(name):
            raise CheckError(f'export "{name[:100]}" is not a variable name (letters, digits and _, no digit first)')
        match value:
            case bool():
                texts[name] = "true" if value else "false"
            case int() | float():
                texts[name] = plain_number(value)
            case str() if "\0" not in value:
                texts[name] = value
            case str():
                raise CheckError(f'export "{name}": a variable cannot contain a NUL character')
            case _:
                kind = "array" if isinstance(value, list) else "struct"
                raise CheckError(f'export "{name}": a string, number or boolean is needed, not {kind}')
    return texts


def read_delegated(data: bytes, *, what: str = "output file") -> dict[str, Any]:
    """Return the outputs of a step with `outputs: delegate`: its output file `data` is the JSON result of another step
    runner, not lines of names and values. `what` names the file in messages. Raises CheckError if it is invalid."""
    if len(data) > MAX_BYTES:
        raise CheckError(f"{what}: has {len(data)} bytes, and {MAX_BYTES} are allowed")
    result = _load(data, what, _RESULT)
    if not isinstance(result, dict):
        raise CheckError(f"{what}: {_RESULT} is needed")
    if unknown := result.keys() - _RESULT_KEYS:
        raise CheckError(f'{what}: a step result has no field "{min(unknown)[:100]}"')
    outputs = result.get("outputs", {})
    if not isinstance(outputs, dict):
        raise CheckError(f'{what}: "outputs" must be an object')
    return outputs


def _load(data: bytes, place: str, expected: str) -> Any:
    try:
        value = check_bounds(
            json.loads(data.decode(), parse_float=_number, parse_int=_number, parse_constant=_refuse_constant)
        )
        if b"\\ud" in data.lower():
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except ExpressionError as error:
        raise CheckError(f"{place}: {error}") from None
    except UnicodeError:
        raise CheckError(f"{place}: not UTF-8, or half a surrogate pair") from None
    except (ValueError, RecursionError) as error:
        detail = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deep"
        raise CheckError(f"{place}: {expected} is needed ({detail})") from None


def _number(digits: str) -> int | float:
    return number(float(digits))


def _refuse_constant(name: str) -> Any:
    raise ExpressionError(f"{name} is not valid JSON")
