"""docs/reference/security.md states what the isolation suite asserts, and every test that it names exists."""

import ast
import re
from pathlib import Path

from tests.support.isolation import hostile
from tests.support.isolation.isolation_table import PROMISES, Mode, Verdict

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/reference/security.md").read_text()
IN_PIPELINE = {"agent.exchange", "agent.links", "agent.unpacking", "agent.variables", "policy.denied"}
"""Attacks that separate jobs make in `isolation_system`; all others are functions of `hostile`."""
REFERENCE = re.compile(r"\b((?:tests|plugins)/[\w/.-]+\.py)::(\w+)")


def part(name: str) -> str:
    """Return the text between the markers of a part."""
    [text] = re.findall(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", PAGE, re.DOTALL)
    return str(text)


def verdicts() -> dict[str, list[str]]:
    """Return the cells of each row in the table of promises, by the name of the promise."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part("promises").strip().splitlines()]
    return {key.strip("`"): cells for key, *cells in rows[2:]}


def test_the_page_states_what_the_suite_asserts() -> None:
    texts = {
        key: " ".join(text.split())
        for key, text in re.findall(r"^`([\w.]+)`\n: {3}(.*?)(?=\n\n|\Z)", part("attacks"), re.MULTILINE | re.DOTALL)
    }
    described = {key: (texts.get(key), cells[: len(Mode)]) for key, cells in verdicts().items()}
    asserted = {
        promise.key: (
            promise.text,
            ["yes" if promise.verdict(mode) is Verdict.REFUSED else "no" for mode in Mode],
        )
        for promise in PROMISES
    }
    assert described == asserted
    assert texts.keys() == asserted.keys()


def test_every_promise_has_its_attack() -> None:
    attacks = {attack.__name__.replace("_", ".", 1) for attack in hostile.ATTACKS}
    assert {promise.key for promise in PROMISES} == (attacks - {"control.calls"}) | IN_PIPELINE


def test_every_other_promise_names_a_test() -> None:
    promises = part("more promises").split("\n- ")[1:]
    tests_by_promise = {promise: REFERENCE.findall(promise) for promise in promises}
    assert tests_by_promise
    assert [promise for promise, tests in tests_by_promise.items() if not tests] == []


def test_tests_that_the_page_names_exist() -> None:
    references = {(path, name) for path, name in REFERENCE.findall(PAGE)}
    assert references
    assert [f"{path}::{name}" for path, name in sorted(references) if name not in functions(ROOT / path)] == []


def functions(path: Path) -> set[str]:
    if not path.exists():
        return set()
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
