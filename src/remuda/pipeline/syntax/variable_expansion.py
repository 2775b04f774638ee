"""`$NAME` and `${NAME}` in texts that must be known before the jobs are: include paths, names, patterns of rules.

Decided here: what such a text becomes. `$$` is a plain `$`. A value may name further variables; one that leads back
to itself is left as it is written there. What scripts and images contain is expanded later, in the job's environment.

Invariant: no result is longer than `MAX_EXPANDED`, and none takes more than `MAX_LOOKUPS`, however variables name
each other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

MAX_EXPANDED = 64 * 1024
MAX_LOOKUPS = 10_000

_REFERENCE = re.compile(r"\$\$|\$(?P<name>[A-Za-z_]\w*)|\$\{(?P<braced>[A-Za-z_]\w*)\}", re.ASCII)


class ExpansionError(Exception):
    """The variables in a text make it too long."""

    def __init__(self) -> None:
        super().__init__(f"is longer than {MAX_EXPANDED} characters with its variables expanded, or takes too long")


class Expansion:
    """Expands texts with one set of variables. `raw`: names whose values are taken as they are.

    With `one_budget` all texts together may take `MAX_LOOKUPS`.
    """

    def __init__(
        self,
        variables: Mapping[str, str],
        *,
        raw: Collection[str] = (),
        keep_unknown: bool = False,
        one_budget: bool = False,
    ) -> None:
        self._variables = variables
        self._raw = raw
        self._keep_unknown = keep_unknown
        self._one_budget = one_budget
        self._lookups = 0

    def expand(self, text: str) -> str:
        """The text with its variables' values, or `ExpansionError`."""
        self._lookups = self._lookups if self._one_budget else 0
        return self._expand(text, ()) if "$" in text else text

    def _expand(self, text: str, inside: tuple[str, ...]) -> str:
        parts: list[str] = []
        length = at = 0
        for found in _REFERENCE.finditer(text):
            parts += (text[at : found.start()], self._value(found, inside))
            at = found.end()
            length += len(parts[-1]) + len(parts[-2])
            if length > MAX_EXPANDED:
                raise ExpansionError
        parts.append(text[at:])
        if length + len(parts[-1]) > MAX_EXPANDED:
            raise ExpansionError
        return "".join(parts)

    def _value(self, found: re.Match[str], inside: tuple[str, ...]) -> str:
        name = found["name"] or found["braced"]
        if name is None:
            return "$"
        self._lookups += 1
        if self._lookups > MAX_LOOKUPS:
            raise ExpansionError
        value = self._variables.get(name)
        if value is None:
            return found[0] if self._keep_unknown else ""
        if name in self._raw or "$" not in value:
            return value
        if name in inside or len(inside) > 50:
            return found[0]
        return self._expand(value, (*inside, name))


def expand(text: str, variables: Mapping[str, str], *, raw: Collection[str] = ()) -> str:
    """The text with its variables' values; a name that has none becomes nothing."""
    return Expansion(variables, raw=raw).expand(text)
