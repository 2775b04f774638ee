"""Checks the git options that a job sets by variables such as GIT_FETCH_EXTRA_FLAGS. No I/O. git may run with more
rights than the job, so only options are allowed that start no program and access no other repository. Names must be
written in full, because git accepts every unique prefix. An option that takes a value must have one, because git would
otherwise take the next argument, which the step added, as the value."""

from collections.abc import Iterable

from remuda.lib.dataclass import dataclass
from remuda.stdsteps.common.errors import StepError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one git command that a job is allowed to set: without a value (`plain`) and with one."""

    command: str
    plain: frozenset[str]
    with_value: frozenset[str]
    joins_letters: bool
    """True if letters may be joined (`-pq`), and a value may follow its letter directly (`-j4`)."""


FETCH = Options(
    command="git fetch",
    plain=frozenset(
        [
            "-4",
            "-6",
            "-P",
            "-a",
            "-f",
            "-k",
            "-n",
            "-p",
            "-q",
            "-t",
            "-u",
            "-v",
            "--append",
            "--atomic",
            "--force",
            "--ipv4",
            "--ipv6",
            "--keep",
            "--no-auto-gc",
            "--no-auto-maintenance",
            "--no-filter",
            "--no-progress",
            "--no-prune",
            "--no-prune-tags",
            "--no-recurse-submodules",
            "--no-show-forced-updates",
            "--no-tags",
            "--no-write-commit-graph",
            "--no-write-fetch-head",
            "--progress",
            "--prune",
            "--prune-tags",
            "--quiet",
            "--refetch",
            "--show-forced-updates",
            "--tags",
            "--unshallow",
            "--update-head-ok",
            "--update-shallow",
            "--verbose",
            "--write-commit-graph",
            "--write-fetch-head",
        ]
    ),
    with_value=frozenset(
        [
            "-j",
            "-o",
            "--deepen",
            "--depth",
            "--filter",
            "--jobs",
            "--negotiation-tip",
            "--refmap",
            "--server-option",
            "--shallow-exclude",
            "--shallow-since",
        ]
    ),
    joins_letters=True,
)
SUBMODULE_UPDATE = Options(
    command="git submodule update",
    plain=frozenset(
        [
            "-N",
            "-f",
            "-q",
            "--checkout",
            "--force",
            "--init",
            "--no-fetch",
            "--no-recommend-shallow",
            "--no-single-branch",
            "--progress",
            "--quiet",
            "--recommend-shallow",
            "--recursive",
            "--remote",
            "--single-branch",
        ]
    ),
    with_value=frozenset(["-j", "--depth", "--filter", "--jobs"]),
    joins_letters=False,
)


def check_flags(variable: str, flags: Iterable[str], allowed: Options) -> None:
    """Raise StepError if one of `flags`, the words of a job's variable, is no option, is not allowed, or lacks its
    value. `variable`: the variable's name, for the message."""
    words = iter(flags)
    for word in words:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            raise StepError(f"{variable}: {word!r} is not an option of {allowed.command}; remove it")
        is_long = word.startswith("--")
        if is_long and name in allowed.with_value:
            needs_next = not equals
        elif word in allowed.plain or word in allowed.with_value:
            needs_next = word in allowed.with_value
        elif not is_long and allowed.joins_letters and len(word) > 2:
            needs_next = _needs_next(variable, word, allowed)
        else:
            raise _refusal(variable, word, allowed)
        if (needs_next and not next(words, "")) or (is_long and equals and not value):
            raise StepError(f"{variable}: {word!r} needs a value; add one, or remove the option")


def _needs_next(variable: str, word: str, allowed: Options) -> bool:
    """True if the last of the short options joined in `word` (such as `-qj`) takes the next word as its value. Raises
    StepError if an option is not allowed. `variable`: the job's variable with the options."""
    for number, letter in enumerate(word[1:], 2):
        if f"-{letter}" in allowed.with_value:
            return number == len(word)
        if f"-{letter}" not in allowed.plain:
            raise _refusal(variable, word, allowed)
    return False


def _refusal(variable: str, word: str, allowed: Options) -> StepError:
    names = " ".join(sorted(allowed.plain | allowed.with_value))
    return StepError(
        f"{variable}: {word!r} is not allowed; the options of {allowed.command} that a job may set, written in full, "
        f"are {names}"
    )
