"""The documentation of the runner protocol names existing tests and settings."""

import re
from pathlib import Path

from remuda.cell.settings import CellSettings

TESTS = Path(__file__).parents[4]
PAGE = (TESTS.parent / "docs" / "reference" / "runner-protocol.md").read_text()
MENTIONED = re.findall(r"`((?:unit|integration|contract|system|interop)/[\w/]+\.py)(?:::(\w+))?`", PAGE)


def test_every_mentioned_test_exists() -> None:
    assert len(MENTIONED) > 50
    texts = {path: (TESTS / path).read_text() for path, _ in MENTIONED}
    missing = [
        f"{path}::{name}"
        for path, name in MENTIONED
        if name and not re.search(rf"^ *(class|def|async def) {name}\b", texts[path], re.MULTILINE)
    ]
    assert missing == []


def test_every_mentioned_setting_exists() -> None:
    assert set(re.findall(r"`([a-z_]+_seconds)`", PAGE)) <= set(CellSettings.__struct_fields__)
