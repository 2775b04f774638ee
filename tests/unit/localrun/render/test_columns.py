import pytest

from remuda.localrun.render.columns import align, cut, pad, width


@pytest.mark.parametrize(("text", "columns"), [("", 0), ("abc", 3), ("é", 1), ("e\u0301", 1), ("測試", 4), ("🚀", 2)])
def test_width(text: str, columns: int) -> None:
    assert width(text) == columns
    assert width(pad(text, 5)) == 5


@pytest.mark.parametrize(
    ("text", "columns", "short"), [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("測試中", 4, "測…"), ("", 0, "")]
)
def test_cut(text: str, columns: int, short: str) -> None:
    assert cut(text, columns) == short


def test_a_table() -> None:
    assert align([("a", "b", ""), ("測試", "", "c")]) == ["a     b", "測試     c"]
    assert align([]) == []
