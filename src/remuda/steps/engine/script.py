"""Builds the text of a script for its shell. Unless the step names a shell, bash runs it if there is one, else sh.

A script stops at the first command that fails. The text is passed as a file, so its length is not limited."""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.steps.engine import powershell
from remuda.steps.errors import DefinitionError

INPUTS = ("script", "shell", "debug_trace")
SHELLS = ("auto", "bash", "sh", *powershell.SHELLS)

# Shells write the path of a script file before their errors, which means nothing to a reader. Text that is evaluated
# has the name given here instead; line numbers stay the same. Bash needs no process for it; the other shells start cat.
# BusyBox counts the lines of evaluated text from 0, hence the empty line. $() removes the last line feed, which a
# backslash before it needs.
_NAMED_BASH = 'IFS= read -r -d "" _remuda_script <"$1" || :; shift; eval "unset _remuda_script; $_remuda_script"'
_NAMED_SH = (
    """_remuda_script=$(eval '[ "$LINENO" != 0 ] || echo'; cat "$1"); shift; """
    'eval "unset _remuda_script; $_remuda_script\n"'
)
_BASH, _SH = ("-e", "-o", "pipefail"), ("-e",)
# Inside an environment: $1 is the file, $2 and $3 are the texts above.
_RUN_BASH = f'exec bash {" ".join(_BASH)} -c "$2" script "$1"'
_RUN_SH = f'exec sh {" ".join(_SH)} -c "$3" script "$1"'
_CHOOSE = {
    "auto": f"if command -v bash >/dev/null 2>&1; then {_RUN_BASH}; else {_RUN_SH}; fi",
    "bash": _RUN_BASH,
    "sh": _RUN_SH,
}
_USUAL = "/usr/local/bin:/usr/bin:/bin"
_GREEN, _PLAIN = "\033[32;1m", "\033[0;m"


def check_script(inputs: Mapping[str, Any]) -> None:
    """Raise DefinitionError if the inputs are not valid for a script step."""
    for name in inputs:
        if name not in INPUTS:
            raise DefinitionError(f'step does not accept input with name "{name}"; a script has "script" and "shell"')
    text = inputs.get("script")
    is_list = isinstance(text, list) and all(isinstance(line, str) for line in text)
    if not text or not (isinstance(text, str) or is_list):
        raise DefinitionError('input "script": a text or a list of texts is needed, and not an empty one')
    if inputs.get("shell", "auto") not in SHELLS:
        raise DefinitionError(f'input "shell": one of {", ".join(SHELLS)} is needed')
    if not isinstance(inputs.get("debug_trace", False), bool):
        raise DefinitionError('input "debug_trace": true or false is needed')


def script_command(
    inputs: Mapping[str, Any], file: Path, *, path: str | None, variables: Mapping[str, str]
) -> tuple[list[str], str]:
    """Return the shell's command line and the content of the script `file`. `path`: PATH to search for the shell; None
    for a script inside an environment, where it is found at run time. `variables` are set but not exported."""
    commands, shell_name, is_traced = inputs["script"], inputs.get("shell", "auto"), inputs.get("debug_trace", False)
    if shell_name in powershell.SHELLS:
        text = powershell.powershell_text(commands, echo=echo_of, variables=variables, is_traced=is_traced)
        return powershell.powershell_command(shell_name, file), text
    text = script_text(commands, variables=variables, is_traced=is_traced)
    if path is None:
        return ["sh", "-c", _CHOOSE[shell_name], "script", str(file), _NAMED_BASH, _NAMED_SH], text
    shell = "/bin/sh" if shell_name == "sh" else _find_bash(path) or "/bin/sh"
    if shell_name == "bash" and not shell.endswith("bash"):
        raise DefinitionError('input "shell": there is no bash here; use sh, or auto')
    options, named = (_BASH, _NAMED_BASH) if shell.endswith("bash") else (_SH, _NAMED_SH)
    return [shell, *options, "-c", named, "script", str(file)], text


def _find_bash(path: str) -> str | None:
    """Search for bash in `path`, then in the usual folders, which a job's PATH may lack."""
    return shutil.which("bash", path=path) or shutil.which("bash", path=_USUAL)


def script_text(commands: str | Sequence[str], *, variables: Mapping[str, str], is_traced: bool = False) -> str:
    """Return the script's content. `variables` are set but not exported. Each command of a list is printed before it
    runs; that does not change line numbers, unless a command needs a line of its own: it ends a here-document or a
    branch of `case`. `is_traced`: the shell prints every command with its values, except the assignments of
    `variables`."""
    trace = "set -x; " if is_traced else ""
    lines = [f"{key}={shlex.quote(value)}" for key, value in variables.items()]
    if isinstance(commands, str):
        lines.append(trace + commands)
    else:
        needs_line = any("<<" in command or command.lstrip().startswith(";") for command in commands)
        between = "\n" if needs_line else "; "
        echoed = [f"printf '%s\\n' {shlex.quote(echo_of(command))}{between}{command}" for command in commands]
        lines += [trace + echoed[0], *echoed[1:]]
    # A shell cannot hold a NUL in a variable; in a file it ignores it.
    return "\n".join(lines).replace("\0", "") + "\n"


def echo_of(command: str) -> str:
    first, _, rest = command.strip("\n").partition("\n")
    more = " # collapsed multi-line command" if rest.strip() else ""
    return f"{_GREEN}$ {first}{more}{_PLAIN}"
