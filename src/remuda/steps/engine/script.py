"""Builds the text of a script for its shell. Unless the step names a shell, bash runs it if there is one, else sh.

A script stops at the first command that fails. The text is passed as a file, so its length is not limited."""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.steps.engine import powershell
from remuda.steps.errors import DefinitionError

SHELLS = ("auto", "bash", "sh", *powershell.SHELLS)

# Bash writes the path of a script file before its errors, which means nothing to a reader. Text that is evaluated has
# the name given here instead; line numbers stay the same, and no process is started for it.
_NAMED = 'IFS= read -r -d "" _remuda_script <"$1"; shift; eval "unset _remuda_script; $_remuda_script"'
_CHOOSE = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$2" script "$1"; else exec sh "$1"; fi'
_USUAL = "/usr/local/bin:/usr/bin:/bin"
_GREEN, _PLAIN = "\033[32;1m", "\033[0;m"


def check_script(inputs: Mapping[str, Any]) -> None:
    """Raise DefinitionError if the inputs are not valid for a script step."""
    for name in inputs:
        if name not in ("script", "shell"):
            raise DefinitionError(f'step does not accept input with name "{name}"; a script has "script" and "shell"')
    text = inputs.get("script")
    is_list = isinstance(text, list) and all(isinstance(line, str) for line in text)
    if not text or not (isinstance(text, str) or is_list):
        raise DefinitionError('input "script": a text or a list of texts is needed, and not an empty one')
    if inputs.get("shell", "auto") not in SHELLS:
        raise DefinitionError(f'input "shell": one of {", ".join(SHELLS)} is needed')


def script_command(
    inputs: Mapping[str, Any], file: Path, *, path: str | None, variables: Mapping[str, str]
) -> tuple[list[str], str]:
    """Return the shell's command line and the content of the script `file`. `path`: PATH to search for the shell; None
    for a script inside an environment, where it is found at run time. `variables` are set but not exported."""
    commands, shell_name = inputs["script"], inputs.get("shell", "auto")
    if shell_name in powershell.SHELLS:
        text = powershell.powershell_text(commands, echo=echo_of, variables=variables)
        return powershell.powershell_command(shell_name, file), text
    if path is None:
        choose = _CHOOSE if shell_name == "auto" else f'exec {shell_name} "$1"'
        text = script_text(commands, bash=None, variables=variables)
        return ["sh", "-c", choose, "script", str(file), *([_NAMED] if shell_name == "auto" else [])], text
    shell = "/bin/sh" if shell_name == "sh" else _find_bash(path) or "/bin/sh"
    if shell_name == "bash" and not shell.endswith("bash"):
        raise DefinitionError('input "shell": there is no bash here; use sh, or auto')
    is_bash = shell.endswith("bash")
    text = script_text(commands, bash=is_bash, variables=variables)
    # `read` stops at a NUL, which a script may contain.
    named = ["-c", _NAMED, "script"] if is_bash and "\0" not in text else []
    return [shell, *named, str(file)], text


def _find_bash(path: str) -> str | None:
    """Search for bash in `path`, then in the usual folders, which a job's PATH may lack."""
    return shutil.which("bash", path=path) or shutil.which("bash", path=_USUAL)


def script_text(commands: str | Sequence[str], *, bash: bool | None, variables: Mapping[str, str]) -> str:
    """Return the script's content. `bash`: bash runs it (None: not known yet). `variables` are set but not exported."""
    lines = [f"{key}={shlex.quote(value)}" for key, value in variables.items()]
    match bash:
        case True:
            lines.append("set -eo pipefail")
        case False:
            lines.append("set -e")
        case None:
            lines.append('set -e; if [ -n "${BASH_VERSION-}" ]; then set -o pipefail; fi')
    if isinstance(commands, str):
        lines.append(commands)
    else:
        for command in commands:
            lines += [f"printf '%s\\n' {shlex.quote(echo_of(command))}", command]
    return "\n".join(lines) + "\n"


def echo_of(command: str) -> str:
    first, _, rest = command.strip("\n").partition("\n")
    more = " # collapsed multi-line command" if rest.strip() else ""
    return f"{_GREEN}$ {first}{more}{_PLAIN}"
