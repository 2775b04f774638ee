"""The request that is sent to another agent, and the translation of the results that it returns."""

import json
import re
from pathlib import Path

import pytest

from remuda.steps.delegation.tree import outcome_of, read_context, read_returned, request_text, translate_result
from remuda.steps.job_tree.outcome import Fault, Status
from remuda.steps.job_tree.tree import DELEGATE, Inherited, Node, Tree
from remuda.steps.language.evaluate import Sensitive
from remuda.steps.language.reading import read_step

CALLS = """
spec: {remuda: 1}
---
run:
  - {name: a, step: ./x, inputs: {n: 1, t: "${{ steps.b.outputs.o }}"}, env: {E: "1"}, if: "always() && inputs.x"}
  - {name: b, script: "echo '\\\\${{ x }}'", retry: {times: 2, delay: 3}, timeout: 4, continue_on_error: true}
  - {name: c, step: "example.com/group/project@v1"}
  - {name: d, step: {git: {url: "https://example.com/p", rev: main, dir: sub, file: x.yml}}}
  - {name: e, step: {oci: {registry: r.example, repository: a/b, tag: "1"}}}
  - {name: f, step: "./${{ vars.WHICH }}"}
  - name: g
    parallel:
      - {name: h, script: x}
      - {name: i, step: builtin://container@1, inputs: {image: y}, run: [{name: j, script: z}]}
"""


def test_sent_steps_equal_the_original_ones() -> None:
    step = read_step(CALLS)
    sent = request_text(step.definition.run, Inherited())
    received = read_step(sent, job=True).definition.run

    def format_without_places(text: object) -> str:
        return re.sub(r"Place\([^)]*\)", "", repr(text))

    assert format_without_places(received) == format_without_places(step.definition.run)


def test_values_for_expressions_are_sent_with_the_request() -> None:
    context = Inherited(
        inputs={"plain": [1], "token": Sensitive("t")},
        steps={"a": {"outputs": {"o": 1}}, "secret": {"outputs": {"o": Sensitive("s")}}},
        exports={"E": "e"},
    )
    received = read_context(request_text((), context))
    assert received.inputs == {"plain": [1], "token": Sensitive("t")}
    assert (received.steps, received.exports) == ({"a": {"outputs": {"o": 1}}}, {"E": "e"})


@pytest.mark.parametrize("text", ["{}\n---\n{}", "a\n---\nb\n---\nc", '{}\n---\n{}\n---\n{"other": 1}'])
def test_the_context_of_an_unknown_request_is_empty(text: str) -> None:
    assert read_context(text) == Inherited()


def test_only_complete_lines_of_results_are_read(tmp_path: Path) -> None:
    path = tmp_path / "results"
    assert read_returned(path, 0) == ([], None, (0, 0))
    path.write_text('{"event":"started","seq":1}\n{"event":"fin')
    assert read_returned(path, 0)[:2] == ([{"event": "started", "seq": 1}], None)
    path.write_text('{"event":"started","seq":1}\n{"event":"finished","seq":2}\n{"event":"end","status":"success"}\n')
    assert read_returned(path, 1)[:2] == ([{"event": "finished", "seq": 2}], {"event": "end", "status": "success"})


def test_paths_of_results_are_below_the_environment() -> None:
    tree = Tree(read_step("spec: {remuda: 1}\n---\nrun: [{name: env, step: ./x}]"), work_dir="/")
    host = tree.root.children[0]
    node = Node(host.call, host, 0, DELEGATE)
    event = {"version": 1, "seq": 3, "event": "finished", "path": "/a/b", "environment": "/a"}
    assert translate_result(node, event) == {"event": "finished", "path": "/env/a/b", "environment": "/env/a"}
    assert translate_result(node, json.loads('{"path": "/a"}')) == {"path": "/env/a", "environment": "/env"}


def test_outcomes_of_the_other_agent_are_translated() -> None:
    def end(status: str, reason: str = "", exit_code: int = -1) -> dict[str, object]:
        return {"status": status, "reason": reason, "exit_code": exit_code, "message": "m"}

    assert outcome_of(end("success")).status is Status.SUCCESS
    assert outcome_of(end("cancelled", "job_canceled")).status is Status.CANCELLED
    failed = outcome_of(end("failure", "script_failure", 3))
    assert (failed.exit_code, failed.fault, failed.error) == (3, Fault.USER, "m")
    assert outcome_of(end("failure", "runner_system_failure")).fault is Fault.RUNNER


def test_results_are_read_from_the_last_position_on(tmp_path: Path) -> None:
    path = tmp_path / "results"
    path.write_text('{"event":"started","seq":1}\n{"event":"fin')
    events, end, position = read_returned(path, 0)
    assert ([event["seq"] for event in events], end, position) == ([1], None, (28, 1))
    path.write_text(" " * 28 + '{"event":"finished","seq":2}\n{"event":"end"}\n')
    assert read_returned(path, 1, position) == ([{"event": "finished", "seq": 2}], {"event": "end"}, position)
