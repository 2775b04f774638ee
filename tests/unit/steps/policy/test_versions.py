import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.policy.versions import check_range, is_within, sort_key

NUMBERS = st.lists(st.integers(0, 50), min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("1.2.3", ">=1.2,<2"),
        ("v1.2.3", ">=1.2,<2"),
        ("1.2.9", "1.2"),
        ("1.9.9", "1"),
        ("1.2.3", "==1.2.3"),
        ("1.2.3", "1.2.3"),
        ("1.10.0", ">1.9"),
        ("1.0.0-rc.1", "<1.0.0"),
        ("1.0.0-rc.10", ">1.0.0-rc.9"),
        ("1.0.0+build", "==1.0.0"),
        ("1.2.4", "!=1.2.3"),
    ],
)
def test_version_fits_the_range(version: str, text: str) -> None:
    assert check_range(text) is None
    assert is_within(version, text)


@pytest.mark.parametrize(
    ("version", "text"),
    [("2.0.0", ">=1.2,<2"), ("1.20.0", "1.2"), ("main", ">=0"), ("1.2.3", "!=1.2.3"), ("1.0.0-rc.1", ">=1.0.0")],
)
def test_version_does_not_fit_the_range(version: str, text: str) -> None:
    assert not is_within(version, text)


@pytest.mark.parametrize("text", ["", ">=1.2,", "~1.2", ">=one", "1 2"])
def test_what_is_no_range_is_named(text: str) -> None:
    assert "write for example" in (check_range(text) or "")


@given(NUMBERS, NUMBERS)
def test_order_is_that_of_the_numbers(one: list[int], other: list[int]) -> None:
    first, second = ".".join(map(str, one)), ".".join(map(str, other))
    padded = [numbers + [0] * (3 - len(numbers)) for numbers in (one, other)]
    assert is_within(first, f"<{second}") == (padded[0] < padded[1])
    assert is_within(first, f">={second}") == (padded[0] >= padded[1])


@given(st.text(max_size=20))
def test_any_text_is_a_version_or_is_not(text: str) -> None:
    sort_key(text)
    check_range(text)
