"""The files that the pages about the manager show can be used as they stand."""

import re
from pathlib import Path

import pytest

from remuda.manager.config.load import inspect

DOCS = Path(__file__).parents[4] / "docs"
PAGES = ("reference/config-toml.md", "how-to/run-a-manager.md", "how-to/switch-from-gitlab-runner.md")
RUNNER = 'url = "https://x.example"\ntoken = "glrt-x"\n'
EXAMPLES = [
    (page, block)
    for page in PAGES
    for block in re.findall(r"^```toml\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize(("page", "block"), EXAMPLES, ids=[page for page, _ in EXAMPLES])
def test_an_example_can_be_used(page: str, block: str) -> None:
    if "url =" not in block:
        head = "" if "[[runners]]" in block else f'[[runners]]\nexecutor = "shell"\n{RUNNER}'
        block = head + block.replace("[[runners]]\n", f"[[runners]]\n{RUNNER}", 1)
    found = inspect(block, file=page, environment={"RUNNER_TOKEN": "glrt-x"})
    assert found.problems == ()


def test_there_are_some() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (DOCS / page).read_text()
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert link.startswith("http") or (DOCS / page).parent.joinpath(link).exists(), link
