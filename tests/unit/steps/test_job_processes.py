"""Which job a process belongs to."""

import pytest

from remuda.steps.job_processes import assign_members


@pytest.mark.parametrize(
    ("parents", "marked", "members"),
    [
        ({}, {}, {"a": [], "b": []}),
        ({10: 1, 11: 10, 12: 11}, {10: "a"}, {"a": [10, 11, 12], "b": []}),
        ({10: 1, 11: 10, 12: 11}, {10: "a", 12: "b"}, {"a": [10, 11], "b": [12]}),
        ({10: 1, 20: 1, 21: 20}, {20: "b"}, {"a": [], "b": [20, 21]}),
        # Numbers may be given away again while all are read.
        ({10: 11, 11: 10}, {}, {"a": [], "b": []}),
    ],
)
def test_a_process_without_a_mark_is_of_the_job_that_started_it(
    parents: dict[int, int], marked: dict[int, str], members: dict[str, list[int]]
) -> None:
    assert assign_members(["a", "b"], parents, marked) == members
