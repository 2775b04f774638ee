"""Parses variables and inputs of the command line: `NAME=VALUE` options, and files of variables (dotenv, or a YAML or
JSON map like `variables` in a pipeline file). Options win over files, later ones over earlier ones."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.lib.exits import BadInputError
from remuda.pipeline.errors import Report, printable
from remuda.pipeline.keywords.variables import Variables, read_variables
from remuda.pipeline.syntax.known_keys import VARIABLE
from remuda.pipeline.syntax.tree import number, plain
from remuda.pipeline.syntax.yaml_document import read_document

LIMIT_BYTES = 1024 * 1024

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NAME_RULE = "use letters, digits and _, no digit first"
_INPUT = re.compile(r"[\w-]+", re.ASCII)
_INPUT_RULE = "use letters, digits, _ and -"
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)", re.ASCII | re.DOTALL)
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_SINGLE = re.compile(r"'([^']*)'\s*(?:#.*)?")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def read_variable_options(assignments: Iterable[str], files: Iterable[Path]) -> Variables:
    variables = Variables()
    for file in files:
        variables = read_file(file).over(variables)
    return Variables(values=_read_assignments(assignments, "--variable", _NAME, _NAME_RULE)).over(variables)


def read_file(file: Path) -> Variables:
    """Read a file: as YAML or JSON if its suffix says so or it begins with a brace, else as dotenv. Raises
    BadInputError if the file cannot be read, PipelineError if its YAML is invalid."""
    try:
        with file.open("rb") as stream:
            data = stream.read(LIMIT_BYTES + 1)
        if len(data) > LIMIT_BYTES:
            raise BadInputError(f"--variables-file {file}: larger than {LIMIT_BYTES} bytes")
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise BadInputError(f"--variables-file {file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInputError(f"--variables-file {file}: is not UTF-8 text") from None
    if file.suffix in (".yml", ".yaml", ".json") or text.lstrip().startswith("{"):
        if not text.strip():
            return Variables()
        report = Report(str(file))
        variables = read_variables(report, read_document(text, report).body, "", VARIABLE)
        report.finish()
        return variables
    return Variables(values=read_dotenv(text, str(file)))


def read_dotenv(text: str, file: str, *, is_secret: bool = False) -> dict[str, str]:
    """Parse lines of `NAME=value`: quotes are removed, inside double quotes a backslash escapes, # begins a comment.
    Raises BadInputError, which names `file` and the line, for any other line. `is_secret`: it does not show the line.
    """
    values: dict[str, str] = {}
    for index, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            what = "this line" if is_secret else repr(printable(line))
            raise BadInputError(f"{file}:{index}: cannot read {what}; write it as NAME=VALUE")
        name, value = match.groups()
        if value[:1] in ('"', "'"):
            quoted = (_DOUBLE if value[0] == '"' else _SINGLE).fullmatch(value)
            if quoted is None:
                raise BadInputError(f"{file}:{index}: {name}: the quotes do not end, or something follows them")
            is_double = value[0] == '"'
            value = _ESCAPE.sub(lambda e: _ESCAPED.get(e[1], e[1]), quoted[1]) if is_double else quoted[1]
        else:
            value = re.split(r"\s#", value, maxsplit=1)[0].rstrip()
        values[name] = value
    return values


def read_inputs(assignments: Sequence[str], text: str, file: str) -> dict[str, Any]:
    """Return the values of `--input` with the types that `text`, the content of the pipeline file `file`, declares."""
    inputs = _read_assignments(assignments, "--input", _INPUT, _INPUT_RULE)
    if not inputs:
        return {}
    header = read_document(text, Report(file)).header
    spec = plain(header.entries["spec"].value) if header else None
    declared = spec.get("inputs") if isinstance(spec, dict) else None
    types: Mapping[str, object] = declared if isinstance(declared, dict) else {}
    return {name: _convert(name, value, types.get(name)) for name, value in inputs.items()}


def _convert(name: str, text: str, declared: object) -> Any:
    kind = declared.get("type") if isinstance(declared, dict) else None
    if kind == "number":
        return number(text)
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    if kind == "array":
        report = Report(f"--input {name}")
        value = plain(read_document(text, report).body)
        report.finish()
        return value
    return text


def _read_assignments(assignments: Iterable[str], option: str, names: re.Pattern[str], rule: str) -> dict[str, str]:
    """Parse `NAME=VALUE` values of an option. `names`: pattern of valid names; `rule` explains it in errors."""
    values: dict[str, str] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadInputError(f"{option} {text}: write it as NAME=VALUE")
        if not _is_text(value):
            raise BadInputError(f"{option} {name}: the value is not UTF-8 text")
        if not names.fullmatch(name):
            raise BadInputError(f"{option} {text}: {name!r} is not a valid name; {rule}")
        values[name] = value
    return values


def _is_text(value: str) -> bool:
    """False if the value contains bytes of the command line that Python could not decode (surrogates)."""
    return not any("\ud800" <= character <= "\udfff" for character in value)
