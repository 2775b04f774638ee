"""Runs the step definitions of step-runner/cases.yml with GitLab's step runner 0.4.0 and with `remuda step run`.

The tests compare status, outputs, exports and exit codes of the step and of every step below it. If Remuda differs, the
key `differs` of the case says why and what Remuda does; the test then also checks that the two still differ.
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
"""Result of a step that could not be loaded."""
EMIT = """#!/bin/sh
file=$1
shift
while [ $# -gt 0 ]; do
  printf '{"name":"%s","value":%s}\\n' "$1" "$2" >>"$file"
  shift 2
done
"""


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_both_programs_run_a_definition_alike(case: Mapping[str, Any], tmp_path: Path) -> None:
    require_built(PROGRAM)
    _write(case, tmp_path)

    theirs, ours = _run_theirs(case, tmp_path), _run_ours(case, tmp_path)

    if "differs" not in case:
        assert ours == theirs
        return
    expected = {key: value for key, value in case["differs"].items() if key != "why"}
    assert expected
    assert {key: ours[key] for key in expected} == expected
    assert ours != theirs, "the results no longer differ: remove `differs` from the case"


def test_there_are_at_least_40_cases() -> None:
    assert len(CASES) >= 40
    assert sum("differs" not in case for case in CASES) >= 40


def _write(case: Mapping[str, Any], folder: Path) -> None:
    for name, text in {"bin/emit": EMIT, **{f"step/{name}": text for name, text in case["files"].items()}}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


def _run_theirs(case: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    words = _options(case, {"inputs": "--inputs", "env": "--env", "vars": "--job"})
    result = folder / "results.json"
    done = _run_program([str(PROGRAM), "run", "./step", "--step-results-file", str(result), *words], folder)
    root = json.loads(result.read_bytes()).get("subStepResults")
    if not root:
        assert "failed to load" in done.stderr
        return LOAD
    return _their_node(root[0]) | {"exit_code": _final_exit_code(root[0])}


def _their_node(node: Mapping[str, Any]) -> dict[str, Any]:
    below = node.get("subStepResults", [])
    return {
        "status": node["status"],
        "exit_code": _exit_code(node),
        "outputs": node.get("outputs", {}),
        "exports": node.get("exports", {}),
        "steps": [{"name": step["step"].get("name", ""), **_their_node(step)} for step in below],
    }


def _exit_code(node: Mapping[str, Any]) -> int | None:
    """Exit code of a command or of a failed sequence. protojson omits 0, and -1 means that no process ran."""
    if "execResult" not in node:
        return _final_exit_code(node) if node["status"] == "failure" else None
    code: int = node["execResult"].get("exitCode", 0)
    return code if code >= 0 else None


def _final_exit_code(node: Mapping[str, Any]) -> int | None:
    """The exit code that `remuda step run` reports for the whole step: that of the command that made it fail."""
    if node["status"] == "success":
        return 0
    if "execResult" in node:
        return _exit_code(node)
    failed = [step for step in node.get("subStepResults", []) if step["status"] == "failure"]
    return _final_exit_code(failed[0]) if failed else None


def _run_ours(case: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    words = _options(case, {"inputs": "--input", "env": "--env", "vars": "--var"})
    done = _run_program([sys.executable, "-m", "remuda", "step", "run", "./step", *words, "--output", "json"], folder)
    if done.returncode == 2:
        assert not done.stdout
        return LOAD
    result = json.loads(done.stdout)
    assert done.returncode == (0 if result["status"] == "success" else 1)
    return _our_node(result)


def _our_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """Without steps that have not run (skipped, or not loadable): the step runner does not report them."""
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


def _run_program(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    env = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(folder), "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
