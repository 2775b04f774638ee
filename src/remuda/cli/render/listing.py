"""Prints responses of a cell or a manager: tables, JSON, times. Used by many commands."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from remuda.localrun.render.columns import align
from remuda.localrun.render.words import on_one_line


def print_json(value: object) -> None:
    import msgspec  # most commands have imported it by now

    print(json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False))


def print_table(table: Sequence[tuple[str, ...]]) -> None:
    for line in align([tuple(map(on_one_line, row)) for row in table]):
        print(line)


def local_time(at: str | float | None) -> str:
    if not at:
        return ""
    time = datetime.fromisoformat(at) if isinstance(at, str) else datetime.fromtimestamp(at, UTC)
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
