"""Versions of functions, and the tags under which an image of a version is published. No I/O.

A release moves the tags of its version, such as `1.2.3`, `1.2`, `1` and `latest`, unless a newer release has them. A
pre-release, such as `1.3.0-rc1`, has only its own tag."""

import re
from collections.abc import Iterable

from remuda.stdsteps.common.errors import StepError

_VERSION = re.compile(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})(-[0-9A-Za-z.-]{1,80})?", re.ASCII)
LATEST = "latest"


def check_version(version: str) -> None:
    """Raise StepError if this is not a version that can be a tag."""
    if not _VERSION.fullmatch(version):
        raise StepError(f"version {version[:100]!r}: must have three numbers, such as 1.2.3 or, not final, 1.3.0-rc1")


def choose_tags(version: str, existing: Iterable[str]) -> list[str]:
    """Return the tags for an image of a valid version, its own first. `existing`: all tags of the repository."""
    match = _VERSION.fullmatch(version)
    assert match is not None
    if match[4]:
        return [version]
    own = _numbers(match)
    releases = [_numbers(found) for tag in existing if (found := _VERSION.fullmatch(tag)) and not found[4]]
    tags = [version]
    for parts, tag in ((2, f"{own[0]}.{own[1]}"), (1, f"{own[0]}"), (0, LATEST)):
        if all(release <= own for release in releases if release[:parts] == own[:parts]):
            tags.append(tag)
    return tags


def _numbers(match: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(part) for part in match.groups()[:3])
