"""Events about steps: their fields, masked secrets, shortened values, and the end time."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.masking import Secrets
from remuda.steps.engine.step_results import (
    LONGEST_TEXT,
    Shown,
    StepProduct,
    choose_end_time,
    finish_event,
    start_event,
)
from remuda.steps.job_tree.outcome import SKIPPED, SUCCESS, Finished, Kind, failure
from remuda.steps.job_tree.tree import Entered, Loaded, Node, Tree
from remuda.steps.language.evaluate import Sensitive
from remuda.steps.language.reading import read_step
from remuda.steps.language.values import ReferenceKind

SECRETS = Secrets(["hidden"])


def create_node(entry: str = "step: ./x", **entered: Any) -> Node:
    tree = Tree(read_step(f"spec: {{remuda: 1}}\n---\nrun: [{{name: a, {entry}}}]"), work_dir="/work")
    node = tree.root.children[0]
    loaded = Loaded(
        step=read_step("spec:\n---\nexec: {command: [x]}"),
        reference="/work/x/func.yml",
        kind=ReferenceKind.LOCAL,
        digest="sha256:1",
    )
    tree.enter(node, loaded, Entered(**entered), serial=0, stream=2, at=5.0)
    node.started_text, node.log_start = "2026-01-01T00:00:00.000000Z", 10
    return node


def create_finish_event(node: Node, result: Finished, outputs: dict[str, Any] | None = None) -> dict[str, Any]:
    return finish_event(
        node,
        result,
        SECRETS,
        StepProduct(ended_at=6.0, outputs=outputs or {}),
        now=7.0,
        log=(10, 20),
        is_retried=False,
    )


def test_events_of_a_step_that_ran() -> None:
    node = create_node(
        inputs={"plain": "a hidden b", "token": Sensitive("t")},
        invocation_env={"E": "hidden"},
        command=("say", "hidden"),
        work_dir="/work",
    )
    assert start_event(node, SECRETS, now=5.0)["log_start"] == 10
    event = create_finish_event(node, SUCCESS, {"o": [1, {"deep": "hidden"}], "s": Sensitive({"a": 1})})
    assert event["inputs"] == {"plain": "a [MASKED] b", "token": "[MASKED]"}
    assert event["env"] == {"E": "[MASKED]"}
    assert event["command"] == ["say", "[MASKED]"]
    assert event["outputs"] == {"o": [1, {"deep": "[MASKED]"}], "s": "[MASKED]"}
    assert event["resolved"] == {
        "reference": "/work/x/func.yml", "digest": "sha256:1", "commit": None, "version": None
    }  # fmt: skip
    assert (event["written"], event["log_stream"], event["attempt"]) == ("./x", "02", 1)
    assert (event["path"], event["log_start"], event["log_end"]) == ("/a", 10, 20)


def test_event_of_a_step_that_did_not_start() -> None:
    tree = Tree(read_step("spec:\n---\nrun: [{name: a, step: 'user:pass@example.com/p@v1'}]"), work_dir="/work")
    event = create_finish_event(tree.root.children[0], failure("no hidden step", Kind.LOAD))
    assert (event["error"], event["error_kind"], event["started_at"]) == ("no [MASKED] step", "load", None)
    assert "pass" not in json.dumps(event)
    assert create_finish_event(tree.root.children[0], SKIPPED)["status"] == "skipped"


def test_the_signal_is_derived_from_the_exit_code() -> None:
    assert create_finish_event(create_node(), failure("exit status 137", Kind.EXIT, exit_code=137))["signal"] == 9
    assert create_finish_event(create_node(), failure("exit status 1", Kind.EXIT, exit_code=1))["signal"] is None


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5),
    max_leaves=50,
)


@given(values)
def test_small_values_are_unchanged(value: Any) -> None:
    assert Shown(Secrets()).value(value, 1_000_000) == value


@given(st.dictionaries(st.text(max_size=10), st.lists(st.text(max_size=3000), max_size=5), max_size=5))
def test_large_values_are_shortened(values: dict[str, Any]) -> None:
    shown = Shown(Secrets()).values(values, 2000)
    assert len(json.dumps(shown, ensure_ascii=False)) < 2000 * 2 + 4000


def test_a_shortened_text_ends_with_the_number_of_missing_characters() -> None:
    shown = Shown(Secrets()).value("x" * (LONGEST_TEXT + 100), LONGEST_TEXT)
    assert shown.endswith("characters more)")


@pytest.mark.parametrize(
    ("written_at", "now", "ended_at"),
    [
        (None, 105.0, 105.0),
        (103.0, 105.0, 103.0),  # the agent was not running when the step ended
        (99.996, 100.01, 100.01),  # file times are less precise than the clock
        (7303.0, 105.0, 105.0),  # the wall clock was set forward
        (-7097.0, 105.0, 105.0),  # the wall clock was set back
        (None, 50.0, 100.0),  # the agent restarted after the clock was set back
    ],
)
def test_a_jump_of_the_clock_changes_no_steps_duration(written_at: float | None, now: float, ended_at: float) -> None:
    assert choose_end_time(written_at, started_at=100.0, now=now) == ended_at
