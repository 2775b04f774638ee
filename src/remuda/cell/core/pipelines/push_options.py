"""What the options of a push (`git push -o`) ask for, by GitLab's names.

Decided here: which options there are and how their values are read. An option that is none of them, or that makes no
sense, asks for nothing, as in GitLab: a push is not refused for it. Pure; `remuda.cell.projects.projects` calls it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.pipeline.predefined_variables import SOURCE_BRANCH, TARGET_BRANCH

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}", re.ASCII)
_MERGE_REQUEST = {
    "merge_request.target": TARGET_BRANCH,
    "merge_request.source": SOURCE_BRANCH,
    "merge_request.title": "CI_MERGE_REQUEST_TITLE",
    "merge_request.description": "CI_MERGE_REQUEST_DESCRIPTION",
}


class PushOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a push asks for."""

    skip: bool = False
    variables: Mapping[str, str] = {}
    inputs: Mapping[str, Any] = {}
    merge_request: Mapping[str, str] = {}
    """Predefined variables that say what the merge request is."""
    ignored: tuple[str, ...] = ()
    """Options with a known name and a value that makes no sense."""


def read_push_options(options: Sequence[str]) -> PushOptions:
    """The sense of a push's options; of two for the same thing the last one counts."""
    skip = False
    variables: dict[str, str] = {}
    inputs: dict[str, Any] = {}
    merge_request: dict[str, str] = {}
    ignored: list[str] = []
    for option in options:
        key, _, given = option.partition("=")
        name, is_pair, value = given.partition("=")
        if key == "ci.skip":
            skip = True
        elif key in _MERGE_REQUEST and given:
            merge_request[_MERGE_REQUEST[key]] = given
        elif key == "ci.variable" and is_pair and _NAME.fullmatch(name) and "\0" not in value:
            variables[name] = value
        elif key == "ci.input" and is_pair and name:
            inputs[name] = _value(value)
        elif key in (*_MERGE_REQUEST, "ci.variable", "ci.input"):
            ignored.append(option)
    return PushOptions(
        skip=skip, variables=variables, inputs=inputs, merge_request=merge_request, ignored=tuple(ignored)
    )


def _value(text: str) -> Any:
    """A number, true, false or a list where it is written as one; any other text is text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
