"""docs/reference/security.md says what the isolation suite asserts, and every test that it names is there."""

import ast
import re
from pathlib import Path

from tests.support.isolation import hostile
from tests.support.isolation.promises import PROMISES, Mode, Verdict

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/reference/security.md").read_text()
IN_PIPELINE = {"agent.exchange", "agent.links", "agent.unpacking", "agent.variables", "policy.denied"}
"""Attacks that jobs of their own make, in `scene`; all others are functions of `hostile`."""
REFERENCE = re.compile(r"\b((?:tests|plugins)/[\w/.-]+\.py)::(\w+)")


def rows(name: str) -> list[list[str]]:
    """The cells of a table between its markers, without the head."""
    [text] = re.findall(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", PAGE, re.DOTALL)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def test_the_page_says_what_the_suite_asserts() -> None:
    shown = {key.strip("`"): (text, verdicts[: len(Mode)]) for key, text, *verdicts in rows("promises")}
    asserted = {
        promise.key: (
            promise.text,
            ["yes" if promise.verdict(mode) is Verdict.REFUSED else "no" for mode in Mode],
        )
        for promise in PROMISES
    }
    assert shown == asserted


def test_every_promise_has_its_attack() -> None:
    attacks = {attack.__name__.replace("_", ".", 1) for attack in hostile.ATTACKS}
    assert {promise.key for promise in PROMISES} == (attacks - {"control.calls"}) | IN_PIPELINE


def test_every_other_promise_names_a_test() -> None:
    named = {promise: REFERENCE.findall(tests) for promise, tests in rows("more promises")}
    assert named
    assert [promise for promise, tests in named.items() if not tests] == []


def test_tests_that_the_page_names_are_there() -> None:
    found = {(path, name) for path, name in REFERENCE.findall(PAGE)}
    assert found
    assert [f"{path}::{name}" for path, name in sorted(found) if name not in functions(ROOT / path)] == []


def functions(path: Path) -> set[str]:
    if not path.exists():
        return set()
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
