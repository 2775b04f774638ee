"""Assignment of processes to jobs by mark, user and parent process."""

import os
from collections.abc import Collection

import pytest

from remuda.steps.process.job_processes import assign_members, find_owners

AGENT_USER = os.geteuid()
USER_A, USER_B, OTHER_USER = 200_000, 200_001, 200_002


@pytest.mark.parametrize(
    ("parents", "owners", "members"),
    [
        ({}, {}, {"a": [], "b": []}),
        ({10: 1, 11: 10, 12: 11}, {10: "a"}, {"a": [10, 11, 12], "b": []}),
        ({10: 1, 11: 10, 12: 11}, {10: "a", 12: "b"}, {"a": [10, 11], "b": [12]}),
        ({10: 1, 20: 1, 21: 20}, {20: "b"}, {"a": [], "b": [20, 21]}),
        # A cycle: process ids may be reused while /proc is read.
        ({10: 11, 11: 10}, {}, {"a": [], "b": []}),
    ],
)
def test_unmarked_job_process(parents: dict[int, int], owners: dict[int, str], members: dict[str, list[int]]) -> None:
    assert assign_members(["a", "b"], parents, owners) == members


@pytest.mark.parametrize(
    ("users", "mark", "uids", "is_below", "owner"),
    [
        # A mark on a process of the job's user, or of the agent's user, as which some standard steps run.
        ({"a": USER_A, "b": USER_B}, "a", {USER_A}, True, "a"),
        ({"a": USER_A, "b": USER_B}, "a", {AGENT_USER}, True, "a"),
        ({"a": USER_A, "b": USER_B}, "a", {USER_A, AGENT_USER}, False, "a"),
        # No mark, or the mark of another user's job.
        ({"a": USER_A, "b": USER_B}, None, {USER_A}, True, "a"),
        ({"a": USER_A, "b": USER_B}, "b", {USER_A}, True, "a"),
        ({"a": USER_A, "b": USER_B}, "b", {USER_A, AGENT_USER}, True, "a"),
        ({"a": USER_A, "b": USER_B}, "b", {OTHER_USER}, True, None),
        # A process that is not a descendant of the agent may belong to anyone with this user id.
        ({"a": USER_A, "b": USER_B}, None, {USER_A}, False, None),
        ({"a": USER_A, "b": USER_B}, "b", {USER_A}, False, None),
        # The user of several jobs does not identify one of them.
        ({"a": USER_A, "b": USER_A}, None, {USER_A}, True, None),
        ({"a": USER_A, "b": USER_A}, "b", {USER_A}, True, "b"),
        # A job that runs as the agent's user may start processes of other users, but not of another job's user.
        ({"a": None, "b": USER_B}, "a", {OTHER_USER}, True, "a"),
        ({"a": None, "b": USER_B}, "a", {USER_B}, True, "b"),
        ({"a": None, "b": USER_B}, None, {AGENT_USER}, True, None),
    ],
)
def test_a_mark_counts_only_for_the_user_of_its_job(
    users: dict[str, int | None], mark: str | None, uids: Collection[int], is_below: bool, owner: str | None
) -> None:
    marked, below = ({10: mark} if mark else {}), ({10} if is_below else set[int]())
    assert find_owners(users, marked, {10: frozenset(uids)}, below=below) == ({10: owner} if owner else {})
