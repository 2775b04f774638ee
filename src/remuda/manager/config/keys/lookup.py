"""The table of how Remuda treats all keys, by path such as `runners.docker.image`, and the search for the keys of a
file in that table. For an unknown key the nearest known name is suggested. Keys of an ignored section cause no warnings
of their own. Pure code without I/O."""

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
from remuda.manager.config.values import uses_section

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
    where: str
    """Such as `runners[0].docker.image`."""
    path: str
    """`where` without numbers."""
    value: Any
    fact: Fact
    is_below: bool = False
    """True if a section around it has a fact, too."""
    is_foreign: bool = False
    nearest: str = ""
    """For an unknown key: the nearest known name."""

    @property
    def about(self) -> str:
        return plain(self.fact.about)


def plain(text: str) -> str:
    return _MARKS.sub(lambda match: match[1] or "", text)


def walk(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield each key of a parsed configuration file, with how Remuda treats it (`Fact`). A section of an executor that
    the runner does not use is yielded as one key, without the keys in it."""
    yield from _walk(document, "", "", is_below=False)


def _walk(table: Mapping[str, Any], path: str, where: str, *, is_below: bool) -> Iterator[Finding]:
    for key, value in table.items():
        inner_path, here = (f"{path}.{key}", f"{where}.{key}") if path else (key, key)
        if path == "runners" and not uses_section(table, key):
            yield Finding(where=here, path=inner_path, value=value, fact=_FOREIGN, is_foreign=True)
            continue
        fact = FACTS.get(inner_path)
        if fact is not None:
            yield Finding(where=here, path=inner_path, value=value, fact=fact.of(value), is_below=is_below)
        elif inner_path not in _SECTIONS:
            yield _unknown(key, inner_path, here, value)
        if inner_path in _SECTIONS or (fact is not None and not fact.is_open):
            for number, inner in _tables(value):
                yield from _walk(
                    inner,
                    inner_path,
                    here if number is None else f"{here}[{number}]",
                    is_below=is_below or fact is not None,
                )


def _tables(value: Any) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        yield None, value
    elif isinstance(value, list):
        yield from ((number, item) for number, item in enumerate(value) if isinstance(item, Mapping))


def _unknown(key: str, path: str, where: str, value: Any) -> Finding:
    import difflib  # imported here because only mistakes need it

    section = path.rpartition(".")[0]
    siblings = {
        name[len(section) :].lstrip(".").split(".")[0]
        for name in FACTS
        if not section or name.startswith(f"{section}.")
    }
    names = {name.lower(): name for name in sorted(siblings)}
    close = difflib.get_close_matches(key.lower(), names, n=1)
    nearest = names[close[0]] if close else ""
    # Ignoring a misspelt key of Remuda could give jobs more rights than intended.
    is_own = "remuda" in path.split(".")[:2]
    verdict = Verdict.REFUSED if is_own else Verdict.UNKNOWN
    hint = f"; did you mean {nearest}?" if nearest else ""
    fact = Fact(verdict=verdict, about=f"unknown{hint}" if is_own else f"is unknown and ignored{hint}")
    return Finding(where=where, path=path, value=value, fact=fact, nearest=nearest)
