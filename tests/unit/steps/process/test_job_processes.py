"""Which job a process belongs to."""

import os
from collections.abc import Collection

import pytest

from remuda.steps.process.job_processes import assign_members, find_owners

AGENT = os.geteuid()
A, B, OTHER = 200_000, 200_001, 200_002


@pytest.mark.parametrize(
    ("parents", "owners", "members"),
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
    parents: dict[int, int], owners: dict[int, str], members: dict[str, list[int]]
) -> None:
    assert assign_members(["a", "b"], parents, owners) == members


@pytest.mark.parametrize(
    ("users", "mark", "uids", "is_below", "owner"),
    [
        # The mark, on a process of the job's user or of the agent's: our own programs work for the job with its rights.
        ({"a": A, "b": B}, "a", {A}, True, "a"),
        ({"a": A, "b": B}, "a", {AGENT}, True, "a"),
        ({"a": A, "b": B}, "a", {A, AGENT}, False, "a"),
        # No mark, or that of another user's job.
        ({"a": A, "b": B}, None, {A}, True, "a"),
        ({"a": A, "b": B}, "b", {A}, True, "a"),
        ({"a": A, "b": B}, "b", {A, AGENT}, True, "a"),
        ({"a": A, "b": B}, "b", {OTHER}, True, None),
        # Whoever else the user may be.
        ({"a": A, "b": B}, None, {A}, False, None),
        ({"a": A, "b": B}, "b", {A}, False, None),
        # A user of several jobs says nothing.
        ({"a": A, "b": A}, None, {A}, True, None),
        ({"a": A, "b": A}, "b", {A}, True, "b"),
        # A job of the agent's user may start others, but not those of a job.
        ({"a": None, "b": B}, "a", {OTHER}, True, "a"),
        ({"a": None, "b": B}, "a", {B}, True, "b"),
        ({"a": None, "b": B}, None, {AGENT}, True, None),
    ],
)
def test_a_mark_counts_only_for_the_user_of_its_job(
    users: dict[str, int | None], mark: str | None, uids: Collection[int], is_below: bool, owner: str | None
) -> None:
    marked, below = ({10: mark} if mark else {}), ({10} if is_below else set[int]())
    assert find_owners(users, marked, {10: frozenset(uids)}, below=below) == ({10: owner} if owner else {})
