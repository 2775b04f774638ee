"""The example files on the pages about the manager are valid, and the links of these pages lead to existing files."""

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
def test_an_example_is_valid(page: str, block: str) -> None:
    if "url =" not in block:
        head = "" if "[[runners]]" in block else f'[[runners]]\nexecutor = "shell"\n{RUNNER}'
        block = head + block.replace("[[runners]]\n", f"[[runners]]\n{RUNNER}", 1)
    inspection = inspect(block, file=page, environment={"RUNNER_TOKEN": "glrt-x"})
    assert inspection.problems == ()


def test_the_pages_have_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_existing_files(page: str) -> None:
    text = (DOCS / page).read_text()
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert link.startswith("http") or (DOCS / page).parent.joinpath(link).exists(), link
