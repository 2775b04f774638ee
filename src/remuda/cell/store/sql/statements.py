"""Generates SQL for the tables of a cell, which SQLite and PostgreSQL both understand, with numbered parameters
(`$1`)."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from remuda.cell.store.ports.database import Table
from remuda.cell.values import Page


@lru_cache(maxsize=1024)
def insert(
    table: Table[Any], columns: tuple[str, ...], *, conflict: Literal["", "ignore", "replace"] = "", inside: str = ""
) -> str:
    """Return the SQL that adds a row. If its key exists, it fails (`conflict` is empty), ignores the new row (`ignore`)
    or replaces the old one (`replace`). With `inside`, that table must have a row with the id in the last parameter."""
    names, values = ", ".join(columns), _placeholders(len(columns))
    if table.is_numbered:
        source = f"(number, {names}) SELECT coalesce(max(number), 0) + 1, {values} FROM {table.name} WHERE true"
    elif inside:
        source = f"({names}) SELECT {values} FROM {inside} WHERE id = ${len(columns) + 1}"
    else:
        source = f"({names}) VALUES ({values})"
    sql = f"INSERT INTO {table.name} {source}"
    if conflict == "ignore":
        return f"{sql} ON CONFLICT DO NOTHING"
    if conflict == "replace":
        changed = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in table.key)
        return f"{sql} ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {changed}"
    return sql


@lru_cache(maxsize=1024)
def update(table: Table[Any], columns: tuple[str, ...]) -> str:
    """Return the SQL that replaces the row with the same key. Its parameters are the values of `columns`."""
    numbers = {name: f"{name} = ${number}" for number, name in enumerate(columns, 1)}
    changed = ", ".join(text for name, text in numbers.items() if name not in table.key)
    return f"UPDATE {table.name} SET {changed} WHERE {' AND '.join(numbers[name] for name in table.key)}"


@lru_cache(maxsize=1024)
def select(table: Table[Any], conditions: tuple[str, ...], order: tuple[str, ...], *, has_limit: bool) -> str:
    """Return the SQL that selects rows that meet all `conditions`; with `has_limit` its last parameter is the limit."""
    sql = f"SELECT {table.column_list} FROM {table.name}"
    if conditions:
        sql += f" WHERE {' AND '.join(conditions)}"
    if order:
        sql += f" ORDER BY {', '.join(order)}"
    return sql + f" LIMIT ${_last_number(conditions) + 1}" if has_limit else sql


def _last_number(conditions: Sequence[str]) -> int:
    return sum("$" in condition for condition in conditions)


def _placeholders(count: int) -> str:
    return ", ".join(f"${number}" for number in range(1, count + 1))


def select_page(
    table: str,
    where: Mapping[str, Any],
    page: Page,
    order: str,
    states: Sequence[str] = (),
    *,
    limits_parts: bool,
) -> tuple[str, str, list[Any]]:
    """Return SQL that counts the rows that meet all conditions of `where` (with the values of `?`), SQL that reads one
    page of them, and the parameters of both. Rows in several `states` are selected per state and merged, to use the
    index by state. `limits_parts` adds a limit to each part; without it PostgreSQL reads all rows of the state."""
    values: list[Any] = []
    parts = []
    where = {**where, **page.bounds}
    for conditions in [{**where, "state = ?": state} for state in dict.fromkeys(states)] or [where]:
        texts = []
        for condition, value in conditions.items():
            text = condition
            if value is not None:
                values.append(value)
                text = condition.replace("?", f"${len(values)}")
            texts.append(text)
        parts.append(f"FROM {table} WHERE {' AND '.join(texts) or 'true'}")
    count = " UNION ALL ".join(f"SELECT count(*) {part}" for part in parts)
    order, offset = page.order or order, (page.number - 1) * page.size
    if len(parts) == 1:
        sql = f"SELECT body {parts[0]}"
    elif limits_parts:
        limit = f"ORDER BY {order} LIMIT {offset + page.size}"
        sql = " UNION ALL ".join(f"(SELECT body, id {part} {limit})" for part in parts)
    else:
        sql = " UNION ALL ".join(f"SELECT body, id {part}" for part in parts)
    return count, f"{sql} ORDER BY {order} LIMIT {int(page.size)} OFFSET {int(offset)}", values
