"""What commands share that ask a cell and show its answer: the connection, tables, JSON, times.

Nothing is decided here but the form. `remuda.cli.job` and `remuda.cli.runner` use it.
"""

import json
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from remuda.cli.options import data_folder

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

_T = TypeVar("_T")


async def with_client(url: str | None, data: Path | None, ask: "Callable[[UserClient], Awaitable[_T]]") -> _T:
    """What a cell answers; which cell is asked, and with which token, is decided in `remuda.cli.cell_access`."""
    from remuda.cli.cell_access import find, stored
    from remuda.wire.user_client import UserClient

    access = find(url=url, kept=stored(data_folder(data)), environment=os.environ)
    async with UserClient(access.url, access.token) as client:
        return await ask(client)


def print_json(value: object) -> None:
    """A value as the cell told it."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def on_one_line(text: str) -> str:
    """A text with names that others chose: no line break in it, and nothing that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def print_table(given: Sequence[tuple[str, ...]]) -> None:
    """Rows under each other; the first one has the headings."""
    rows = [tuple(map(on_one_line, row)) for row in given]
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def local_time(stamp: str | None) -> str:
    """A time of the API in the reader's time zone."""
    return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M:%S") if stamp else ""
