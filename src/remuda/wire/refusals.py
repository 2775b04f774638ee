"""Says in words why a cell refused a request, and what to do next: without methods, paths and status codes. Pure.

The cell answers in GitLab's form (`404 Job Not Found`, `{"message": {"key": ["has already been taken"]}}`). What the
request was about is read from its path."""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

_STATUS = re.compile(r"^\d{3} [A-Z][A-Za-z ]*?(?: - |$)")
_NOT_FOUND = re.compile(r"^404 (?P<what>[A-Z][A-Za-z ]*?) Not Found$", re.IGNORECASE)
_NOUNS = {
    "projects": "project",
    "groups": "group",
    "users": "user",
    "jobs": "job",
    "pipelines": "pipeline",
    "pipeline_schedules": "schedule",
    "variables": "variable",
    "runners": "runner",
    "access_tokens": "token",
    "personal_access_tokens": "token",
    "members": "member",
    "organizations": "organization",
    "artifacts": "file",
}
"""Collections in paths of the API, and the noun for one object of them."""
_LISTS = {
    "project": "remuda project list",
    "group": "remuda group list",
    "user": "remuda user list",
    "job": "remuda job list",
    "pipeline": "remuda pipeline list",
    "schedule": "remuda schedule list",
    "variable": "remuda variable list",
    "runner": "remuda runner list",
    "token": "remuda token list",
}
"""Commands that list the objects with this noun."""


def objects_in(path: str) -> dict[str, str]:
    """Return the objects that a path of the API names, outermost first: `{"project": "root/shop", "job": "7"}`."""
    words = path.partition("?")[0].split("/")
    return {
        _NOUNS[collection]: unquote(name)
        for collection, name in pairwise(words)
        if collection in _NOUNS and name and name not in ("all", "managers")
    }


def explain_refusal(url: str, path: str, status: int, answer: Mapping[str, Any]) -> str:
    """Return the message for a refused request: what is wrong, and the next step."""
    reason = reason_of(answer)
    objects = objects_in(path)
    subject = f"{list(objects.items())[-1][0]} {list(objects.items())[-1][1]}" if objects else ""
    match status:
        case 404:
            return _explain_missing(url, reason, objects)
        case 403:
            said = without_status(reason)
            about = f" ({subject})" if subject else ""
            if not said or said == "insufficient_scope":
                return (
                    f"your token may not do that{about} on the cell at {url}: it lacks the role or the scope; use "
                    "another one (`remuda login`), or ask a maintainer or an administrator"
                )
            return f"you may not do that{about}: {said}"
        case 413:
            return f"too large for the cell at {url}: {without_status(reason) or 'send less'}"
        case 405:
            return f"the cell at {url} cannot do that; does it have the same version as this command?"
        case _:
            said = without_status(reason)
            return said or f"the cell at {url} refused it without a reason; its log says why"


def _explain_missing(url: str, reason: str, objects: Mapping[str, str]) -> str:
    match = _NOT_FOUND.match(reason)
    what = match["what"].lower() if match else ""
    if not match and (said := without_status(reason)):
        return said
    noun = next((noun for noun in objects if noun == what or what.endswith(f" {noun}")), "")
    if not what and objects:
        noun = list(objects)[-1]
    if noun:
        advice = f"; `{_LISTS[noun]}` lists those that you may see" if noun in _LISTS else ""
        return f"there is no {noun} {objects[noun]} on the cell at {url}, or you may not see it{advice}"
    owner = " of ".join(f"{noun} {name}" for noun, name in reversed(list(objects.items())))
    return f"{owner} has no {what}" if what and owner else f"there is no {what or 'such thing'} on the cell at {url}"


def reason_of(answer: Mapping[str, Any]) -> str:
    """Return the message of an error answer on one line, also if it is given for each field."""
    text = answer.get("message") or answer.get("error") or ""
    if isinstance(text, Mapping):
        return "; ".join(_about_field(name, _join(values)) for name, values in text.items())
    return _join(text)


def without_status(reason: str) -> str:
    """Remove `409 Conflict - ` and the like from the beginning of a cell's message."""
    return _STATUS.sub("", reason).strip()


def _about_field(name: str, reason: str) -> str:
    words = name.replace("_", " ")
    return reason if name == "base" or reason.startswith((words, name)) else f"{words} {reason}"


def _join(values: object) -> str:
    return ", ".join(map(str, values)) if isinstance(values, list | tuple) else str(values)
