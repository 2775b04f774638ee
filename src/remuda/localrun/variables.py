"""Variables and inputs as the command line gives them: `NAME=VALUE`, and files of them.

Decided here: which forms a file of variables may have (dotenv; a YAML or JSON map as under `variables` in a pipeline
file), whose value wins (options over files, later over earlier), and what type an input's text is taken for, which is
the one that the pipeline file declares. `compiling` is the caller.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.cli.exits import BadInputError
from remuda.pipeline.errors import Report, printable
from remuda.pipeline.keywords.variables import Variables, read_variables
from remuda.pipeline.syntax.tree import number, plain
from remuda.pipeline.syntax.yaml_document import read_document

LIMIT_BYTES = 1024 * 1024

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_INPUT = re.compile(r"[\w-]+", re.ASCII)
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)", re.ASCII | re.DOTALL)
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_SINGLE = re.compile(r"'([^']*)'\s*(?:#.*)?")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def read_given(assignments: Iterable[str], files: Iterable[Path]) -> Variables:
    """All variables of a command line."""
    found = Variables()
    for file in files:
        found = read_file(file).over(found)
    return Variables(values=_assigned(assignments, "--variable", _NAME)).over(found)


def read_file(file: Path) -> Variables:
    """The variables of a file; what it is shows by its name, or by a brace at its beginning."""
    try:
        with file.open("rb") as opened:
            data = opened.read(LIMIT_BYTES + 1)
        if len(data) > LIMIT_BYTES:
            raise BadInputError(f"--variables-file {file}: larger than {LIMIT_BYTES} bytes")
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise BadInputError(f"--variables-file {file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInputError(f"--variables-file {file}: is no UTF-8 text") from None
    if file.suffix in (".yml", ".yaml", ".json") or text.lstrip().startswith("{"):
        if not text.strip():
            return Variables()
        report = Report(str(file))
        variables = read_variables(report, read_document(text, report).body, "")
        report.finish()
        return variables
    return Variables(values=read_dotenv(text, str(file)))


def read_dotenv(text: str, file: str) -> dict[str, str]:
    """`NAME=value` a line; quotes are taken off, in double ones a backslash escapes; # begins a comment."""
    values: dict[str, str] = {}
    for index, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise BadInputError(f"{file}:{index}: cannot read {printable(line)!r}; write it as NAME=VALUE")
        name, value = found.groups()
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
    """The inputs of a command line, each of the type that the header of the pipeline file `text` gives it."""
    given = _assigned(assignments, "--input", _INPUT)
    if not given:
        return {}
    header = read_document(text, Report(file)).header
    spec = plain(header.entries["spec"].value) if header else None
    declared = spec.get("inputs") if isinstance(spec, dict) else None
    types: Mapping[str, object] = declared if isinstance(declared, dict) else {}
    return {name: _typed(name, value, types.get(name)) for name, value in given.items()}


def _typed(name: str, text: str, declared: object) -> Any:
    wanted = declared.get("type") if isinstance(declared, dict) else None
    if wanted == "number":
        return number(text)
    if wanted == "boolean" and text in ("true", "false"):
        return text == "true"
    if wanted == "array":
        report = Report(f"--input {name}")
        value = plain(read_document(text, report).body)
        report.finish()
        return value
    return text


def _assigned(assignments: Iterable[str], option: str, names: re.Pattern[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for each in assignments:
        name, equals, value = each.partition("=")
        if not equals:
            raise BadInputError(f"{option} {each}: write it as NAME=VALUE")
        if not _is_text(value):
            raise BadInputError(f"{option} {name}: the value is no UTF-8 text")
        if not names.fullmatch(name):
            raise BadInputError(f"{option} {each}: {name!r} is no name; use letters, digits and _, no digit first")
        values[name] = value
    return values


def _is_text(value: str) -> bool:
    """Whether no byte of the command line was left undecoded."""
    return not any("\ud800" <= character <= "\udfff" for character in value)
