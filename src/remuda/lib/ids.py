"""Ranges of ids: each cell draws its ids from its own range, so a row can move to another cell and keep its id."""

from dataclasses import dataclass

FIRST_CELL_LAST_ID = 999_999_999_999
"""Cell 1 owns the ids from 1 to this one, like the first cell of an existing installation."""

CELL_RANGE_SIZE = 100_000_000_000
"""Number of ids of each further cell."""


class IdsExhaustedError(Exception):
    """All ids of the cell's range are used; give the cell another range."""


@dataclass(frozen=True, slots=True)
class IdRange:
    first: int
    last: int

    def after(self, last_used: int | None) -> int:
        """Return the id after `last_used` (None: the first id). Raises IdsExhaustedError if there are no more."""
        following = self.first if last_used is None else max(last_used + 1, self.first)
        if following > self.last:
            raise IdsExhaustedError(f"ids {self.first} to {self.last} are used up")
        return following

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last


def range_of_cell(cell_id: int) -> IdRange:
    """Return a cell's default range. Cell 1 has a larger one, with room for the ids of an existing installation."""
    if cell_id < 1:
        raise ValueError(f"a cell id is a positive number, not {cell_id}")
    if cell_id == 1:
        return IdRange(1, FIRST_CELL_LAST_ID)
    first = FIRST_CELL_LAST_ID + 1 + (cell_id - 2) * CELL_RANGE_SIZE
    return IdRange(first, first + CELL_RANGE_SIZE - 1)
