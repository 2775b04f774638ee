import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.pipeline.rules.regex_capture import last_match
from remuda.pipeline.rules.regex_match import compile_pattern


def taken(expression: str, text: str, flags: str = "") -> str | None:
    return last_match(compile_pattern(expression, flags, with_groups=True), text, lambda steps: None)


@pytest.mark.parametrize(
    ("expression", "text", "expected"),
    [
        (r"\d+%", "10% then 20%", "20%"),
        (r"\d+%", "nothing", None),
        (r"TOTAL.*? (100(?:\.0+)?\%|[1-9]?\d(?:\.\d+)?\%)$", "TOTAL   120   30   75%", "75%"),
        (r"Lines:\s+(\d+\.\d+)%\s+of\s+(\d+)", "Lines:   98.25% of 400", "400"),
        (r"(a)|(b)", "b a", "a"),
        (r"(?P<rate>\d+) of", "3 of 4 of", "4"),
        (r"a.*b", "a1b a2b", "a1b a2b"),
        (r"a.*?b", "a1b a2b", "a2b"),
        (r"(a+?)(a*)", "aaa", "aa"),
        (r"x*", "", ""),
        (r"^\d+", "12 34", "12"),
        (r"\b\d+\b", "a1 22 b3", "22"),
        (r"(a|ab)(c|bcd)", "abcd", "bcd"),
        (r"(\d)+", "123", "3"),
    ],
)
def test_what_the_last_match_took(expression: str, text: str, expected: str | None) -> None:
    assert taken(expression, text) == expected


def test_the_flags() -> None:
    assert taken("total (.)", "TOTAL 7", "i") == "7"
    assert taken("a.*b", "a1b a2b", "U") == "a2b"
    assert taken("a.*?b", "a1b a2b", "U") == "a1b a2b"


_PARTS = st.sampled_from(["a", "b", ".", "[ab]", "a*", "b+?", "(a|b)", "(ab)?", "(?:ba)+", "(a*)", "$", "^", r"\b"])


@given(st.lists(_PARTS, min_size=1, max_size=6).map("".join), st.text("ab ", max_size=12))
def test_the_same_as_a_backtracking_engine(expression: str, text: str) -> None:
    found = list(re.finditer(expression, text))
    # Both count an empty match right behind another one; Python begins it where the other ended.
    expected = None
    at = 0
    while at <= len(text) and (match := re.compile(expression).search(text, at)):
        numbers = [number for number in range(match.re.groups, 0, -1) if match.start(number) >= 0]
        expected = match[numbers[0]] if numbers else match[0]
        at = max(match.end(), match.start() + 1)
    assert taken(expression, text) == expected
    assert (expected is None) is (not found)


@given(st.lists(_PARTS, min_size=1, max_size=6).map("".join), st.text("ab ", max_size=12))
def test_every_match_contains_what_is_needed(expression: str, text: str) -> None:
    needed = compile_pattern(expression).needed
    assert all(needed in match[0] for match in re.finditer(expression, text))


def test_the_cost_is_told() -> None:
    spent = 0

    def spend(steps: int) -> None:
        nonlocal spent
        spent += steps

    text = "a" * 2000 + "b"
    assert last_match(compile_pattern("(a*)*(b)", with_groups=True), text, spend) == "b"
    assert spent < 40 * len(text)
    assert last_match(compile_pattern("(a*)*never", with_groups=True), text, spend) is None
