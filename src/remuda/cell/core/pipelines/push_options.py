"""Reads the options of a push (`git push -o`), which have GitLab's names. Invalid ones have no effect, and neither have
unknown ones, since GitLab has more; but all that begin with `ci.` are known here."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.cell.values.pipeline_requests import ListChange
from remuda.pipeline.predefined_variables import (
    ASSIGNEES,
    DESCRIPTION,
    DRAFT,
    LABELS,
    MILESTONE,
    SOURCE_BRANCH,
    TARGET_BRANCH,
    TITLE,
    mark_draft,
)
from remuda.pipeline.syntax.known_keys import nearest

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}", re.ASCII)
_MERGE_REQUEST = {
    "merge_request.target": TARGET_BRANCH,
    "merge_request.source": SOURCE_BRANCH,
    "merge_request.title": TITLE,
    "merge_request.description": DESCRIPTION,
    "merge_request.milestone": MILESTONE,
}
_LISTS = {
    "merge_request.label": (LABELS, "add"),
    "merge_request.unlabel": (LABELS, "remove"),
    "merge_request.assign": (ASSIGNEES, "add"),
    "merge_request.unassign": (ASSIGNEES, "remove"),
}
_CI = ("ci.skip", "ci.variable", "ci.input")
_KNOWN = (*_MERGE_REQUEST, *_LISTS, *_CI)


class PushOptions(msgspec.Struct, frozen=True, kw_only=True):
    skip: bool = False
    variables: Mapping[str, str] = {}
    inputs: Mapping[str, Any] = {}
    merge_request: Mapping[str, str] = {}
    """Predefined variables of the merge request."""
    merge_request_lists: Mapping[str, ListChange] = {}
    """Changes of its labels and assignees."""
    ignored: tuple[str, ...] = ()
    """Options with a known name and an invalid value, and unknown ones that begin with `ci.`."""


def read_push_options(options: Sequence[str]) -> PushOptions:
    """Parse the options of a push. If an option, variable or input is given twice, the last value is used."""
    skip = False
    variables: dict[str, str] = {}
    inputs: dict[str, Any] = {}
    merge_request: dict[str, str] = {}
    lists: dict[str, dict[str, list[str]]] = {}
    ignored: list[str] = []
    for option in options:
        key, _, argument = option.partition("=")
        name, is_pair, value = argument.partition("=")
        if key == "ci.skip":
            skip = True
        elif key in _MERGE_REQUEST and argument:
            merge_request[_MERGE_REQUEST[key]] = argument
        elif key == "merge_request.draft":
            merge_request[DRAFT] = "true"
        elif key in _LISTS and (names := [each.strip() for each in argument.split(",") if each.strip()]):
            variable, change = _LISTS[key]
            lists.setdefault(variable, {}).setdefault(change, []).extend(names)
        elif key == "ci.variable" and is_pair and _NAME.fullmatch(name) and "\0" not in value:
            variables[name] = value
        elif key == "ci.input" and is_pair and name:
            inputs[name] = _decode_input(value)
        elif key in _KNOWN or key.startswith("ci."):
            ignored.append(option)
    if DRAFT in merge_request and TITLE in merge_request:
        merge_request[TITLE] = mark_draft(merge_request[TITLE])
    return PushOptions(
        skip=skip,
        variables=variables,
        inputs=inputs,
        merge_request=merge_request,
        merge_request_lists={
            variable: ListChange(add=tuple(change.get("add", ())), remove=tuple(change.get("remove", ())))
            for variable, change in lists.items()
        },
        ignored=tuple(ignored),
    )


def why_ignored(option: str) -> str:
    """Return why an option of `PushOptions.ignored` has no effect."""
    key = option.partition("=")[0]
    if key in _KNOWN:
        return "its value is not valid"
    meant = nearest(key, _CI)
    return f"there is no such option; {meant}" if meant else "there is no such option"


def _decode_input(text: str) -> Any:
    """Decode the value of a pipeline input. A value that is valid JSON, such as a number or a list, is decoded; any
    other text is returned unchanged."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
