"""Reads the output, export (variables for later steps) and mask files of a step; `language.lines` parses the first two.

Steps can replace them with links or pipes, so only regular files are opened, never through a link. The mask file is
read whenever the step has printed something: a text that is masked before it is printed is never shown."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remuda.lib.safe_paths import close_after, open_plain
from remuda.steps.errors import DefinitionError
from remuda.steps.language.lines import MAX_BYTES, export_texts, read_delegated, read_lines

MOST_MASK_BYTES = 1024 * 1024
MOST_MASKS = 10_000
"""Limit of one step: they are kept in memory and searched for in all output."""


class OutputError(DefinitionError):
    """Raised if an output or export file of a step is invalid or not a regular file."""


def read_outputs(path: Path) -> dict[str, Any]:
    return read_lines(_read(path, "output file"))


def read_result_of_another(path: Path) -> Mapping[str, Any]:
    return read_delegated(_read(path, "output file"))


def read_exports(path: Path) -> dict[str, str]:
    return export_texts(read_lines(_read(path, "export file"), what="export file"))


def read_masks(path: Path | str, offset: int, *, rest: bool = False) -> tuple[list[str], int]:
    """Return the texts to mask, one per line, from the byte `offset` of a mask file on, and the offset after them. An
    unfinished last line is returned only if `rest` is true, or the file has reached the size limit."""
    most = MOST_MASK_BYTES - offset
    try:
        data = _read(path, "mask file", offset, most=most)
    except OutputError:
        return [], offset
    end = len(data) if rest or len(data) >= most else data.rfind(b"\n") + 1
    lines = data[:end].decode("utf-8", "surrogateescape").split("\n")
    return [line.rstrip("\r") for line in lines if line.strip()], offset + end


def read_failure(path: Path) -> str | None:
    """Return the error that a built-in program has written to the file `path` because it could not run the step's
    command in an environment; None if there is no such file. The job cannot write this file."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return "the program that runs commands in the environment failed"
    return str(content.get("error") if isinstance(content, dict) else content)


def _read(path: Path | str, what: str, offset: int = 0, *, most: int = MAX_BYTES + 1) -> bytes:
    """Read up to `most` bytes of a regular file from `offset` on; empty if it does not exist. The default is one byte
    more than allowed, so that the caller notices a file that is too large. `what` names the file in the OutputError."""
    try:
        file = open_plain(path)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise OutputError(f"{what}: {error.strerror}; it has to be a plain file") from None
    with close_after(file):
        data = b""
        while len(data) < most and (piece := os.pread(file, most - len(data), offset + len(data))):
            data += piece
        return data
