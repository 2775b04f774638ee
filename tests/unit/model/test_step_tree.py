"""The tree of steps that is built from step events, and the times of single steps."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.clock import stamp
from remuda.model.step_tree import DEEPEST, Step, attempts, own_times, tree_of

NOW = 1_750_000_000.0


def a_started_event(path: str, seconds: float = 0, **more: Any) -> dict[str, Any]:
    return {"event": "started", "path": path, "name": path.rpartition("/")[2], "time": stamp(NOW + seconds)} | more


def a_finished_event(path: str, start: float = 0, end: float = 1, **more: Any) -> dict[str, Any]:
    times = {"started_at": stamp(NOW + start), "finished_at": stamp(NOW + end)}
    return a_started_event(path, end) | {"event": "finished", "status": "success"} | times | more


def shape(steps: list[Step]) -> list[Any]:
    return [(step["name"], step["status"], shape(step["steps"])) for step in steps]


def test_steps_are_children_of_their_callers() -> None:
    events = [
        a_started_event("/a"),
        a_started_event("/a/b"),
        a_finished_event("/a/b/c"),
        a_finished_event("/a/b"),
        a_started_event("/a/d"),
        a_finished_event("/e", status="skipped", started_at=None),
    ]
    assert shape(tree_of(events)) == [
        ("a", "running", [("b", "success", [("c", "success", [])]), ("d", "running", [])]),
        ("e", "skipped", []),
    ]


def test_two_steps_with_the_same_path() -> None:
    events = [
        a_started_event("/a"),
        a_finished_event("/a/x"),
        a_finished_event("/a"),
        a_started_event("/a"),
        a_finished_event("/a/x"),
        a_finished_event("/a"),
    ]
    assert shape(tree_of(events)) == [("a", "success", [("x", "success", [])])] * 2


def test_attempts_keep_their_own_steps() -> None:
    events = [
        a_started_event("/a", attempt=1),
        a_finished_event("/a/x", status="failure", attempt=1),
        a_finished_event("/a", status="failure", error="exit status 1", attempt=1, retried=True),
        a_started_event("/a", attempt=2),
        a_finished_event("/a/x", attempt=1),
        a_finished_event("/a/y", attempt=1),
        a_finished_event("/a", attempt=2),
    ]
    [step] = tree_of(events)
    assert (step["attempt"], step["status"], [child["name"] for child in step["steps"]]) == (2, "success", ["x", "y"])
    assert "error" not in step
    [earlier] = step["attempts"]
    assert (earlier["error"], shape(earlier["steps"])) == ("exit status 1", [("x", "failure", [])])
    assert list(attempts([step])) == [earlier, step]


def test_an_attempt_that_never_started() -> None:
    """The step was stopped while it waited for the next attempt, or the next attempt could not be loaded."""
    failed = a_finished_event("/a", status="failure", attempt=1, retried=True)
    [stopped] = tree_of(
        [a_started_event("/a", attempt=1), failed, a_finished_event("/a", status="cancelled", attempt=1)]
    )
    assert (stopped["status"], stopped.get("attempts")) == ("cancelled", None)
    [unloaded] = tree_of(
        [a_started_event("/a", attempt=1), failed, a_finished_event("/a", status="failure", attempt=2)]
    )
    assert (unloaded["attempt"], len(unloaded["attempts"])) == (2, 1)


def test_seq_and_version_of_events_are_omitted() -> None:
    [step] = tree_of([a_finished_event("/a", seq=1, version=1, exit_code=0, log_start=5)])
    assert set(step) == {"path", "name", "status", "started_at", "finished_at", "exit_code", "log_start", "steps"}


def test_own_times_add_up_to_the_times_of_the_top_steps() -> None:
    events = [
        a_started_event("/a"),
        a_finished_event("/a/x", 0, 4),
        a_finished_event("/a/y", 4, 7),
        a_finished_event("/a", 0, 10),
        a_started_event("/both", 10),
        a_finished_event("/both/x", 10, 20),
        a_finished_event("/both/y", 10, 20),
        a_finished_event("/both", 10, 20),
    ]
    seconds_by_path = [(own.step["path"], own.seconds) for own in own_times(tree_of(events), NOW)]
    assert seconds_by_path == [
        ("/a", pytest.approx(3)),
        ("/a/x", pytest.approx(4)),
        ("/a/y", pytest.approx(3)),
        ("/both", 0),
        ("/both/x", pytest.approx(5)),
        ("/both/y", pytest.approx(5)),
    ]


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))
EVENTS = st.builds(
    lambda create, path, start, length, more: (
        create(path, start, **({"end": start + length} if create is a_finished_event else {})) | more
    ),
    st.sampled_from([a_started_event, a_finished_event]),
    PATHS,
    st.floats(0, 100),
    st.floats(0, 100),
    st.sampled_from([{}, {"retried": True, "attempt": 1}, {"attempt": 2}, {"started_at": None}, {"status": 5}]),
)


@given(st.lists(EVENTS, max_size=30))
def test_no_time_counts_twice(events: list[dict[str, Any]]) -> None:
    tree = tree_of(events)
    without_children = [{**step, "steps": []} for step in attempts(tree)]
    total_times = {id(total.step): total for total in own_times(without_children, NOW + 200)}
    own = own_times(tree, NOW + 200)
    if all(step.get("started_at") for step in attempts(tree)):
        assert sum(time.seconds for time in own) <= sum(total.seconds for total in total_times.values()) + 1e-6


@given(st.lists(st.one_of(st.none(), st.integers(), st.text(), st.dictionaries(st.text(), st.text())), max_size=5))
def test_malformed_events_are_ignored(events: list[Any]) -> None:
    assert own_times(tree_of(events), NOW) == []


def test_the_depth_of_a_tree_is_limited() -> None:
    paths = ["/x" * depth for depth in range(1, 2000)]
    tree = tree_of([a_started_event(path) for path in paths])
    steps, depth = tree, 0
    while steps:
        steps, depth = steps[0]["steps"], depth + 1
    assert depth == DEEPEST + 1
    assert len(own_times(tree, NOW)) == len(paths)
