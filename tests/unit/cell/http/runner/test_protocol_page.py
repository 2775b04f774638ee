"""The page about the runner protocol names tests that are there."""

import re
from pathlib import Path

from remuda.cell.settings import CellSettings

TESTS = Path(__file__).parents[4]
PAGE = (TESTS.parent / "docs" / "reference" / "runner-protocol.md").read_text()
NAMED = re.findall(r"`((?:unit|integration|contract|system|interop)/[\w/]+\.py)(?:::(\w+))?`", PAGE)


def test_every_test_is_there() -> None:
    assert len(NAMED) > 50
    texts = {path: (TESTS / path).read_text() for path, _ in NAMED}
    missing = [
        f"{path}::{name}"
        for path, name in NAMED
        if name and not re.search(rf"^ *(class|def|async def) {name}\b", texts[path], re.MULTILINE)
    ]
    assert missing == []


def test_every_setting_is_there() -> None:
    assert set(re.findall(r"`([a-z_]+_seconds)`", PAGE)) <= set(CellSettings.__struct_fields__)
