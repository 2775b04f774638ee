"""`remuda step run` as a process: stdout, stderr, exit codes, and error messages for bad input."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-m", "remuda", "step", "run"]
GREET = """spec:
  inputs:
    who: {type: string}
    times: {type: number, default: 1}
  outputs:
    said: {type: string}
---
run:
  - name: greet
    script: |
      echo "hello ${{ inputs.who }} ${{ inputs.times }} $WORD"
      echo '{"name": "said", "value": "hello ${{ inputs.who }}"}' >>"$REMUDA_OUTPUTS"
outputs:
  said: ${{ steps.greet.outputs.said }}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def step_run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def parse_result(process: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    result: dict[str, Any] = json.loads(process.stdout)
    assert list(result) == ["status", "exit_code", "outputs", "exports", "error", "steps"]
    return result


def test_a_step_gets_inputs_and_gives_outputs(folder: Path) -> None:
    (folder / "greet").mkdir()
    (folder / "greet" / "func.yml").write_text(GREET)

    process = step_run(
        folder, "greet", "--input", "who=you", "--input", "times=2", "--env", "WORD=w", "--output", "json"
    )

    assert process.returncode == 0
    assert "hello you 2 w\n" in process.stderr
    result = parse_result(process)
    assert (result["status"], result["exit_code"], result["error"]) == ("success", 0, None)
    assert result["outputs"] == {"said": "hello you"}
    assert [(step["name"], step["status"], step["steps"]) for step in result["steps"]] == [("greet", "success", [])]


def test_a_dot_is_the_definition_in_the_current_folder(folder: Path) -> None:
    (folder / "step.yml").write_text("spec:\n---\nexec: {command: [sh, -c, 'exit 3']}\n")

    process = step_run(folder, ".")

    assert process.returncode == 1
    result = parse_result(process)
    assert (result["status"], result["exit_code"]) == ("failure", 3)
    assert result["error"] == "exit status 3"


def test_a_job_document_needs_no_spec(folder: Path) -> None:
    (folder / "func.yml").write_text(
        "run:\n  - name: one\n    script: echo first\n  - name: two\n    script: echo second; exit 4\n"
    )

    process = step_run(folder, ".")

    assert process.returncode == 1
    result = parse_result(process)
    assert [(step["name"], step["exit_code"]) for step in result["steps"]] == [("one", 0), ("two", 4)]
    assert result["error"] == 'step "two": exit status 4'


@pytest.mark.parametrize(
    "text",
    [
        "- name: one\n  script: |\n    echo first\n\n    echo $A\n  env: {A: 1.10}\n",
        '[{"name": "one", "script": "echo first; echo 1.10"}]',
        "\ufeff# a remark\n- {name: one, script: echo first; echo 1.10}\n",
    ],
)
def test_a_definition_may_be_a_plain_list_of_steps(folder: Path, text: str) -> None:
    (folder / "func.yml").write_text(text)

    process = step_run(folder, ".")

    assert "first\n1.10\n" in process.stderr
    assert [step["path"] for step in parse_result(process)["steps"]] == ["/one"]


def test_a_command_needs_no_spec(folder: Path) -> None:
    (folder / "func.yml").write_text("exec: {command: [echo, first]}\n")

    process = step_run(folder, ".")

    assert "first\n" in process.stderr
    assert parse_result(process)["status"] == "success"


def test_inputs_are_parsed_like_values_in_definitions(folder: Path) -> None:
    (folder / "func.yml").write_text(
        "spec: {inputs: {a: {type: array}}, outputs: {a: {type: array}}}\n---\n"
        "run: [{name: one, script: 'true'}]\noutputs: {a: '${{ inputs.a }}'}\n"
    )

    process = step_run(folder, ".", "--input", "a=[yes, 2024-01-02, 2024-99-99, 0o17, 1_000]")

    assert parse_result(process)["outputs"] == {"a": ["yes", "2024-01-02", "2024-99-99", 15, 1000]}


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("boolean", "yes", "a boolean is needed"),
        ("number", ".inf", "--input v"),
        ("array", "[" * 3000 + "]" * 3000, "--input v"),
        ("array", "&a [*a]", "--input v"),
        ("struct", "{a: 1, a: 2}", "appears twice"),
        ("number", "1\n---\n2", "--input v"),
    ],
)
def test_an_invalid_input_is_refused(folder: Path, kind: str, value: str, message: str) -> None:
    (folder / "func.yml").write_text(f"spec: {{inputs: {{v: {{type: {kind}}}}}}}\n---\nexec: {{command: [echo]}}\n")

    process = step_run(folder, ".", "--input", f"v={value}")

    assert (process.returncode, process.stdout) == (2, "")
    assert message in process.stderr


def test_messages_contain_no_credentials(folder: Path) -> None:
    process = step_run(folder, "http://user:s3cr3t-word@127.0.0.1:1/project")

    assert process.returncode == 2
    assert "127.0.0.1:1/project" in process.stderr
    assert "s3cr3t-word" not in process.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run: " + "[" * 3000 + "]" * 3000, "func.yml:1: "),
        ("run:\n- {name: a, script: echo, inputs: {day: 2024-99-99}}\n", "func.yml:2: "),
        ("run: [" + "1," * 1_000_000 + "]", "func.yml"),
        ("spec:\n---\nexec: {comand: [x]}\n", "func.yml:3: "),
        ("spec:\n  inputs:\n    a: {type: text}\n---\nexec: {command: [x]}\n", "func.yml:3: "),
        ("spec:\n  inputs:\n    a: {type: string}\n---\nexec: {command: [x]}\n", '"a"'),
        ("spec: [\n", "func.yml:"),
        ("", "func.yml"),
    ],
)
def test_an_invalid_definition_is_reported_with_its_line(folder: Path, text: str, message: str) -> None:
    (folder / "func.yml").write_text(text)

    process = step_run(folder, ".")

    assert process.returncode == 2
    assert not process.stdout
    assert message in process.stderr
    assert "Traceback" not in process.stderr


def test_a_missing_step_or_input_value_is_refused(folder: Path) -> None:
    for arguments in (("./nowhere",), ("builtin://nothing",), ("nowhere",), (".", "--input", "novalue")):
        process = step_run(folder, *arguments)
        assert (process.returncode, process.stdout) == (2, "")
        assert "Traceback" not in process.stderr


def test_a_nested_step_that_cannot_be_loaded_is_a_failure(folder: Path) -> None:
    (folder / "func.yml").write_text("spec:\n---\nrun:\n  - name: gone\n    step: ./nowhere\n")

    process = step_run(folder, ".")

    assert process.returncode == 1
    [step] = parse_result(process)["steps"]
    assert (step["name"], step["status"], step["error_kind"]) == ("gone", "failure", "load")
    assert "nowhere" in step["error"]


def test_names_may_be_used_twice(folder: Path) -> None:
    (folder / "func.yml").write_text(
        "spec:\n---\nrun:\n  - {name: same, script: 'true'}\n  - {name: same, script: 'exit 9'}\n"
    )

    steps = parse_result(step_run(folder, "."))["steps"]

    assert [(step["name"], step["exit_code"]) for step in steps] == [("same", 0), ("same", 9)]


def test_a_step_does_not_see_the_callers_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_MINE", "x")
    (folder / "func.yml").write_text("spec:\n---\nrun:\n  - {name: look, script: env}\n")

    assert "A_SECRET_OF_MINE" not in step_run(folder, ".").stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT])
def test_an_interrupt_cancels(folder: Path, number: signal.Signals) -> None:
    (folder / "func.yml").write_text(
        "spec: {remuda: 1}\n---\nrun:\n"
        "  - {name: long, script: 'touch begun; sleep 300'}\n"
        "finally:\n  - {name: after, script: touch ended}\n"
    )
    with subprocess.Popen([*COMMAND, "."], cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        while not (folder / "begun").exists():
            time.sleep(0.02)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)

    assert process.returncode == 130
    assert json.loads(output)["status"] == "cancelled"
    assert (folder / "ended").exists()


def test_attempts_and_groups_are_in_the_tree(folder: Path) -> None:
    (folder / "func.yml").write_text(
        "spec: {remuda: 1}\n---\nrun:\n"
        "  - {name: flaky, retry: {times: 2}, script: '[ -e mark ] || { touch mark; exit 9; }'}\n"
        "  - {name: both, parallel: [{name: one, script: 'true'}, {name: two, script: 'true'}]}\n"
    )
    flaky, both = parse_result(step_run(folder, "."))["steps"]
    [earlier] = flaky["attempts"]
    assert (flaky["attempt"], flaky["exit_code"]) == (2, 0)
    assert (earlier["attempt"], earlier["status"], earlier["exit_code"]) == (1, "failure", 9)
    assert sorted(step["path"].rpartition("/")[2] for step in both["steps"]) == ["one", "two"]
