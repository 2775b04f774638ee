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
def test_a_version_is_within_the_range(version: str, text: str) -> None:
    assert check_range(text) is None
    assert is_within(version, text)


@pytest.mark.parametrize(
    ("version", "text"),
    [("2.0.0", ">=1.2,<2"), ("1.20.0", "1.2"), ("main", ">=0"), ("1.2.3", "!=1.2.3"), ("1.0.0-rc.1", ">=1.0.0")],
)
def test_a_version_is_outside_of_the_range(version: str, text: str) -> None:
    assert not is_within(version, text)


@pytest.mark.parametrize("text", ["", ">=1.2,", "~1.2", ">=one", "1 2"])
def test_the_error_for_an_invalid_range_has_an_example(text: str) -> None:
    assert "write for example" in (check_range(text) or "")


@given(NUMBERS, NUMBERS)
def test_versions_are_ordered_by_their_numbers(first_numbers: list[int], second_numbers: list[int]) -> None:
    first, second = ".".join(map(str, first_numbers)), ".".join(map(str, second_numbers))
    padded = [numbers + [0] * (3 - len(numbers)) for numbers in (first_numbers, second_numbers)]
    assert is_within(first, f"<{second}") == (padded[0] < padded[1])
    assert is_within(first, f">={second}") == (padded[0] >= padded[1])


@given(st.text(max_size=20))
def test_any_text_is_parsed_without_an_exception(text: str) -> None:
    sort_key(text)
    check_range(text)
