"""Builds script text and command line for `pwsh` (PowerShell 7) and `powershell` (5.1, only on Windows). No I/O.

Only `pwsh` can stop by itself when a program fails, so a check is added after every command of the script. PowerShell
reads the file as text and evaluates it: as a script file it would need the suffix `.ps1` and a byte order mark, and the
machine's execution policy may forbid it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SHELLS = ("pwsh", "powershell")
_CODE = "$(if ($LASTEXITCODE) { $LASTEXITCODE } else { 1 })"
_HEAD = (
    "$ErrorActionPreference = 'Stop'",
    "$PSNativeCommandUseErrorActionPreference = $true",
    "$ProgressPreference = 'SilentlyContinue'",
    # Input and output of programs is UTF-8, whatever the machine's code page is.
    "[Console]::OutputEncoding = $OutputEncoding = New-Object System.Text.UTF8Encoding $false",
    "$global:LASTEXITCODE = 0",
    f"trap {{ [Console]::Out.Flush(); [Console]::Error.WriteLine(($_ | Out-String).TrimEnd()); exit {_CODE} }}",
)
_CHECK = f"if (-not $?) {{ exit {_CODE} }}"
_QUOTES = str.maketrans({quote: quote * 2 for quote in "'\u2018\u2019\u201a\u201b"})
"""PowerShell treats typographic quotes like plain ones."""


def powershell_command(shell: str, file: Path) -> list[str]:
    read = f"& ([scriptblock]::Create([IO.File]::ReadAllText({quote(str(file))})))"
    return [shell, "-NoLogo", "-NoProfile", "-NonInteractive", "-Command", read]


def powershell_text(
    commands: str | Sequence[str],
    *,
    echo: Callable[[str], str],
    variables: Mapping[str, str] | None = None,
    is_traced: bool = False,
) -> str:
    """Return the content of the script file for `powershell_command`. If `commands` is a list, `echo` returns the line
    that is printed before each command. `variables` are set in this shell but not exported. `is_traced`: print every
    command with its values before it runs."""
    lines = [*_HEAD, *(f"${{{name}}} = {quote(value)}" for name, value in (variables or {}).items())]
    if is_traced:
        lines.append("Set-PSDebug -Trace 2")
    if isinstance(commands, str):
        lines += [commands, _CHECK]
    else:
        for command in commands:
            lines += [f"[Console]::Out.WriteLine({quote(echo(command))})", command, _CHECK]
    return "\n".join([*lines, "exit 0"]) + "\n"


def quote(text: str) -> str:
    return f"'{text.translate(_QUOTES)}'"
