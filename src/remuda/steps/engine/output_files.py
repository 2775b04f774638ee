"""What a step wrote into its output, export and mask files; what stands in the first two is read in `language.lines`.

The files lie where the step can do with them as it likes, also put links or pipes in their place; so only what is a
plain file is opened, and never through a link. Outputs and exports are read once, when the step's command has ended
well. Masks are lines of text, read whenever the step has printed something, so that a text which was asked for before
it was printed never shows.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remuda.lib.safe_paths import open_plain
from remuda.steps.errors import DefinitionError
from remuda.steps.language.lines import MAX_BYTES, export_texts, read_delegated, read_lines

MOST_MASK_BYTES = 1024 * 1024
MOST_MASKS = 10_000
"""Of one step: they are held in memory and looked for in everything that is printed."""


class OutputError(DefinitionError):
    """What the step wrote cannot be used."""


def read_outputs(path: Path) -> dict[str, Any]:
    """Names and values."""
    return read_lines(_read(path, "output file"))


def read_result_of_another(path: Path) -> Mapping[str, Any]:
    """The outputs in a step result that another runner wrote."""
    return read_delegated(_read(path, "output file"))


def read_exports(path: Path) -> dict[str, str]:
    """Names and texts for the environment of later steps."""
    return export_texts(read_lines(_read(path, "export file"), what="export file"))


def read_masks(path: Path | str, offset: int, *, rest: bool = False) -> tuple[list[str], int]:
    """Whole lines from a byte on, and where the next begins; `rest`: an unfinished line counts too, as does the one in
    which there is as much as there may be."""
    most = MOST_MASK_BYTES - offset
    try:
        data = _read(path, "mask file", offset, most=most)
    except OutputError:
        return [], offset
    end = len(data) if rest or len(data) >= most else data.rfind(b"\n") + 1
    lines = data[:end].decode("utf-8", "surrogateescape").split("\n")
    return [line.rstrip("\r") for line in lines if line.strip()], offset + end


def read_failure(path: Path) -> str | None:
    """What our own program says that could not do its part; the file is out of the job's reach."""
    try:
        told = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return "the program that runs commands in the environment failed"
    return str(told.get("error") if isinstance(told, dict) else told)


def _read(path: Path | str, what: str, offset: int = 0, *, most: int = MAX_BYTES + 1) -> bytes:
    """What is there, with one byte more than there may be."""
    try:
        file = open_plain(path)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise OutputError(f"{what}: {error.strerror}; it has to be a plain file") from None
    try:
        data = b""
        while len(data) < most and (piece := os.pread(file, most - len(data), offset + len(data))):
            data += piece
        return data
    finally:
        os.close(file)
