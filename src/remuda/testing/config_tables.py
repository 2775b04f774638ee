"""The tables of docs/reference/config-toml.md, made of the table of facts; `python -m remuda.testing.config_tables`.

In the page, everything between `<!-- keys: SECTION -->` and the next `<!-- end -->` is written anew. A test compares.
"""

import re
from pathlib import Path

from remuda.manager.config.keys.fact import Verdict
from remuda.manager.config.keys.table import GROUPS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "config-toml.md"
_PLACE = re.compile(r"(<!-- keys: (?P<section>[a-z_.]*) -->\n).*?(<!-- end -->)", re.DOTALL)
_WORDS = {Verdict.WORKS: "", Verdict.DIFFERS: "differs", Verdict.IGNORED: "no effect", Verdict.REFUSED: "refused"}


def table(section: str) -> str:
    """The rows of a section, `` for the keys outside of all."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for key, fact in GROUPS[section].items():
        word = "Remuda's own" if fact.is_own else _WORDS[fact.verdict]
        name = f"`{key}` …" if fact.is_open else f"`{key}`"
        rows.setdefault((word, fact.default, fact.about.replace("|", "\\|")), []).append(name)
    lines = [f"| {', '.join(names)} | {' | '.join(said)} |" for said, names in rows.items()]
    return "\n".join(["| key | | default | what |", "|---|---|---|---|", *lines, ""])


def page(text: str) -> str:
    """The page with its tables as they are to be."""
    return _PLACE.sub(lambda match: match[1] + table(match["section"]) + match[3], text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
