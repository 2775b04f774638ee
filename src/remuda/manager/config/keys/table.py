"""The whole table: which fact is told of a path such as `runners.docker.image`, and what a whole document is made of.

Pure. Decides what the nearest right name of an unknown key is, and that a section which has a fact of its own speaks
for everything below it. `config` (warnings and refusals), `doctor` (line by line) and `docs` (tables) are the readers.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from remuda.manager.config.keys.docker import DOCKER
from remuda.manager.config.keys.fact import Fact, Facts, Verdict, ignored
from remuda.manager.config.keys.flags import FLAGS
from remuda.manager.config.keys.general import GENERAL
from remuda.manager.config.keys.machines import AUTOSCALER, CUSTOM, INSTANCE, MACHINE, SSH
from remuda.manager.config.keys.runner import OWN, RUNNER
from remuda.manager.config.keys.storage import CACHE
from remuda.manager.config.values import SECTIONS

GROUPS: Mapping[str, Facts] = {
    "": GENERAL,
    "runners": RUNNER,
    "runners.feature_flags": FLAGS,
    "runners.cache": CACHE,
    "runners.docker": DOCKER,
    "runners.ssh": SSH,
    "runners.instance": INSTANCE,
    "runners.autoscaler": AUTOSCALER,
    "runners.machine": MACHINE,
    "runners.custom": CUSTOM,
    "runners.remuda": OWN,
}
FACTS: Facts = {
    f"{section}.{key}" if section else key: fact for section, facts in GROUPS.items() for key, fact in facts.items()
}
_SECTIONS = {
    ".".join(parts[:end]) for parts in (path.split(".") for path in FACTS) for end in range(1, len(parts))
} - set(FACTS)
_FOREIGN = ignored("a section of another executor, which gitlab-runner does not look at either")
_MARKS = re.compile(r"\[([^\]]*)\]\([^)]*\)|`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A key of a document, and what is known of it."""

    where: str
    """Such as `runners[0].docker.image`."""
    path: str
    """The same without numbers."""
    value: Any
    fact: Fact
    is_below: bool = False
    """A section above it says the same of everything in it."""
    is_foreign: bool = False
    nearest: str = ""
    """Of an unknown one: what was meant, perhaps."""

    @property
    def about(self) -> str:
        """What is to be said, without marks of the docs."""
        return plain(self.fact.about)


def plain(text: str) -> str:
    """A text without the marks of the docs."""
    return _MARKS.sub(lambda match: match[1] or "", text)


def walk(document: Mapping[str, Any]) -> Iterator[Finding]:
    """All keys of a document, sections of other executors as one each."""
    yield from _walk(document, "", "", is_below=False)


def _walk(table: Mapping[str, Any], path: str, where: str, *, is_below: bool) -> Iterator[Finding]:
    for key, value in table.items():
        at, here = (f"{path}.{key}", f"{where}.{key}") if path else (key, key)
        if path == "runners" and table.get("executor") not in SECTIONS.get(key, (table.get("executor"),)):
            yield Finding(where=here, path=at, value=value, fact=_FOREIGN, is_foreign=True)
            continue
        fact = FACTS.get(at)
        if fact is not None:
            yield Finding(where=here, path=at, value=value, fact=fact.of(value), is_below=is_below)
        elif at not in _SECTIONS:
            yield _unknown(key, at, here, value)
        if at in _SECTIONS or (fact is not None and not fact.is_open):
            for number, inner in _tables(value):
                yield from _walk(
                    inner, at, here if number is None else f"{here}[{number}]", is_below=is_below or fact is not None
                )


def _tables(value: Any) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        yield None, value
    elif isinstance(value, list):
        yield from ((number, one) for number, one in enumerate(value) if isinstance(one, Mapping))


def _unknown(key: str, path: str, where: str, value: Any) -> Finding:
    import difflib  # only a mistake pays for it

    section = path.rpartition(".")[0]
    known = {
        one[len(section) :].lstrip(".").split(".")[0] for one in FACTS if not section or one.startswith(f"{section}.")
    }
    names = {name.lower(): name for name in sorted(known)}
    close = difflib.get_close_matches(key.lower(), names, n=1)
    nearest = names[close[0]] if close else ""
    # Ignoring a misspelt one of Remuda's own could run jobs with more rights than they were to have.
    is_own = "remuda" in path.split(".")[:2]
    verdict = Verdict.REFUSED if is_own else Verdict.UNKNOWN
    hint = f"; did you mean {nearest}?" if nearest else ""
    fact = Fact(verdict=verdict, about=f"unknown{hint}" if is_own else f"is unknown and ignored{hint}")
    return Finding(where=where, path=path, value=value, fact=fact, nearest=nearest)
