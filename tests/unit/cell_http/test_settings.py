"""Settings that cannot be, and what follows from those that can."""

from pathlib import Path
from typing import Any

import pytest

from remuda.cell.errors import CellError
from remuda.cell.settings import CellSettings


@pytest.mark.parametrize(
    "wrong", [{"cell_id": 0}, {"port": 70_000}, {"public_url": "ci.example"}, {"admin_token": "short"}]
)
def test_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(CellError):
        CellSettings(data=Path("x"), **wrong)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"host": "127.0.0.1"}, "http://127.0.0.1:81"),
        ({"host": "0.0.0.0"}, "http://127.0.0.1:81"),
        ({"host": "::1"}, "http://[::1]:81"),
        ({"public_url": "https://ci.example/sub/"}, "https://ci.example/sub"),
    ],
)
def test_the_public_address(given: dict[str, Any], url: str) -> None:
    settings = CellSettings(data=Path("x"), port=0, **given).bound_to(81)
    assert (settings.url, settings.public_url, settings.port) == (url, url, 81)
