"""Reads the variables of a dotenv report, with which a job passes variables to later jobs. GitLab's rules: one
`NAME=value` per line, no empty lines, no comments, quotes are part of the value, the last value of a name wins.
Invariant: no more than the limit is decompressed, however small the compressed file is."""

import re
import zlib

from remuda.cell.errors import InvalidError

_NAME = re.compile(r"[A-Za-z0-9_]{1,255}", re.ASCII)
_ANY_WRAPPER = 32 + zlib.MAX_WBITS


def read_dotenv(packed: bytes, *, limit_bytes: int, limit_variables: int) -> dict[str, str]:
    """Return the variables of an uploaded file, gzipped or not. Raises InvalidError if a line is invalid or a limit is
    exceeded."""
    content = _unpack(packed, limit_bytes)
    if len(content) > limit_bytes:
        raise InvalidError(explain_limit(limit_bytes))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line_number = content.count(b"\n", 0, error.start) + 1
        raise InvalidError(f"the dotenv report is not UTF-8 (line {line_number}); save it as UTF-8") from None
    lines = text.split("\n")
    variables: dict[str, str] = {}
    for number, line in enumerate(lines[:-1] if lines[-1] == "" else lines, 1):
        name, equals, value = line.partition("=")
        name = name.strip()
        if not equals or not _NAME.fullmatch(name) or "\0" in value:
            raise InvalidError(f"the dotenv report cannot be read: line {number} {_reason(line, name, equals)}")
        variables[name] = value.strip()
    if len(variables) > limit_variables:
        raise InvalidError(
            f"the dotenv report has {len(variables)} variables; at most {limit_variables} are allowed; leave only what "
            "later jobs need, or raise dotenv_limit_variables"
        )
    return variables


def explain_limit(limit_bytes: int) -> str:
    return (
        f"the dotenv report is larger than the cell's limit of {limit_bytes} bytes; leave only what later jobs need, "
        "or raise dotenv_limit_bytes"
    )


def _reason(line: str, name: str, equals: str) -> str:
    if not line.strip():
        return "is empty; remove it"
    if line.lstrip().startswith("#"):
        return "is a comment; remove it"
    if not equals:
        return "has no =; write NAME=value, with the value on the same line"
    if _NAME.fullmatch(name):
        return "holds a zero byte, which is not allowed in a value; remove it"
    return f"begins with {name[:40]!a}, which is not a variable name; use letters, digits and _"


def _unpack(packed: bytes, limit_bytes: int) -> bytes:
    """Decompress gzip data of one or more streams; other data is returned unchanged. Stops after `limit_bytes` + 1
    bytes, to show that the limit is exceeded. Raises InvalidError if the gzip data is damaged or incomplete."""
    if not packed.startswith(b"\x1f\x8b"):
        return packed
    content = b""
    while packed and len(content) <= limit_bytes:
        stream = zlib.decompressobj(_ANY_WRAPPER)
        try:
            content += stream.decompress(packed, limit_bytes + 1 - len(content))
        except zlib.error as error:
            raise InvalidError(f"the dotenv report is not a whole gzip file: {error}") from None
        if not stream.eof and len(content) <= limit_bytes:
            raise InvalidError("the dotenv report is not a whole gzip file: it ends too early")
        packed = stream.unused_data
    return content
