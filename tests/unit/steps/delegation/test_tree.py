"""What is sent to another agent, and what becomes of its answers."""

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


def test_steps_are_read_there_as_they_were_written_here() -> None:
    step = read_step(CALLS)
    sent = request_text(step.definition.run, Inherited())
    again = read_step(sent, job=True).definition.run

    def without_places(text: object) -> str:
        return re.sub(r"Place\([^)]*\)", "", repr(text))

    assert without_places(again) == without_places(step.definition.run)


def test_what_expressions_may_ask_for_goes_along() -> None:
    context = Inherited(
        inputs={"plain": [1], "token": Sensitive("t")},
        steps={"a": {"outputs": {"o": 1}}, "secret": {"outputs": {"o": Sensitive("s")}}},
        exports={"E": "e"},
    )
    again = read_context(request_text((), context))
    assert again.inputs == {"plain": [1], "token": Sensitive("t")}
    assert (again.steps, again.exports) == ({"a": {"outputs": {"o": 1}}}, {"E": "e"})


@pytest.mark.parametrize("text", ["{}\n---\n{}", "a\n---\nb\n---\nc", '{}\n---\n{}\n---\n{"other": 1}'])
def test_a_request_that_no_agent_wrote_says_nothing_more(text: str) -> None:
    assert read_context(text) == Inherited()


def test_results_are_read_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "results"
    assert read_returned(path, 0) == ([], None, (0, 0))
    path.write_text('{"event":"started","seq":1}\n{"event":"fin')
    assert read_returned(path, 0)[:2] == ([{"event": "started", "seq": 1}], None)
    path.write_text('{"event":"started","seq":1}\n{"event":"finished","seq":2}\n{"event":"end","status":"success"}\n')
    assert read_returned(path, 1)[:2] == ([{"event": "finished", "seq": 2}], {"event": "end", "status": "success"})


def test_a_result_stands_below_the_environment() -> None:
    tree = Tree(read_step("spec: {remuda: 1}\n---\nrun: [{name: env, step: ./x}]"), work_dir="/")
    host = tree.root.children[0]
    node = Node(host.call, host, 0, DELEGATE)
    event = {"version": 1, "seq": 3, "event": "finished", "path": "/a/b", "environment": "/a"}
    assert translate_result(node, event) == {"event": "finished", "path": "/env/a/b", "environment": "/env/a"}
    assert translate_result(node, json.loads('{"path": "/a"}')) == {"path": "/env/a", "environment": "/env"}


def test_how_the_steps_there_ended() -> None:
    def end(status: str, reason: str = "", exit_code: int = -1) -> dict[str, object]:
        return {"status": status, "reason": reason, "exit_code": exit_code, "message": "m"}

    assert outcome_of(end("success")).status is Status.SUCCESS
    assert outcome_of(end("cancelled", "job_canceled")).status is Status.CANCELLED
    failed = outcome_of(end("failure", "script_failure", 3))
    assert (failed.exit_code, failed.fault, failed.error) == (3, Fault.USER, "m")
    assert outcome_of(end("failure", "runner_system_failure")).fault is Fault.RUNNER


def test_results_are_read_on_from_where_they_were_read_to(tmp_path: Path) -> None:
    path = tmp_path / "results"
    path.write_text('{"event":"started","seq":1}\n{"event":"fin')
    events, end, place = read_returned(path, 0)
    assert ([event["seq"] for event in events], end, place) == ([1], None, (28, 1))
    path.write_text(" " * 28 + '{"event":"finished","seq":2}\n{"event":"end"}\n')
    assert read_returned(path, 1, place) == ([{"event": "finished", "seq": 2}], {"event": "end"}, place)
