"""Reads and checks the inputs of a standard step."""

import json
import os
from typing import Any

from remuda.stdsteps.common.errors import StepError


class Inputs:
    """The inputs of a step by name. Each method checks the type of an input, removes it here and returns it; one
    without a default is required. Raises StepError for wrong inputs. Call `done` at the end: it refuses the rest."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = dict(values)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._take(name, default)
        if not isinstance(value, str):
            raise StepError(f"input {name}: must be a string")
        return value

    def number(self, name: str, default: int) -> int:
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise StepError(f"input {name}: must be a whole number, 0 or more")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._take(name, default)
        if not isinstance(value, bool):
            raise StepError(f"input {name}: must be true or false")
        return value

    def texts(self, name: str, default: list[str]) -> list[str]:
        value = self._take(name, default)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise StepError(f"input {name}: must be a list of strings")
        return value

    def groups(self, name: str) -> list["Inputs"]:
        return [Inputs(item) for item in self.mappings(name)]

    def mapping(self, name: str) -> dict[str, Any]:
        """Return the input `name`, a mapping, without a check of its contents; empty if the input is missing."""
        value = self._take(name, {})
        if not isinstance(value, dict):
            raise StepError(f"input {name}: must be a mapping")
        return value

    def mappings(self, name: str) -> list[dict[str, Any]]:
        value = self._take(name, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise StepError(f"input {name}: must be a list of mappings")
        return value

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        """Return the input `name`, which must be one of the choices; the first one if the input is missing or empty."""
        value = self.text(name, choices[0]) or choices[0]
        if value not in choices:
            raise StepError(f"input {name}: must be one of {', '.join(choices)}, not {value}")
        return value

    def done(self) -> None:
        """Raise StepError if there are inputs that no method has read: the step does not know them."""
        if self._values:
            raise StepError(f"unknown inputs: {', '.join(sorted(self._values))}")

    def _take(self, name: str, default: Any) -> Any:
        value = self._values.pop(name, None)
        if value is None:
            value = default
        if value is None:
            raise StepError(f"input {name}: required, but missing")
        return value


def read_inputs() -> Inputs:
    path = os.environ.get("REMUDA_INPUTS")
    if not path:
        raise StepError("REMUDA_INPUTS is not set; only the step runner can start standard steps")
    try:
        # The job can replace the file by a link.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            values = json.loads(file.read())
    except (OSError, ValueError) as error:
        raise StepError(f"the inputs in {path} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise StepError(f"the inputs in {path} are not a mapping")
    return Inputs(values)
