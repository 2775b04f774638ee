"""Expands `$NAME` and `${NAME}` in the values of a job's variables, as GitLab does. Pure code without I/O.

A raw value is not expanded, an unknown name becomes an empty text, and `$$` becomes a dollar sign. A circular
reference, or a value that would exceed the length limit, is not expanded."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from remuda.wire.runner_api import Variable

LONGEST_VALUE: Final = 1 << 20
DEEPEST: Final = 32
TRUE_WORDS: Final = ("true", "t", "1")
"""Values of a variable that mean true, as in gitlab-runner, in any case."""

_REFERENCE = re.compile(r"\$(?:\$|\{([^{}]*)\}|([A-Za-z_][A-Za-z0-9_]*)|[*#@!?0-9-])")


class Variables:
    """The variables of one job, and their expansion. If a name occurs several times, the last variable is used."""

    def __init__(self, variables: Iterable[Variable]) -> None:
        self._by_key = {variable.key: variable for variable in variables}
        self._expanded: dict[str, str] = {}
        self._growing: list[str] = []  # names being expanded, the outermost first

    def expand_all(self) -> list[Variable]:
        return [
            Variable(
                key=variable.key,
                value=self[variable.key],
                public=variable.public,
                file=variable.file,
                masked=variable.masked,
                raw=True,
            )
            for variable in self._by_key.values()
        ]

    def with_values(self, values: Mapping[str, str]) -> "Variables":
        """Return a copy in which the variables named in `values` have these values, which are not expanded."""
        return Variables([*self._by_key.values(), *variable_list(values)])

    def __getitem__(self, key: str) -> str:
        """Return the expanded value of a variable; empty if it does not exist."""
        variable = self._by_key.get(key)
        if variable is None:
            return ""
        if variable.raw or "$" not in variable.value:
            return variable.value
        if key not in self._expanded:
            self._growing.append(key)
            self._expanded[key] = self.expand(variable.value)
            self._growing.pop()
        return self._expanded[key]

    def expand(self, text: str) -> str:
        """Replace `$NAME` and `${NAME}` by values, except file variables: only the agent knows the file's path."""
        if "$" not in text:
            return text
        room = LONGEST_VALUE

        def value(match: re.Match[str]) -> str:
            nonlocal room
            replacement = self._resolve(match)
            room -= len(replacement)
            return replacement if room >= 0 else ""

        expanded = _REFERENCE.sub(value, text)
        return expanded if room >= 0 else text

    def _resolve(self, match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        key = match[1] if match[1] is not None else match[2]
        variable = self._by_key.get(key) if key else None
        if variable is None:
            return ""
        if variable.file:
            return f"${key}"  # only the agent knows the path; a shell resolves it
        if key not in self._expanded and (key in self._growing or len(self._growing) > DEEPEST):
            return match[0]
        return self[key]


def variable_list(values: Mapping[str, str]) -> list[Variable]:
    """Convert names and values to variables whose values are not expanded."""
    return [Variable(key=key, value=value, raw=True) for key, value in values.items()]
