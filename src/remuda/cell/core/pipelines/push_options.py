"""Reads the options of a push (`git push -o`), which have GitLab's names; unknown and invalid ones have no effect."""

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
    skip: bool = False
    variables: Mapping[str, str] = {}
    inputs: Mapping[str, Any] = {}
    merge_request: Mapping[str, str] = {}
    """Predefined variables of the merge request."""
    ignored: tuple[str, ...] = ()
    """Options with a known name and an invalid value."""


def read_push_options(options: Sequence[str]) -> PushOptions:
    """Parse the options of a push. If an option, variable or input is given twice, the last value is used."""
    skip = False
    variables: dict[str, str] = {}
    inputs: dict[str, Any] = {}
    merge_request: dict[str, str] = {}
    ignored: list[str] = []
    for option in options:
        key, _, argument = option.partition("=")
        name, is_pair, value = argument.partition("=")
        if key == "ci.skip":
            skip = True
        elif key in _MERGE_REQUEST and argument:
            merge_request[_MERGE_REQUEST[key]] = argument
        elif key == "ci.variable" and is_pair and _NAME.fullmatch(name) and "\0" not in value:
            variables[name] = value
        elif key == "ci.input" and is_pair and name:
            inputs[name] = _decode_input(value)
        elif key in (*_MERGE_REQUEST, "ci.variable", "ci.input"):
            ignored.append(option)
    return PushOptions(
        skip=skip, variables=variables, inputs=inputs, merge_request=merge_request, ignored=tuple(ignored)
    )


def _decode_input(text: str) -> Any:
    """Decode the value of a pipeline input. A value that is valid JSON, such as a number or a list, is decoded; any
    other text is returned unchanged."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
