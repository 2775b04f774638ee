"""Badges: what they show, and that no text breaks out of the image."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.web.pipelines.badge import LONGEST_TEXT, choose_colour, draw_badge

SVG = "{http://www.w3.org/2000/svg}"


def test_key_and_value() -> None:
    image = ET.fromstring(draw_badge("pipeline", "success", choose_colour("success")))
    assert [text.text for text in image.iter(f"{SVG}text")] == ["pipeline", "success"]
    assert image.get("aria-label") == "pipeline: success"


@given(st.text(), st.text())
def test_any_text_stays_text(key: str, value: str) -> None:
    image = ET.fromstring(draw_badge(key, value, "#111"))
    assert {element.tag.removeprefix(SVG) for element in image.iter()} == {
        "svg",
        "title",
        "clipPath",
        "rect",
        "g",
        "text",
    }
    assert all(len(text.text or "") <= LONGEST_TEXT + 1 for text in image.iter(f"{SVG}text"))


@pytest.mark.parametrize(
    ("values", "same"),
    [((96.0, 100.0), True), ((96.0, 80.0), False), ((None, "unknown"), True), (("failed", 5.0), True)],
)
def test_colours(values: tuple[str | float | None, ...], *, same: bool) -> None:
    assert (len({choose_colour(value) for value in values}) == 1) is same
