"""Evaluation of step entries and definitions in a tree: inputs, environments, outputs and conditions."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remuda.steps.errors import DefinitionError
from remuda.steps.job_tree import replay
from remuda.steps.job_tree.evaluation import (
    Facts,
    condition_holds,
    environment_above,
    evaluate,
    evaluate_root,
    run_outputs,
    secrets_in,
    step_environment,
)
from remuda.steps.job_tree.outcome import SUCCESS, Cause
from remuda.steps.job_tree.sequence import Level
from remuda.steps.job_tree.tree import Entered, Inherited, Loaded, Node, Tree
from remuda.steps.language.evaluate import Sensitive, reveal
from remuda.steps.language.reading import read_step
from remuda.steps.language.values import ReferenceKind

FACTS = Facts(
    base_env={"PATH": "/bin", "A": "base"},
    agent_env={"PATH": "/bin", "A": "base"},
    request_env={"A": "request", "V": "var"},
    variables={"V": "var"},
    work_dir="/work",
    folder=Path("/job"),
    key="key",
)


def create_tree(text: str) -> Tree:
    return Tree(read_step(f"spec: {{remuda: 1}}\n---\n{text}"), work_dir="/work")


def create_loaded(text: str, *, reference: str = "/work/x/func.yml") -> Loaded:
    return Loaded(
        step=read_step(text), reference=reference, kind=ReferenceKind.LOCAL, folder="/work/x", digest=reference
    )


def enter(tree: Tree, node: Node, loaded: Loaded) -> Entered:
    serial = tree.serials
    entered = evaluate(tree, FACTS, node, loaded, serial)
    tree.enter(node, loaded, entered, serial=serial, stream=1, at=0.0)
    return entered


def finish(tree: Tree, node: Node, **outputs: Any) -> None:
    tree.finish(node, SUCCESS, outputs, {}, [])


def test_a_command_is_evaluated_in_its_context() -> None:
    tree = create_tree('run: [{name: a, step: ./x, inputs: {who: "${{ vars.V }}"}, env: {E: "${{ env.A }}+"}}]')
    entered = enter(
        tree,
        tree.root.children[0],
        create_loaded(
            "spec: {inputs: {who: {type: string}}}\n---\n"
            "exec: {command: [say, '${{ inputs.who }} ${{ env.D }}', '${{ output_file }}'], work_dir: sub}\n"
            "env: {D: '${{ env.E }}${{ func_dir }}'}"
        ),
    )
    assert entered.inputs == {"who": "var"}
    assert (entered.invocation_env, entered.definition_env) == ({"E": "request+"}, {"D": "request+/work/x"})
    assert entered.command == ("say", "var request+/work/x", "/job/exchange/step-0.outputs")
    assert entered.work_dir == "/work/sub"


@pytest.mark.parametrize("work_dir", ["/abs/../there", "/there"])
def test_an_absolute_work_dir(work_dir: str) -> None:
    tree = create_tree("run: [{name: a, step: ./x}]")
    loaded = create_loaded(f"spec:\n---\nexec: {{command: [x], work_dir: {work_dir}}}")
    assert enter(tree, tree.root.children[0], loaded).work_dir == "/there"


def test_the_environment_has_layers() -> None:
    tree = create_tree("run: [{name: outer, step: ./x, env: {B: outer, C: outer, A: '${{ env.A }}/outer'}}]")
    tree.exports |= {"A": "export", "B": "export", "X": "export"}
    outer = tree.root.children[0]
    enter(
        tree,
        outer,
        create_loaded("spec:\n---\nrun: [{name: in, step: ./y, env: {D: call, E: call}}]\nenv: {C: list, D: list}"),
    )
    inner = outer.children[0]
    enter(tree, inner, create_loaded("spec:\n---\nexec: {command: [x]}\nenv: {E: definition}", reference="/y"))
    env = step_environment(tree, FACTS, inner)
    assert env == {
        "PATH": "/bin", "V": "var", "CI_JOB_STATUS": "running", "A": "export/outer", "B": "outer", "C": "list",
        "D": "call", "E": "definition", "X": "export",
    }  # fmt: skip


def test_members_of_a_group_see_the_steps_of_the_enclosing_list() -> None:
    tree = create_tree(
        "run: [{name: first, step: ./x},"
        " {name: g, parallel: [{name: m, step: ./x, inputs: {v: '${{ steps.first.outputs.o }}'}}]},"
        " {name: last, step: ./x, inputs: {v: '${{ steps.m.outputs.o }}'}}]"
    )
    first, group, last = tree.root.children
    loaded = create_loaded("spec: {inputs: {v: {type: number, default: 0}}}\n---\nexec: {command: [x]}")
    enter(tree, first, loaded)
    finish(tree, first, o=1)
    enter(tree, group, Loaded(step=read_step("spec:\n---\nexec: {command: [x]}"), reference=""))
    member = group.children[0]
    assert enter(tree, member, loaded).inputs == {"v": 1}
    finish(tree, member, o=2)
    finish(tree, group)
    assert enter(tree, last, loaded).inputs == {"v": 2}


def test_sensitive_values_stay_marked_and_their_texts_are_collected() -> None:
    tree = create_tree("run: [{name: a, step: ./x, inputs: {t: secret}}]")
    loaded = create_loaded(
        "spec: {inputs: {t: {type: string, sensitive: true}}}\n---\n"
        "exec: {command: [say, 'x${{ inputs.t }}']}\nenv: {T: 't${{ inputs.t }}'}"
    )
    entered = enter(tree, tree.root.children[0], loaded)
    assert isinstance(entered.inputs["t"], Sensitive)
    assert entered.command == ("say", "xsecret")
    assert secrets_in(entered.inputs, entered.definition_env) == ["secret", "tsecret"]
    assert secrets_in(Sensitive({"a": ["deep", 12345, 12, True, None, "ab"]})) == ["deep", "12345"]


def test_outputs_of_a_list_are_evaluated() -> None:
    tree = create_tree("run: [{name: a, step: ./x}]")
    node = tree.root.children[0]
    spec = "spec: {outputs: {o: {type: string}}}\n---\n"
    enter(
        tree,
        node,
        create_loaded(f"{spec}run: [{{name: in, script: x}}]\noutputs: {{o: 'got ${{{{ steps.in.outputs.v }}}}'}}"),
    )
    with pytest.raises(DefinitionError, match="attribute not found"):
        run_outputs(tree, FACTS, node)
    finish(tree, node.children[0], v=5)
    assert run_outputs(tree, FACTS, node) == {"o": "got 5"}


def test_delegated_outputs_of_a_list() -> None:
    tree = create_tree("run: [{name: a, step: ./x}]")
    node = tree.root.children[0]
    enter(tree, node, create_loaded("spec: {outputs: delegate}\n---\nrun: [{name: in, script: x}]\ndelegate: in"))
    with pytest.raises(DefinitionError, match='no step "in" has run'):
        run_outputs(tree, FACTS, node)
    finish(tree, node.children[0], v=5)
    assert run_outputs(tree, FACTS, node) == {"v": 5}


@pytest.mark.parametrize(
    ("condition", "level", "expected"),
    [
        ("vars.V == 'var'", Level(failed=False, stopped=None), True),
        ("vars.V == 'var'", Level(failed=True, stopped=None), False),
        ("failure() && vars.V == 'var'", Level(failed=True, stopped=None), True),
        ("cancelled()", Level(failed=False, stopped=Cause.CANCEL), True),
        ("cancelled()", Level(failed=False, stopped=Cause.JOB_TIMEOUT), False),
        ("failure()", Level(failed=False, stopped=Cause.JOB_TIMEOUT), True),
    ],
)
def test_conditions_depend_on_values_and_status(condition: str, level: Level, expected: bool) -> None:
    tree = create_tree(f'run: [{{name: a, step: ./x, if: "{condition}"}}]')
    assert condition_holds(tree, FACTS, tree.root.children[0], level) is expected


def test_exports_and_entries_override_the_variables_of_the_job() -> None:
    tree = create_tree("run: [{name: a, step: ./x, env: {B: entry}}]")
    tree.exports |= {"A": "export", "B": "export"}
    node = tree.root.children[0]
    enter(tree, node, create_loaded("spec: {remuda: 1}\n---\nenvironment: {open: {command: [o]}}\nenv: {C: own}"))
    assert environment_above(tree, node) == {"A": "export", "B": "entry"}


def test_replaying_the_events_gives_the_same_tree() -> None:
    second_entry = "{name: b, step: ./x, inputs: {t: '${{ steps.a.outputs.o }}'}}"
    text = f"run: [{{name: a, step: ./x, inputs: {{t: secret}}}}, {second_entry}]"
    loaded = create_loaded(
        "spec: {inputs: {t: {type: string, sensitive: true}}}\n---\nexec: {command: [x, '${{ inputs.t }}']}",
    )
    live, events = create_tree(text), []

    def record(event: dict[str, Any], entering: tuple[Loaded, Entered] | None = None) -> None:
        events.append(event)
        replay.apply(live, FACTS, event, entering=entering)

    first, second = live.root.children
    for node, outputs in ((first, {"o": Sensitive("computed")}), (second, None)):
        enter_event = replay.enter_event(
            node,
            copy_with_text(loaded),
            serial=live.serials,
            stream=1,
            at=1.0,
            text="t",
            log_start=0,
            timeout_seconds=None,
        )
        record(enter_event, (loaded, evaluate(live, FACTS, node, loaded, live.serials)))
        if outputs is not None:
            record(replay.finish_event(node, SUCCESS, outputs, {"E": "x"}, ["mask"]))
    record(replay.stop_event(live.root, Cause.CANCEL))
    replayed = create_tree(text)
    for event in events:
        replay.apply(replayed, FACTS, event)
    assert replayed.root.children[1].entered == second.entered
    assert second.entered.command == ("x", "computed")
    assert (replayed.exports, replayed.masks, replayed.cancelled) == (live.exports, live.masks, True)
    assert {"secret", "computed", "mask"} == set(replayed.masks)
    assert list(replayed.open) == list(live.open) == [1]
    assert reveal(replayed.root.steps["a"]["outputs"]) == {"o": "computed"}


def copy_with_text(loaded: Loaded) -> Loaded:
    """Copy a loaded step with the text of its definition, which the journal stores."""
    return Loaded(
        step=loaded.step,
        reference=loaded.reference,
        kind=loaded.kind,
        folder=loaded.folder,
        digest=loaded.digest,
        text="spec: {inputs: {t: {type: string, sensitive: true}}}\n---\nexec: {command: [x, '${{ inputs.t }}']}",
    )


def test_the_definition_of_the_job_has_defaults_and_variables() -> None:
    text = "spec: {inputs: {who: {type: string, default: Ada}}}\n---\n"
    text += "env: {A: '${{ env.A }} ${{ inputs.who }} ${{ vars.V }}'}\nrun: [{name: one, step: ./x}]"
    tree = Tree(read_step(text), work_dir="/work")
    tree.root.entered = evaluate_root(tree, FACTS)
    assert tree.root.entered.inputs == {"who": "Ada"}
    [node] = tree.root.children
    entered = evaluate(tree, FACTS, node, create_loaded("spec: {}\n---\nexec: {command: ['${{ env.A }}']}"), 0)
    assert entered.command == ("request Ada var",)


def test_inputs_of_delegated_steps_stay() -> None:
    step = read_step("{}\n---\nrun: [{name: one, script: echo}]")
    tree = Tree(step, work_dir="/work", context=Inherited(inputs={"who": "Eve"}))
    assert evaluate_root(tree, FACTS).inputs == {"who": "Eve"}


def test_commands_of_a_step_see_its_folder_where_it_is_visible() -> None:
    tree = create_tree("run: [{name: one, step: ./x}]")
    [node] = tree.root.children
    loaded = create_loaded("spec: {}\n---\nexec: {command: ['${{ func_dir }}/run', '${{ step_dir }}']}")
    assert evaluate(tree, FACTS, node, loaded, 0).command == ("/work/x/run", "/work/x")
    shown = replace(loaded, visible_folder="/job/packages/k/files/x")
    assert evaluate(tree, FACTS, node, shown, 0).command[0] == "/job/packages/k/files/x/run"
