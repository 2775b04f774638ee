"""What of a step's values is told."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.masking import Secrets
from remuda.steps.language.sensitive import Sensitive
from remuda.steps.reporting import DEEPEST, Shown

SHOWN = Shown(Secrets(["hunter2-hunter2"], ()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text("abc", max_size=50),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc", max_size=5), inner),
    max_leaves=50,
)


def test_secrets_are_not_told() -> None:
    told = SHOWN.value({"a": ["x hunter2-hunter2"], "hunter2-hunter2": 1, "b": Sensitive("secret")}, 1000)
    assert told == {"a": ["x [MASKED]"], "[MASKED]": 1, "b": "[MASKED]"}


def test_a_long_text_is_cut() -> None:
    assert SHOWN.value("x" * 30, 18) == f"{'x' * 10}… (20 characters more)"


@pytest.mark.parametrize("value", [list(range(100_000)), {str(number): number for number in range(100_000)}])
def test_many_values_are_cut_with_one_note(value: Any) -> None:
    told = SHOWN.value(value, 800)
    assert len(told) <= 101
    assert "more: the result has no room for them" in str(told)


def test_values_are_only_so_deep() -> None:
    deep: Any = "x"
    for _ in range(99):
        deep = [deep]
    told = SHOWN.value(deep, 10_000)
    depth = 0
    while isinstance(told, list):
        [told], depth = told, depth + 1
    assert (told, depth) == ("(left out: it is nested too deeply)", DEEPEST)


@given(JSON)
def test_what_has_room_is_told_as_it_is(value: Any) -> None:
    assert SHOWN.value(value, 1_000_000) == value


@given(JSON, st.integers(0, 200))
def test_what_is_told_is_hardly_longer_than_its_limit(value: Any, limit: int) -> None:
    assert len(str(SHOWN.value(value, limit))) < 20 * limit + 1000
