"""References to plugins in a registry: `[[registry/]repository/]name[:constraint]`. Pure.

Rules are those of GitLab's fleeting-artifact, so each tool finds what the other has installed. Versions are semantic
versions without build metadata; a pre-release fits only a constraint that names it in full."""

import re
from collections.abc import Iterable
from typing import Any

from remuda.fleeting.errors import PermanentError
from remuda.lib.dataclass import dataclass

REGISTRY = "registry.gitlab.com"
REPOSITORY = "gitlab-org/fleeting/plugins"
LATEST = "latest"
_NUMBER = r"(?:0|[1-9][0-9]{0,8})"
_PRE = r"-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)"
_VERSION = re.compile(rf"v?({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:{_PRE})?")
_CONSTRAINT = re.compile(rf"({_NUMBER})(?:\.({_NUMBER})(?:\.({_NUMBER})(?:{_PRE})?)?)?")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?")
_PART = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    numbers: tuple[int, ...]
    pre: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return ".".join(str(number) for number in self.numbers) + (f"-{'.'.join(self.pre)}" if self.pre else "")

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key of versions: a pre-release comes before its release, and in pre-releases numbers before words."""
        parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre)
        return (self.numbers, not self.pre, parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """Which versions a reference accepts: all releases (`latest`), those that start with `1` or `1.2`, or only one."""

    numbers: tuple[int, ...] = ()
    pre: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return Version(numbers=self.numbers, pre=self.pre).text or LATEST

    def fits(self, version: Version) -> bool:
        return version.pre == self.pre and version.numbers[: len(self.numbers)] == self.numbers

    def best(self, versions: Iterable[Version]) -> Version | None:
        return max(
            (version for version in versions if self.fits(version)), key=lambda version: version.order, default=None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Registry, repository and accepted versions of a plugin, with all defaults filled in."""

    registry: str
    repository: str
    """Ends with the plugin's name."""
    constraint: Constraint

    @property
    def name(self) -> str:
        return self.repository.rpartition("/")[2]

    @property
    def place(self) -> str:
        """REGISTRY/REPOSITORY, which is also the path of the plugin's versions in the plugin folder."""
        return f"{self.registry}/{self.repository}"

    @property
    def text(self) -> str:
        return f"{self.place}:{self.constraint.text}"

    @property
    def short(self) -> str:
        """Return a short text for users: no version, and no registry and repository if they are the defaults."""
        return self.place.removeprefix(f"{REGISTRY}/").removeprefix(f"{REPOSITORY}/")


def parse_version(text: str) -> Version | None:
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    major, minor, patch, pre = match.groups()
    return Version(numbers=(int(major), int(minor), int(patch)), pre=tuple(pre.split(".")) if pre else ())


def parse_reference(text: str) -> Reference:
    """Parse a reference to a plugin. Raises PermanentError, which says what is wrong with the text."""
    path, colon, constraint = text.rpartition(":")
    if not colon or "/" in constraint:  # a colon before a slash belongs to a port
        path, constraint = text, LATEST
    first, slash, rest = path.partition("/")
    if not slash:
        registry, repository = REGISTRY, f"{REPOSITORY}/{path}"
    elif "." in first or ":" in first:
        registry, repository = first, rest
    else:
        registry, repository = REGISTRY, path
    if not _HOST.fullmatch(registry) or not all(_PART.fullmatch(part) for part in repository.split("/")):
        raise PermanentError(
            f"{text!r} names no plugin; write NAME, NAME:VERSION or REGISTRY/REPOSITORY/NAME:VERSION in lower case"
        )
    return Reference(registry=registry, repository=repository, constraint=_constraint(constraint))


def _constraint(text: str) -> Constraint:
    if text == LATEST:
        return Constraint()
    match = _CONSTRAINT.fullmatch(text)
    if match is None:
        raise PermanentError(f"{text!r} is no version of a plugin; write latest, 1, 1.2, 1.2.3 or 1.2.3-rc.1")
    *numbers, pre = match.groups()
    return Constraint(
        numbers=tuple(int(number) for number in numbers if number is not None), pre=tuple(pre.split(".")) if pre else ()
    )


def folder_name(version: Version) -> str:
    """Name of a version's folder. Capitals are escaped as by GitLab's tool, for case-insensitive file systems."""
    return re.sub("[A-Z]", lambda letter: f"!{letter[0].lower()}", version.text)


def version_of_folder(name: str) -> Version | None:
    return parse_version(re.sub("!([a-z])", lambda letter: letter[1].upper(), name))
