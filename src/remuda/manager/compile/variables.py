"""Variables of a job: `$NAME` and `${NAME}` in values, and the variables that the runner itself adds.

Pure. A value marked raw stays as it is. An unknown name becomes nothing and `$$` a dollar sign, as in GitLab. A
reference that leads back to itself, or a value that would outgrow the limit, stays as written.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from remuda.wire.runner_api import Variable

LONGEST_VALUE: Final = 1 << 20
DEEPEST: Final = 32

_REFERENCE = re.compile(r"\$(?:\$|\{([^{}]*)\}|([A-Za-z_][A-Za-z0-9_]*)|[*#@!?0-9-])")


class Variables:
    """The variables of one job; a later one wins over an earlier one of the same name."""

    def __init__(self, variables: Iterable[Variable]) -> None:
        self._by_key = {variable.key: variable for variable in variables}
        self._expanded: dict[str, str] = {}
        self._growing: list[str] = []  # variables whose values are being made, the outermost first

    def expanded(self) -> list[Variable]:
        """Each variable once, values expanded."""
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
        """The same with other values for some names, which stay as they are."""
        return Variables([*self._by_key.values(), *variable_list(values)])

    def __getitem__(self, key: str) -> str:
        """A variable's value; empty when there is none."""
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
        """A text with its references replaced."""
        if "$" not in text:
            return text
        room = LONGEST_VALUE

        def value(match: re.Match[str]) -> str:
            nonlocal room
            found = self._referenced(match)
            room -= len(found)
            return found if room >= 0 else ""

        grown = _REFERENCE.sub(value, text)
        return grown if room >= 0 else text

    def _referenced(self, match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        key = match[1] if match[1] is not None else match[2]
        variable = self._by_key.get(key) if key else None
        if variable is None:
            return ""
        if variable.file:
            return f"${key}"  # a path that only the agent knows; a shell finds it in the environment
        if key not in self._expanded and (key in self._growing or len(self._growing) > DEEPEST):
            return match[0]
        return self[key]


def variable_list(values: Mapping[str, str]) -> list[Variable]:
    """Plain variables."""
    return [Variable(key=key, value=value, raw=True) for key, value in values.items()]
