"""Which changed files are locked."""

import pytest

from remuda.cell.projects.file_locks import find_locked


@pytest.mark.parametrize(
    ("changed", "locked", "found"),
    [
        (["a", "b"], ["b"], "b"),
        (["a/b/c"], ["a/b"], "a/b/c"),
        (["a/bc"], ["a/b"], None),
        (["a"], ["a/b"], None),
        (["A"], ["a"], None),
        (["a"], [], None),
        ([], ["a"], None),
    ],
)
def test_a_lock_is_for_a_file_or_a_folder(changed: list[str], locked: list[str], found: str | None) -> None:
    assert find_locked(changed, locked) == found
