"""What a plugin is called where versions of it can be installed: `[[registry/]repository/]name[:constraint]`. Pure.

The defaults and the rules are those of upstream's fleeting-artifact, so both tools find what either has installed.
Versions are semantic ones without build metadata; a pre-release fits only a constraint that names it in full. `finding`
and `installing` use this.
"""

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
    """Of a plugin."""

    numbers: tuple[int, ...]
    pre: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return ".".join(str(one) for one in self.numbers) + (f"-{'.'.join(self.pre)}" if self.pre else "")

    @property
    def order(self) -> tuple[Any, ...]:
        """To sort by: a pre-release comes before its release, numbers before words."""
        parts = tuple((0, int(one), "") if one.isdigit() else (1, 0, one) for one in self.pre)
        return (self.numbers, not self.pre, parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """Which versions will do: all (`latest`), `1`, `1.2`, or one of them."""

    numbers: tuple[int, ...] = ()
    pre: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return Version(numbers=self.numbers, pre=self.pre).text or LATEST

    def fits(self, version: Version) -> bool:
        return version.pre == self.pre and version.numbers[: len(self.numbers)] == self.numbers

    def best(self, versions: Iterable[Version]) -> Version | None:
        """The highest that fits."""
        return max((one for one in versions if self.fits(one)), key=lambda one: one.order, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A plugin in a registry, whole."""

    registry: str
    repository: str
    """With the plugin's own name at the end."""
    constraint: Constraint

    @property
    def name(self) -> str:
        """The plugin's own."""
        return self.repository.rpartition("/")[2]

    @property
    def place(self) -> str:
        """Without the constraint: also the folder that its versions are in."""
        return f"{self.registry}/{self.repository}"

    @property
    def text(self) -> str:
        return f"{self.place}:{self.constraint.text}"

    @property
    def short(self) -> str:
        """As somebody would write it, without what is the default anyway."""
        return self.place.removeprefix(f"{REGISTRY}/").removeprefix(f"{REPOSITORY}/")


def parse_version(text: str) -> Version | None:
    """None: it is none."""
    found = _VERSION.fullmatch(text)
    if found is None:
        return None
    major, minor, patch, pre = found.groups()
    return Version(numbers=(int(major), int(minor), int(patch)), pre=tuple(pre.split(".")) if pre else ())


def parse_reference(text: str) -> Reference:
    """PermanentError says what is wrong with it."""
    path, colon, asked = text.rpartition(":")
    if not colon or "/" in asked:  # a colon before a slash is that of a port
        path, asked = text, LATEST
    first, slash, rest = path.partition("/")
    if not slash:
        registry, repository = REGISTRY, f"{REPOSITORY}/{path}"
    elif "." in first or ":" in first:
        registry, repository = first, rest
    else:
        registry, repository = REGISTRY, path
    if not _HOST.fullmatch(registry) or not all(_PART.fullmatch(part) for part in repository.split("/")):
        raise PermanentError(
            f"{text!r} names no plugin; write NAME, NAME:VERSION or REGISTRY/REPOSITORY/NAME:VERSION in small letters"
        )
    return Reference(registry=registry, repository=repository, constraint=_constraint(asked))


def _constraint(text: str) -> Constraint:
    if text == LATEST:
        return Constraint()
    found = _CONSTRAINT.fullmatch(text)
    if found is None:
        raise PermanentError(f"{text!r} is no version of a plugin; write latest, 1, 1.2, 1.2.3 or 1.2.3-rc.1")
    *numbers, pre = found.groups()
    return Constraint(
        numbers=tuple(int(one) for one in numbers if one is not None), pre=tuple(pre.split(".")) if pre else ()
    )


def folder_name(version: Version) -> str:
    """Of a version; capital letters are written as upstream writes them, for file systems that know none."""
    return re.sub("[A-Z]", lambda found: f"!{found[0].lower()}", version.text)


def version_of_folder(name: str) -> Version | None:
    """None: the folder is no version's."""
    return parse_version(re.sub("!([a-z])", lambda found: found[1].upper(), name))
