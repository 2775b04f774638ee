"""The type `Fact`: how Remuda treats one configuration key (works, differs, ignored, refused), with a description."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    WORKS = "works"  # as gitlab-runner does it, or Remuda's own key
    DIFFERS = "differs"  # has an effect, another one than with gitlab-runner
    IGNORED = "ignored"  # accepted without effect
    REFUSED = "refused"  # the file is not used: ignoring the key would not be safe, or nothing could work
    UNKNOWN = "unknown"  # neither gitlab-runner's nor Remuda's


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """How Remuda treats a configuration key, and the text about it for the author of the file."""

    verdict: Verdict
    about: str
    """works: what the key does; differs: that, and what it does in gitlab-runner; ignored: what happens instead;
    refused: why, and what to do."""
    default: str = ""
    is_own: bool = False
    """Remuda's own key, which gitlab-runner does not have."""
    is_open: bool = False
    """The names below it are free: labels, variables, options of a driver."""
    unless: Callable[[Any], "Fact | None"] | None = None
    """Returns another fact for some values."""

    def of(self, value: Any) -> "Fact":
        """Return how Remuda treats the key with this value: this fact, unless `unless` returns another one."""
        return self if self.unless is None else self.unless(value) or self


Facts = Mapping[str, Fact]
UNSAFE = "is not supported, and ignoring it would not be safe: "
"""Begins the text of a key that is refused if it is set."""


def works(about: str, default: str = "", *, is_open: bool = False) -> Fact:
    return Fact(verdict=Verdict.WORKS, about=about, default=default, is_open=is_open)


def own(about: str, default: str = "", *, is_open: bool = False) -> Fact:
    return Fact(verdict=Verdict.WORKS, about=about, default=default, is_own=True, is_open=is_open)


def differs(about: str, default: str = "", *, there: str, is_open: bool = False) -> Fact:
    """Return a fact about a key with another effect than in gitlab-runner. `there`: what it does in gitlab-runner."""
    return Fact(verdict=Verdict.DIFFERS, about=f"{about}. In gitlab-runner: {there}", default=default, is_open=is_open)


def ignored(about: str, *, is_open: bool = False) -> Fact:
    return Fact(verdict=Verdict.IGNORED, about=about, is_open=is_open)


def refused(about: str) -> Fact:
    return Fact(verdict=Verdict.REFUSED, about=about)


def refused_if_set(about: str) -> Fact:
    """Return a fact about a key that is refused unless its value is empty or false. `about` says why."""
    unset = works("not set", "none")
    why = f"{UNSAFE}{about}"
    return replace(refused(why), unless=lambda value: None if value else unset)
