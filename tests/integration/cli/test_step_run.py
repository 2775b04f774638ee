"""`remuda step run` as a user types it: what goes to stdout and stderr, exit codes, what is refused and how."""

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


def called(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *words], cwd=folder, env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False
    )


def result(ended: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(ended.stdout)
    assert list(answer) == ["status", "exit_code", "outputs", "exports", "error", "steps"]
    return answer


def test_a_step_gets_inputs_and_gives_outputs(folder: Path) -> None:
    (folder / "greet").mkdir()
    (folder / "greet" / "func.yml").write_text(GREET)

    ended = called(folder, "greet", "--input", "who=you", "--input", "times=2", "--env", "WORD=w", "--output", "json")

    assert ended.returncode == 0
    assert "hello you 2 w\n" in ended.stderr
    answer = result(ended)
    assert (answer["status"], answer["exit_code"], answer["error"]) == ("success", 0, None)
    assert answer["outputs"] == {"said": "hello you"}
    assert [(step["name"], step["status"], step["steps"]) for step in answer["steps"]] == [("greet", "success", [])]


def test_a_dot_is_the_definition_in_this_folder(folder: Path) -> None:
    (folder / "step.yml").write_text("spec:\n---\nexec: {command: [sh, -c, 'exit 3']}\n")

    ended = called(folder, ".")

    assert ended.returncode == 1
    answer = result(ended)
    assert (answer["status"], answer["exit_code"]) == ("failure", 3)
    assert answer["error"] == "exit status 3"


def test_a_job_document_needs_no_spec(folder: Path) -> None:
    (folder / "func.yml").write_text(
        "run:\n  - name: one\n    script: echo first\n  - name: two\n    script: echo second; exit 4\n"
    )

    ended = called(folder, ".")

    assert ended.returncode == 1
    answer = result(ended)
    assert [(step["name"], step["exit_code"]) for step in answer["steps"]] == [("one", 0), ("two", 4)]
    assert answer["error"] == 'step "two": exit status 4'


@pytest.mark.parametrize(
    "text",
    [
        "- name: one\n  script: |\n    echo first\n\n    echo $A\n  env: {A: 1.10}\n",
        '[{"name": "one", "script": "echo first; echo 1.10"}]',
        "\ufeff# a remark\n- {name: one, script: echo first; echo 1.10}\n",
    ],
)
def test_a_list_of_steps_needs_nothing_around_it(folder: Path, text: str) -> None:
    (folder / "func.yml").write_text(text)

    ended = called(folder, ".")

    assert "first\n1.10\n" in ended.stderr
    assert [step["path"] for step in result(ended)["steps"]] == ["/one"]


def test_a_command_needs_no_spec(folder: Path) -> None:
    (folder / "func.yml").write_text("exec: {command: [echo, first]}\n")

    ended = called(folder, ".")

    assert "first\n" in ended.stderr
    assert result(ended)["status"] == "success"


def test_inputs_are_read_as_definitions_are(folder: Path) -> None:
    (folder / "func.yml").write_text(
        "spec: {inputs: {a: {type: array}}, outputs: {a: {type: array}}}\n---\n"
        "run: [{name: one, script: 'true'}]\noutputs: {a: '${{ inputs.a }}'}\n"
    )

    ended = called(folder, ".", "--input", "a=[yes, 2024-01-02, 2024-99-99, 0o17, 1_000]")

    assert result(ended)["outputs"] == {"a": ["yes", "2024-01-02", "2024-99-99", 15, 1000]}


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        ("boolean", "yes", "a boolean is needed"),
        ("number", ".inf", "--input v"),
        ("array", "[" * 3000 + "]" * 3000, "--input v"),
        ("array", "&a [*a]", "--input v"),
        ("struct", "{a: 1, a: 2}", "stands twice"),
        ("number", "1\n---\n2", "--input v"),
    ],
)
def test_an_input_that_is_none_is_refused(folder: Path, kind: str, value: str, told: str) -> None:
    (folder / "func.yml").write_text(f"spec: {{inputs: {{v: {{type: {kind}}}}}}}\n---\nexec: {{command: [echo]}}\n")

    ended = called(folder, ".", "--input", f"v={value}")

    assert (ended.returncode, ended.stdout) == (2, "")
    assert told in ended.stderr


def test_messages_have_no_credentials(folder: Path) -> None:
    ended = called(folder, "http://user:s3cr3t-word@127.0.0.1:1/project")

    assert ended.returncode == 2
    assert "127.0.0.1:1/project" in ended.stderr
    assert "s3cr3t-word" not in ended.stderr


@pytest.mark.parametrize(
    ("text", "told"),
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
def test_what_cannot_be_loaded_is_told_with_its_place(folder: Path, text: str, told: str) -> None:
    (folder / "func.yml").write_text(text)

    ended = called(folder, ".")

    assert ended.returncode == 2
    assert not ended.stdout
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_is_not_there_is_told(folder: Path) -> None:
    for words in (("./nowhere",), ("builtin://nothing",), ("nowhere",), (".", "--input", "novalue")):
        ended = called(folder, *words)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "Traceback" not in ended.stderr


def test_a_step_below_that_cannot_be_loaded_is_a_failure(folder: Path) -> None:
    (folder / "func.yml").write_text("spec:\n---\nrun:\n  - name: gone\n    step: ./nowhere\n")

    ended = called(folder, ".")

    assert ended.returncode == 1
    [step] = result(ended)["steps"]
    assert (step["name"], step["status"], step["error_kind"]) == ("gone", "failure", "load")
    assert "nowhere" in step["error"]


def test_names_may_be_used_twice(folder: Path) -> None:
    (folder / "func.yml").write_text(
        "spec:\n---\nrun:\n  - {name: same, script: 'true'}\n  - {name: same, script: 'exit 9'}\n"
    )

    steps = result(called(folder, "."))["steps"]

    assert [(step["name"], step["exit_code"]) for step in steps] == [("same", 0), ("same", 9)]


def test_of_the_callers_environment_little_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_MINE", "x")
    (folder / "func.yml").write_text("spec:\n---\nrun:\n  - {name: look, script: env}\n")

    assert "A_SECRET_OF_MINE" not in called(folder, ".").stderr


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
        printed, _ = process.communicate(timeout=60)

    assert process.returncode == 130
    assert json.loads(printed)["status"] == "cancelled"
    assert (folder / "ended").exists()


def test_attempts_and_groups_are_in_the_tree(folder: Path) -> None:
    (folder / "func.yml").write_text(
        "spec: {remuda: 1}\n---\nrun:\n"
        "  - {name: flaky, retry: {times: 2}, script: '[ -e mark ] || { touch mark; exit 9; }'}\n"
        "  - {name: both, parallel: [{name: one, script: 'true'}, {name: two, script: 'true'}]}\n"
    )
    flaky, both = result(called(folder, "."))["steps"]
    [earlier] = flaky["attempts"]
    assert (flaky["attempt"], flaky["exit_code"]) == (2, 0)
    assert (earlier["attempt"], earlier["status"], earlier["exit_code"]) == (1, "failure", 9)
    assert sorted(step["path"].rpartition("/")[2] for step in both["steps"]) == ["one", "two"]
