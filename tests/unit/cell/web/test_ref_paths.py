import pytest

from remuda.cell.web.ref_paths import MAX_PARTS, list_splits, split_range


def test_the_first_segment_is_tried_first() -> None:
    assert list_splits("main/docs/a%20b.md") == [
        ("main", "docs/a b.md"),
        ("main/docs", "a b.md"),
        ("main/docs/a b.md", ""),
    ]


def test_an_encoded_slash_belongs_to_the_ref() -> None:
    assert list_splits("feature%2Fx/docs")[0] == ("feature/x", "docs")


def test_what_looks_like_a_short_commit_id_comes_last() -> None:
    assert list_splits("cafe/login") == [("cafe/login", ""), ("cafe", "login")]
    assert list_splits("cafe") == [("cafe", "")]


def test_long_paths_are_not_tried_whole() -> None:
    assert len(list_splits("/".join("abcdefghijklmnop"))) == MAX_PARTS


@pytest.mark.parametrize(
    ("raw", "sides"),
    [
        ("main...feature%2Fx", ("main", "feature/x")),
        ("main..other", None),
        ("main...", None),
        ("...main", None),
        ("a...b...c", ("a", "b...c")),
    ],
)
def test_the_sides_of_a_comparison(raw: str, sides: tuple[str, str] | None) -> None:
    assert split_range(raw) == sides
