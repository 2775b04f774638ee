"""The same definitions through GitLab's step runner 0.4.0 and `remuda step run`: step-runner/cases.yml.

Compared: how the step and every step below it ended, outputs, exports and exit codes. Where Remuda does something else,
the case says why and what; the test then also checks that the two still differ.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.built_programs import require_built

PROGRAM = Path(__file__).parents[2] / "build" / "interop" / "step-runner"
CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "step-runner" / "cases.yml").read_text())
LOAD: dict[str, Any] = {"status": "load", "exit_code": None, "outputs": {}, "exports": {}, "steps": []}
"""The step could not be loaded."""
EMIT = """#!/bin/sh
file=$1
shift
while [ $# -gt 0 ]; do
  printf '{"name":"%s","value":%s}\\n' "$1" "$2" >>"$file"
  shift 2
done
"""


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_both_make_the_same_of_a_definition(case: Mapping[str, Any], tmp_path: Path) -> None:
    require_built(PROGRAM)
    _write(case, tmp_path)

    theirs, ours = _theirs(case, tmp_path), _ours(case, tmp_path)

    if "differs" not in case:
        assert ours == theirs
        return
    expected = {key: value for key, value in case["differs"].items() if key != "why"}
    assert expected
    assert {key: ours[key] for key in expected} == expected
    assert ours != theirs, "no difference any more: take `differs` out of the case"


def test_enough_is_compared() -> None:
    assert len(CASES) >= 40
    assert sum("differs" not in case for case in CASES) >= 40


def _write(case: Mapping[str, Any], folder: Path) -> None:
    for name, text in {"bin/emit": EMIT, **{f"step/{name}": text for name, text in case["files"].items()}}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


def _theirs(case: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    words = _options(case, {"inputs": "--inputs", "env": "--env", "vars": "--job"})
    result = folder / "results.json"
    ended = _called([str(PROGRAM), "run", "./step", "--step-results-file", str(result), *words], folder)
    root = json.loads(result.read_bytes()).get("subStepResults")
    if not root:
        assert "failed to load" in ended.stderr
        return LOAD
    return _their_node(root[0]) | {"exit_code": _deciding(root[0])}


def _their_node(node: Mapping[str, Any]) -> dict[str, Any]:
    below = node.get("subStepResults", [])
    return {
        "status": node["status"],
        "exit_code": _code(node),
        "outputs": node.get("outputs", {}),
        "exports": node.get("exports", {}),
        "steps": [{"name": step["step"].get("name", ""), **_their_node(step)} for step in below],
    }


def _code(node: Mapping[str, Any]) -> int | None:
    """Of a command, and of a list that failed; protojson leaves out a number that is 0, and -1 means no process."""
    if "execResult" not in node:
        return _deciding(node) if node["status"] == "failure" else None
    code: int = node["execResult"].get("exitCode", 0)
    return code if code >= 0 else None


def _deciding(node: Mapping[str, Any]) -> int | None:
    """What `remuda step run` tells of the whole: the exit code of the command that made it fail."""
    if node["status"] == "success":
        return 0
    if "execResult" in node:
        return _code(node)
    failed = [step for step in node.get("subStepResults", []) if step["status"] == "failure"]
    return _deciding(failed[0]) if failed else None


def _ours(case: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    words = _options(case, {"inputs": "--input", "env": "--env", "vars": "--var"})
    ended = _called([sys.executable, "-m", "remuda", "step", "run", "./step", *words, "--output", "json"], folder)
    if ended.returncode == 2:
        assert not ended.stdout
        return LOAD
    answer = json.loads(ended.stdout)
    assert ended.returncode == (0 if answer["status"] == "success" else 1)
    return _our_node(answer)


def _our_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """Without steps that have not run, which theirs does not tell of: skipped ones, and those that cannot be loaded."""
    ran = [step for step in node["steps"] if step["status"] != "skipped" and step["error_kind"] != "load"]
    return {key: node[key] for key in ("status", "exit_code", "outputs", "exports")} | {
        "steps": [{"name": step["name"], **_our_node(step)} for step in ran]
    }


def _options(case: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    return [
        word
        for key, option in names.items()
        for name, value in case.get(key, {}).items()
        for word in (option, f"{name}={value}")
    ]


def _called(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    env = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(folder), "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
