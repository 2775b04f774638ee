"""Valid and invalid project paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.errors import InvalidError
from remuda.cell.projects.paths import check_path


@pytest.mark.parametrize("path", ["root/app", "a/b/c/d", "Acme/My_App.v2", "_x/y.z", "a/" + "b" * 253])
def test_valid_paths(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize("path", ["api/app", "OAuth/app", "queue/app", "Runners/new"])
def test_paths_that_the_cell_serves_itself_are_reserved(path: str) -> None:
    with pytest.raises(InvalidError, match="reserved"):
        check_path(path)


@pytest.mark.parametrize("path", [".well-known/app", "a/.git-mirrors", "a/.b/c", "a/-b"])
def test_no_part_begins_with_a_dot_or_a_dash(path: str) -> None:
    with pytest.raises(InvalidError, match="cannot start with"):
        check_path(path)


@given(st.text(alphabet="aA0._-/ \n%ü", max_size=12))
def test_every_accepted_path_is_safe(path: str) -> None:
    try:
        check_path(path)
    except InvalidError:
        return
    parts = path.split("/")
    assert len(parts) >= 2
    assert not {"", ".", ".."} & set(parts)
    assert path.isascii()
    assert not any(part.startswith(("-", ".")) or part.endswith(".") for part in parts)
