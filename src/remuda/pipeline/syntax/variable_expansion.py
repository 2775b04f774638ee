"""Expands `$NAME` and `${NAME}` in texts that are needed before jobs run: include paths, names, patterns of rules.

`$$` is a plain `$`. Values may contain further variables; a circular reference is left as it is written. An
expansion takes at most `MAX_LOOKUPS` lookups, and its result has at most `MAX_EXPANDED` characters."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

MAX_EXPANDED = 64 * 1024
MAX_LOOKUPS = 10_000

_REFERENCE = re.compile(r"\$\$|\$(?P<name>[A-Za-z_]\w*)|\$\{(?P<braced>[A-Za-z_]\w*)\}", re.ASCII)


class ExpansionError(Exception):
    """A text becomes too long, or its expansion takes too many lookups."""

    def __init__(self) -> None:
        super().__init__(f"is longer than {MAX_EXPANDED} characters with its variables expanded, or takes too long")


class Expansion:
    """Expands variables in texts, except in the values of `raw` variables. `keep_unknown`: leave unknown variables as
    written instead of replacing them by nothing. `one_budget`: `MAX_LOOKUPS` holds for all texts together, not for
    each."""

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
        """Replace the variables by their values. Raises `ExpansionError` if a limit is exceeded."""
        self._lookups = self._lookups if self._one_budget else 0
        return self._expand(text, ()) if "$" in text else text

    def _expand(self, text: str, inside: tuple[str, ...]) -> str:
        parts: list[str] = []
        length = end = 0
        for match in _REFERENCE.finditer(text):
            parts += (text[end : match.start()], self._value(match, inside))
            end = match.end()
            length += len(parts[-1]) + len(parts[-2])
            if length > MAX_EXPANDED:
                raise ExpansionError
        parts.append(text[end:])
        if length + len(parts[-1]) > MAX_EXPANDED:
            raise ExpansionError
        return "".join(parts)

    def _value(self, match: re.Match[str], inside: tuple[str, ...]) -> str:
        name = match["name"] or match["braced"]
        if name is None:
            return "$"
        self._lookups += 1
        if self._lookups > MAX_LOOKUPS:
            raise ExpansionError
        value = self._variables.get(name)
        if value is None:
            return match[0] if self._keep_unknown else ""
        if name in self._raw or "$" not in value:
            return value
        if name in inside or len(inside) > 50:
            return match[0]
        return self._expand(value, (*inside, name))


def expand(text: str, variables: Mapping[str, str], *, raw: Collection[str] = ()) -> str:
    """Replace variables by their values, unknown ones by nothing. Raises `ExpansionError` if a limit is exceeded."""
    return Expansion(variables, raw=raw).expand(text)
