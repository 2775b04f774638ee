"""The rights of a step depend on the origin of its entry and of its environment, never on what a definition claims."""

from typing import Any

import pytest

from remuda.steps.job_tree import rights
from remuda.steps.job_tree.outcome import SUCCESS
from remuda.steps.job_tree.tree import Entered, Inserted, Loaded, Node, Tree
from remuda.steps.language.reading import read_step
from remuda.steps.language.values import Call, Place, ReferenceKind

CONTAINER = '{name: box, step: "builtin://container", origin: ORIGIN, run: [{name: in, script: "true"}]}'
OWN_ENVIRONMENT = {"exec": ["remuda-step", "container_exec", "engine", "c", ""]}


def create_tree(entries: str) -> Tree:
    return Tree(read_step(f"spec: {{remuda: 1}}\n---\nrun: [{entries}]", job=True), work_dir="/work")


def enter(tree: Tree, key: list[int], definition: str, reference: str, *command: str) -> Node:
    node = tree.find(key)
    kind = ReferenceKind.BUILTIN if reference.startswith("builtin://") else ReferenceKind.LOCAL
    loaded = Loaded(step=read_step(f"spec: {{remuda: 1}}\n---\n{definition}"), reference=reference, kind=kind)
    tree.enter(node, loaded, Entered(command=command), serial=tree.serials, stream=1, at=0.0)
    return node


def open_container(origin: str, environment: dict[str, Any]) -> tuple[Tree, Node, Node]:
    """Returns the tree, the step that opens the container, and the step inside of it."""
    tree = create_tree(CONTAINER.replace("ORIGIN", origin))
    definition = "environment: {open: {command: [remuda-step, o]}, close: {command: [remuda-step, c]}}"
    container = enter(tree, [0], definition, "builtin://container@1.0.0")
    opening = enter(tree, [0, 0], "exec: {command: [x]}", "builtin://container@1.0.0", "remuda-step", "o")
    tree.finish(opening, SUCCESS, {"environment": environment}, {}, [])
    inner = enter(tree, [0, 1], "exec: {command: [x]}", "builtin://script@1.0.0", "x")
    assert inner.host is container
    return tree, opening, inner


def test_a_container_of_the_platform_has_the_rights_of_the_agent() -> None:
    _, opening, inner = open_container("compiled", OWN_ENVIRONMENT)
    assert rights.has_agents_rights(opening)
    assert rights.has_agents_rights(inner)
    assert rights.has_private_files(opening, is_job_apart=True)
    assert not rights.has_private_files(inner, is_job_apart=False)


@pytest.mark.parametrize("environment", [OWN_ENVIRONMENT, {"exec": ["sh", "-c", "id"]}, {"exec": []}, {}])
def test_a_container_of_the_job_never_has_the_rights_of_the_agent(environment: dict[str, Any]) -> None:
    _, opening, inner = open_container("user", environment)
    assert not rights.has_agents_rights(opening)
    assert not rights.has_agents_rights(inner)
    assert not rights.has_private_files(opening, is_job_apart=False)


def test_another_program_never_has_the_rights_of_the_agent() -> None:
    _, _, inner = open_container("compiled", {"exec": ["sh", "-c", "id"]})
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
def test_rights_and_files_of_standard_steps(
    name: str, origin: str, has_rights: bool, is_private_apart: bool, is_private: bool
) -> None:
    tree = create_tree(f'{{name: a, step: "builtin://{name}", origin: {origin}}}')
    node = enter(tree, [0], "exec: {command: [x]}", f"builtin://{name}@1.0.0", "remuda-step", name)
    assert rights.has_agents_rights(node) == has_rights
    assert rights.has_private_files(node, is_job_apart=True) == is_private_apart
    assert rights.has_private_files(node, is_job_apart=False) == is_private


@pytest.mark.parametrize(("origin", "folder"), [("user", "inserted"), ("compiled", "exchange")])
def test_the_exchange_folder_of_inserted_steps(origin: str, folder: str) -> None:
    """A step in the container of the job's image uses the exchange folder, because that container has no other."""
    step = read_step(f"spec: {{remuda: 1}}\n---\nrun: [{CONTAINER.replace('ORIGIN', origin)}]", job=True)
    scan, after_job = (
        Call(name=name, origin="inserted", place=Place(file="policy", line=0)) for name in ("scan", "after_job")
    )
    tree = Tree(step, work_dir="/work", around=Inserted(after=(after_job,)), insertable={"scan": scan})
    container = enter(tree, [0], "environment: {open: {command: [x]}}", "builtin://container@1.0.0")
    tree.surround(tree.find([0, 1]), ["scan"], [])
    assert rights.exchange_of(tree.find([0, 1])) == folder
    assert rights.exchange_of(tree.find([0, 2])) == rights.exchange_of(container) == "exchange"
    after = enter(tree, [1], "run: [{name: inner, script: 'true'}]", "git://checks")
    assert rights.exchange_of(after) == rights.exchange_of(after.children[0]) == "inserted"


@pytest.mark.parametrize("words", ["sh", [], ["sh", 1], ["sh", "a\0b"]])
def test_invalid_exec_words_of_an_environment_are_ignored(words: Any) -> None:
    tree, _, _ = open_container("user", {"exec": words})
    assert rights.exec_words(tree.find([0])) == ()
