"""Numbers that are unique in the whole cluster because each cell draws them from a range of its own.

A range is never shared between cells, so a row can move to another cell without a new number. The store keeps the
last number drawn per table; this module only says which numbers are allowed.
"""

from dataclasses import dataclass

FIRST_CELL_LAST_ID = 999_999_999_999
"""Cell 1 owns 1 up to here, as the first cell of an existing installation does."""

CELL_RANGE_SIZE = 100_000_000_000
"""How many ids each further cell owns."""


class IdsExhaustedError(Exception):
    """The cell's range of ids is used up; give the cell a further range."""


@dataclass(frozen=True, slots=True)
class IdRange:
    """An inclusive range of ids."""

    first: int
    last: int

    def after(self, last_used: int | None) -> int:
        """The id that follows the last one used (None: nothing used yet)."""
        following = self.first if last_used is None else max(last_used + 1, self.first)
        if following > self.last:
            raise IdsExhaustedError(f"ids {self.first} to {self.last} are used up")
        return following

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last


def range_of_cell(cell_id: int) -> IdRange:
    """The default range of a cell: the first has room for an old installation, the others follow behind it."""
    if cell_id < 1:
        raise ValueError(f"a cell id is a positive number, not {cell_id}")
    if cell_id == 1:
        return IdRange(1, FIRST_CELL_LAST_ID)
    first = FIRST_CELL_LAST_ID + 1 + (cell_id - 2) * CELL_RANGE_SIZE
    return IdRange(first, first + CELL_RANGE_SIZE - 1)
