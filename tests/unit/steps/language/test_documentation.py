"""The examples in the reference of the steps language can be read."""

import re
from pathlib import Path

import pytest

from remuda.steps.language.reading import read_step

PAGE = Path(__file__).parents[4] / "docs/reference/steps-language.md"
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("text", BLOCKS)
def test_an_example_can_be_read(text: str) -> None:
    read_step(text, file=PAGE.name)
