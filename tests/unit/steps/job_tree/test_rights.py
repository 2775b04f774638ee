"""Rights follow the origin of who asked, and of who opened an environment; never what was written."""

from typing import Any

import pytest

from remuda.steps.job_tree import rights
from remuda.steps.job_tree.outcome import SUCCESS
from remuda.steps.job_tree.tree import Entered, Inserted, Loaded, Node, Tree
from remuda.steps.language.reading import read_step
from remuda.steps.language.values import Call, Place, ReferenceKind

BOX = '{name: box, step: "builtin://container", origin: ORIGIN, run: [{name: in, script: "true"}]}'
OURS = {"exec": ["remuda-step", "container_exec", "engine", "c", ""]}


def a_tree(entries: str) -> Tree:
    return Tree(read_step(f"spec: {{remuda: 1}}\n---\nrun: [{entries}]", job=True), work_dir="/work")


def enter(tree: Tree, key: list[int], definition: str, reference: str, *command: str) -> Node:
    node = tree.find(key)
    kind = ReferenceKind.BUILTIN if reference.startswith("builtin://") else ReferenceKind.LOCAL
    loaded = Loaded(step=read_step(f"spec: {{remuda: 1}}\n---\n{definition}"), reference=reference, kind=kind)
    tree.enter(node, loaded, Entered(command=command), serial=tree.serials, stream=1, at=0.0)
    return node


def an_opened_box(origin: str, environment: dict[str, Any]) -> tuple[Tree, Node, Node]:
    """The step that opens a container, and the one in it."""
    tree = a_tree(BOX.replace("ORIGIN", origin))
    words = "environment: {open: {command: [remuda-step, o]}, close: {command: [remuda-step, c]}}"
    box = enter(tree, [0], words, "builtin://container@1.0.0")
    opening = enter(tree, [0, 0], "exec: {command: [x]}", "builtin://container@1.0.0", "remuda-step", "o")
    tree.finish(opening, SUCCESS, {"environment": environment}, {}, [])
    inner = enter(tree, [0, 1], "exec: {command: [x]}", "builtin://script@1.0.0", "x")
    assert inner.host is box
    return tree, opening, inner


def test_what_the_platform_opens_passes_on_with_the_agents_rights() -> None:
    _, opening, inner = an_opened_box("compiled", OURS)
    assert rights.has_agents_rights(opening)
    assert rights.has_agents_rights(inner)
    assert rights.has_private_files(opening, is_job_apart=True)
    assert not rights.has_private_files(inner, is_job_apart=False)


@pytest.mark.parametrize("environment", [OURS, {"exec": ["sh", "-c", "id"]}, {"exec": []}, {}])
def test_what_a_user_opens_never_has_them(environment: dict[str, Any]) -> None:
    _, opening, inner = an_opened_box("user", environment)
    assert not rights.has_agents_rights(opening)
    assert not rights.has_agents_rights(inner)
    assert not rights.has_private_files(opening, is_job_apart=False)


def test_words_that_are_not_our_program_have_no_rights_whoever_opened() -> None:
    _, _, inner = an_opened_box("compiled", {"exec": ["sh", "-c", "id"]})
    assert not rights.has_agents_rights(inner)


@pytest.mark.parametrize(
    ("name", "origin", "has_rights", "is_private_apart", "is_private"),
    [
        ("sign", "compiled", True, True, True),
        ("sign", "user", False, False, False),
        ("checkout", "compiled", False, False, True),
        ("checkout", "user", False, False, False),
        ("service_stop", "compiled", True, True, True),
    ],
)
def test_our_own_programs(name: str, origin: str, has_rights: bool, is_private_apart: bool, is_private: bool) -> None:
    tree = a_tree(f'{{name: it, step: "builtin://{name}", origin: {origin}}}')
    node = enter(tree, [0], "exec: {command: [x]}", f"builtin://{name}@1.0.0", "remuda-step", name)
    assert rights.has_agents_rights(node) == has_rights
    assert rights.has_private_files(node, is_job_apart=True) == is_private_apart
    assert rights.has_private_files(node, is_job_apart=False) == is_private


@pytest.mark.parametrize(("origin", "folder"), [("user", "inserted"), ("compiled", "exchange")])
def test_the_files_of_inserted_steps(origin: str, folder: str) -> None:
    """One that runs in the container of the job's image has the only folder that the container has."""
    step = read_step(f"spec: {{remuda: 1}}\n---\nrun: [{BOX.replace('ORIGIN', origin)}]", job=True)
    scan, around = (
        Call(name=name, origin="inserted", place=Place(file="policy", line=0)) for name in ("scan", "around")
    )
    tree = Tree(step, work_dir="/work", around=Inserted(after=(around,)), insertable={"scan": scan})
    box = enter(tree, [0], "environment: {open: {command: [x]}}", "builtin://container@1.0.0")
    tree.surround(tree.find([0, 1]), ["scan"], [])
    assert rights.exchange_of(tree.find([0, 1])) == folder
    assert rights.exchange_of(tree.find([0, 2])) == rights.exchange_of(box) == "exchange"
    after = enter(tree, [1], "run: [{name: inner, script: 'true'}]", "git://checks")
    assert rights.exchange_of(after) == rights.exchange_of(after.children[0]) == "inserted"


@pytest.mark.parametrize("words", ["sh", [], ["sh", 1], ["sh", "a\0b"]])
def test_an_environment_runs_nothing_by_words_that_no_program_can_be_given(words: Any) -> None:
    tree, _, _ = an_opened_box("user", {"exec": words})
    assert rights.exec_words(tree.find([0])) == ()
