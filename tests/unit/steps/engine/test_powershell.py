"""The script text for PowerShell. It is not run, because the test machines have no PowerShell."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.engine.powershell import powershell_command, powershell_text, quote
from remuda.steps.engine.script import check_script, script_command
from remuda.steps.errors import DefinitionError

_LITERAL = re.compile(r"'((?:[^'‘’‚‛]|['‘’‚‛]{2})*)'")
"""A literal in single quotes by the rules of PowerShell."""


def unquote(text: str) -> str:
    match = _LITERAL.fullmatch(text)
    assert match is not None
    return re.sub(r"(['‘’‚‛])['‘’‚‛]", r"\1", match[1])


@given(st.text("a'‘’‚‛\"$`\n ", max_size=20))
def test_quote_can_be_reversed(text: str) -> None:
    assert unquote(quote(text)) == text


def test_every_command_is_echoed_and_checked() -> None:
    text = powershell_text(["echo 'a'", "false\ntrue"], echo=lambda command: f"$ {command}")
    lines = text.splitlines()
    start = lines.index("[Console]::Out.WriteLine('$ echo ''a''')")
    check = "if (-not $?) { exit $(if ($LASTEXITCODE) { $LASTEXITCODE } else { 1 }) }"
    assert lines[start + 1 : start + 3] == ["echo 'a'", check]
    assert lines[-4:] == ["false", "true", check, "exit 0"]
    assert lines[:2] == ["$ErrorActionPreference = 'Stop'", "$PSNativeCommandUseErrorActionPreference = $true"]
    assert any(line.startswith("trap {") for line in lines)


def test_shell_variables_are_set_before_the_commands() -> None:
    text = powershell_text("echo $LARGE", echo=str, variables={"LARGE": "it's"})
    assert "${LARGE} = 'it''s'\necho $LARGE\nif (-not $?)" in text


@pytest.mark.parametrize("shell", ["pwsh", "powershell"])
def test_the_shell_reads_the_script_from_its_file(shell: str) -> None:
    inputs = {"script": ["Get-Date"], "shell": shell}
    check_script(inputs)
    command, text = script_command(inputs, Path("/jobs/o'neil/step-1.script"), path="/bin", variables={})
    assert command == powershell_command(shell, Path("/jobs/o'neil/step-1.script"))
    assert command[0] == shell
    assert command[-1] == "& ([scriptblock]::Create([IO.File]::ReadAllText('/jobs/o''neil/step-1.script')))"
    assert "\nGet-Date\n" in text
    inside_container, _ = script_command(inputs, Path("/x"), path=None, variables={})
    assert inside_container[0] == shell


def test_another_shell_is_refused() -> None:
    with pytest.raises(DefinitionError, match="auto, bash, sh, pwsh, powershell"):
        check_script({"script": "x", "shell": "cmd"})
