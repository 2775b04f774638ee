"""Events of steps as the tree that they are of."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.clock import stamp
from remuda.model.step_tree import DEEPEST, Step, attempts, own_times, tree_of

NOW = 1_750_000_000.0


def started(path: str, at: float = 0, **more: Any) -> dict[str, Any]:
    return {"event": "started", "path": path, "name": path.rpartition("/")[2], "time": stamp(NOW + at)} | more


def finished(path: str, began: float = 0, ended: float = 1, **more: Any) -> dict[str, Any]:
    times = {"started_at": stamp(NOW + began), "finished_at": stamp(NOW + ended)}
    return started(path, ended) | {"event": "finished", "status": "success"} | times | more


def shape(steps: list[Step]) -> list[Any]:
    return [(step["name"], step["status"], shape(step["steps"])) for step in steps]


def test_steps_are_below_those_that_called_them() -> None:
    events = [
        started("/a"),
        started("/a/b"),
        finished("/a/b/c"),
        finished("/a/b"),
        started("/a/d"),
        finished("/e", status="skipped", started_at=None),
    ]
    assert shape(tree_of(events)) == [
        ("a", "running", [("b", "success", [("c", "success", [])]), ("d", "running", [])]),
        ("e", "skipped", []),
    ]


def test_two_steps_of_one_name() -> None:
    events = [started("/a"), finished("/a/x"), finished("/a"), started("/a"), finished("/a/x"), finished("/a")]
    assert shape(tree_of(events)) == [("a", "success", [("x", "success", [])])] * 2


def test_attempts_keep_their_own_steps() -> None:
    events = [
        started("/a", attempt=1),
        finished("/a/x", status="failure", attempt=1),
        finished("/a", status="failure", error="exit status 1", attempt=1, retried=True),
        started("/a", attempt=2),
        finished("/a/x", attempt=1),
        finished("/a/y", attempt=1),
        finished("/a", attempt=2),
    ]
    [step] = tree_of(events)
    assert (step["attempt"], step["status"], [one["name"] for one in step["steps"]]) == (2, "success", ["x", "y"])
    assert "error" not in step
    [earlier] = step["attempts"]
    assert (earlier["error"], shape(earlier["steps"])) == ("exit status 1", [("x", "failure", [])])
    assert list(attempts([step])) == [earlier, step]


def test_an_attempt_that_never_began() -> None:
    """It was stopped while it waited for the next attempt, or that one could not be loaded."""
    failed = finished("/a", status="failure", attempt=1, retried=True)
    [stopped] = tree_of([started("/a", attempt=1), failed, finished("/a", status="cancelled", attempt=1)])
    assert (stopped["status"], stopped.get("attempts")) == ("cancelled", None)
    [unloaded] = tree_of([started("/a", attempt=1), failed, finished("/a", status="failure", attempt=2)])
    assert (unloaded["attempt"], len(unloaded["attempts"])) == (2, 1)


def test_what_only_numbers_an_event_is_left_out() -> None:
    [step] = tree_of([finished("/a", seq=1, version=1, exit_code=0, log_start=5)])
    assert set(step) == {"path", "name", "status", "started_at", "finished_at", "exit_code", "log_start", "steps"}


def test_own_times_sum_to_those_of_the_highest() -> None:
    events = [
        started("/a"),
        finished("/a/x", 0, 4),
        finished("/a/y", 4, 7),
        finished("/a", 0, 10),
        started("/both", 10),
        finished("/both/x", 10, 20),
        finished("/both/y", 10, 20),
        finished("/both", 10, 20),
    ]
    found = [(own.step["path"], own.seconds) for own in own_times(tree_of(events), NOW)]
    assert found == [
        ("/a", pytest.approx(3)),
        ("/a/x", pytest.approx(4)),
        ("/a/y", pytest.approx(3)),
        ("/both", 0),
        ("/both/x", pytest.approx(5)),
        ("/both/y", pytest.approx(5)),
    ]


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))
EVENTS = st.builds(
    lambda make, path, began, length, more: (
        make(path, began, **({"ended": began + length} if make is finished else {})) | more
    ),
    st.sampled_from([started, finished]),
    PATHS,
    st.floats(0, 100),
    st.floats(0, 100),
    st.sampled_from([{}, {"retried": True, "attempt": 1}, {"attempt": 2}, {"started_at": None}, {"status": 5}]),
)


@given(st.lists(EVENTS, max_size=30))
def test_no_time_counts_twice(events: list[dict[str, Any]]) -> None:
    tree = tree_of(events)
    whole = {id(own.step): own for own in own_times([{**one, "steps": []} for one in attempts(tree)], NOW + 200)}
    own = own_times(tree, NOW + 200)
    known = all(one.get("started_at") for one in attempts(tree))
    if known:
        assert sum(one.seconds for one in own) <= sum(one.seconds for one in whole.values()) + 1e-6


@given(st.lists(st.one_of(st.none(), st.integers(), st.text(), st.dictionaries(st.text(), st.text())), max_size=5))
def test_anything_may_come(events: list[Any]) -> None:
    assert own_times(tree_of(events), NOW) == []


def test_a_tree_is_only_so_deep() -> None:
    paths = ["/x" * depth for depth in range(1, 2000)]
    tree = tree_of([started(path) for path in paths])
    steps, depth = tree, 0
    while steps:
        steps, depth = steps[0]["steps"], depth + 1
    assert depth == DEEPEST + 1
    assert len(own_times(tree, NOW)) == len(paths)
