import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.engine.script import check_script, echo_of, script_command, script_text
from remuda.steps.errors import DefinitionError

GREEN, PLAIN = "\033[32;1m", "\033[0;m"


def test_commands_of_a_list_are_echoed_and_a_single_text_is_not() -> None:
    assert script_text("make", variables={}) == "make\n"
    text = script_text(["make", "a\nb"], variables={"X": "it's"})
    assert text.splitlines() == [
        "X='it'\"'\"'s'",
        f"printf '%s\\n' '{GREEN}$ make{PLAIN}'; make",
        f"printf '%s\\n' '{GREEN}$ a # collapsed multi-line command{PLAIN}'; a",
        "b",
    ]


@pytest.mark.parametrize(
    ("commands", "output"),
    [
        (["cat <<END", "text", "END", "echo after"], ["text", "after"]),
        (["case x in x) echo found", ";; esac", "echo after"], ["found", "after"]),
        (["if true; then", "echo inside", "fi", "# comment", "", "echo after"], ["inside", "after"]),
    ],
)
def test_constructs_over_several_commands_of_a_list(commands: list[str], output: list[str], tmp_path: Path) -> None:
    for shell in ("auto", "sh"):
        completed = _run({"script": commands, "shell": shell}, tmp_path / "file")
        assert completed.returncode == 0, completed.stderr
        lines = [line for line in completed.stdout.splitlines() if GREEN not in line]
        assert lines == output


BLOCK = """echo one
f() {
  no_such_command_3
}
f || true
no_such_command_6"""


@pytest.mark.parametrize("inside", [False, True], ids=["on the machine", "in an environment"])
@pytest.mark.parametrize("shell", ["auto", "bash", "sh"])
@pytest.mark.parametrize("script", [BLOCK, [BLOCK], BLOCK.splitlines()], ids=["text", "one command", "commands"])
def test_errors_have_the_line_numbers_of_the_users_script(
    script: str | list[str], shell: str, inside: bool, tmp_path: Path
) -> None:
    completed = _run({"script": script, "shell": shell}, tmp_path / "file", inside=inside)
    assert completed.returncode == 127
    third, sixth = [line for line in completed.stderr.splitlines() if "no_such_command" in line]
    assert re.search(r"\b3: ", third)
    assert re.search(r"\b6: ", sixth)
    assert sixth.startswith("script: ")
    assert str(tmp_path) not in completed.stderr


def test_busybox_counts_lines_like_other_shells(tmp_path: Path) -> None:
    program = shutil.which("busybox")
    if program is None:
        pytest.fail("busybox is missing; tools/packages lists the Debian packages for tests")
    (tmp_path / "sh").symlink_to(program)
    (tmp_path / "cat").symlink_to(program)
    completed = _run({"script": BLOCK, "shell": "auto"}, tmp_path / "file", inside=True, path=str(tmp_path))
    assert completed.stderr.splitlines() == [
        "script: eval: line 3: no_such_command_3: not found",
        "script: eval: line 6: no_such_command_6: not found",
    ]


def _run(
    inputs: dict[str, Any], file: Path, *, inside: bool = False, path: str = os.environ["PATH"]
) -> subprocess.CompletedProcess[str]:
    command, text = script_command(inputs, file, path=None if inside else path, variables={})
    file.write_text(text)
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": path})


@pytest.mark.parametrize("inside", [False, True], ids=["on the machine", "in an environment"])
@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("echo a\0\necho b", ["a", "b"]),
        (["echo a\0", "echo b"], ["a", "b"]),
        ("echo a \\", ["a"]),
        ("trap 'echo bye' EXIT\nexec 3>&1\necho a >&3", ["a", "bye"]),
        ("cat <<-'END'\n\t$x\n\tEND", ["$x"]),
    ],
    ids=["NUL in a text", "NUL in a command", "continued at its end", "trap and exec", "here-document at its end"],
)
def test_unusual_scripts(script: str | list[str], output: list[str], shell: str, inside: bool, tmp_path: Path) -> None:
    completed = _run({"script": script, "shell": shell}, tmp_path / "file", inside=inside)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert [line for line in completed.stdout.splitlines() if GREEN not in line] == output


@pytest.mark.parametrize("inside", [False, True], ids=["on the machine", "in an environment"])
@pytest.mark.parametrize("shell", ["auto", "bash", "sh"])
@pytest.mark.parametrize("script", ["X=1\necho $X\nfalse", ["X=1", "echo $X", "false"]], ids=["text", "commands"])
def test_trace_shows_each_command_with_its_values(
    script: str | list[str], shell: str, inside: bool, tmp_path: Path
) -> None:
    inputs = {"script": script, "shell": shell, "debug_trace": True}
    completed = _run(inputs, tmp_path / "file", inside=inside)
    assert completed.returncode == 1
    # Bash writes two + before commands of evaluated text.
    traced = [re.sub(r"^\++ ", "+ ", line) for line in completed.stderr.splitlines()]
    assert [line for line in traced if not line.startswith("+ printf")] == ["+ X=1", "+ echo 1", "+ false"]
    assert "1" in completed.stdout.splitlines()


def test_trace_keeps_line_numbers_and_hides_variables_that_are_set_before(tmp_path: Path) -> None:
    command, text = script_command(
        {"script": BLOCK, "debug_trace": True}, tmp_path / "file", path=os.environ["PATH"], variables={"LARGE": "value"}
    )
    (tmp_path / "file").write_text(text)
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "line 7: no_such_command_6" in completed.stderr or "7: no_such_command_6" in completed.stderr
    assert "value" not in completed.stderr


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_debug_trace_is_a_boolean(value: object) -> None:
    with pytest.raises(DefinitionError, match='input "debug_trace": true or false is needed'):
        check_script({"script": "x", "debug_trace": value})


def test_trace_in_powershell(tmp_path: Path) -> None:
    _, text = script_command(
        {"script": ["a"], "shell": "pwsh", "debug_trace": True}, tmp_path, path="", variables={"LARGE": "value"}
    )
    assert text.index("LARGE") < text.index("Set-PSDebug -Trace 2") < text.index("\na\n")


def test_a_trailing_newline_is_not_a_second_line() -> None:
    assert echo_of("make\n") == f"{GREEN}$ make{PLAIN}"
    assert echo_of("\nmake\nx\n") == f"{GREEN}$ make # collapsed multi-line command{PLAIN}"


@given(st.text(st.characters(blacklist_characters="\0\n", blacklist_categories=["Cs"]), min_size=1, max_size=20))
def test_any_command_is_echoed_unchanged(command: str) -> None:
    echo = script_text([command], variables={}).removesuffix(f"{command}\n").rstrip("; \n")
    completed = subprocess.run(["sh", "-c", echo], capture_output=True, check=True)
    assert completed.stdout.decode() == f"{GREEN}$ {command}{PLAIN}\n"
