import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.ids import IdRange, IdsExhaustedError, range_of_cell


def test_ids_are_consecutive_and_run_out() -> None:
    ids = IdRange(10, 12)
    assert [ids.after(None), ids.after(10), ids.after(11)] == [10, 11, 12]
    assert ids.after(3) == 10
    with pytest.raises(IdsExhaustedError, match="10 to 12"):
        ids.after(12)


def test_the_range_of_the_first_cell_includes_all_small_ids() -> None:
    first = range_of_cell(1)
    assert (first.first, first.last) == (1, 999_999_999_999)
    assert range_of_cell(2) == IdRange(1_000_000_000_000, 1_099_999_999_999)


@given(st.integers(1, 10**6))
def test_neighbouring_ranges_are_adjacent_and_do_not_overlap(cell_id: int) -> None:
    current, following = range_of_cell(cell_id), range_of_cell(cell_id + 1)
    assert current.last + 1 == following.first
    assert following.first not in current
    assert current.first in current
    assert current.last in current


@pytest.mark.parametrize("cell_id", [0, -1])
def test_a_cells_id_is_positive(cell_id: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        range_of_cell(cell_id)
