"""What a step's process executes: the text of a script, or one of the standard steps.

A script runs in bash where there is one, else in sh, and stops at the first command that fails. It is a file, so its
length has no limit and nothing of it stands in an argument list. Pure, but for looking up the shell; `shim` starts it.
"""

import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.lib.files import write_whole
from remuda.steps.definition import Step
from remuda.steps.files import StepFiles

# Bash puts the path of a script file before its errors, and the agent's folder means nothing to a reader. Text that is
# evaluated is called by the name given here instead; lines count the same, and no process is started for it.
_NAMED = 'IFS= read -r -d "" _remuda_script <"$1"; shift; eval "unset _remuda_script; $_remuda_script"'
_GREEN, _PLAIN = "\033[32;1m", "\033[0;m"


def prepare(files: StepFiles, step: Step, *, path: str, shell_variables: Mapping[str, str]) -> list[str]:
    """Write what the step's program reads, and say how to start it."""
    if step.builtin == "script":
        shell = shutil.which("bash", path=path) or "/bin/sh"
        is_bash = shell.endswith("bash")
        text = script_text(step.inputs["script"], bash=is_bash, variables=shell_variables)
        write_whole(files.script, text.encode("utf-8", "surrogateescape"))
        # Reading stops at a NUL, which a script file may hold.
        named = ["-c", _NAMED, "script"] if is_bash and "\0" not in text else []
        return [shell, *named, str(files.script)]
    write_whole(files.inputs, json.dumps(dict[str, Any](step.inputs)).encode())
    return [sys.executable, "-I", *own_program("step", "remuda.stdsteps"), step.builtin]


def script_text(commands: str | Sequence[str], *, bash: bool, variables: Mapping[str, str]) -> str:
    """The file the shell reads."""
    lines = [f"{key}={shlex.quote(value)}" for key, value in variables.items()]
    lines.append("set -eo pipefail" if bash else "set -e")
    if isinstance(commands, str):
        lines.append(commands)
    else:
        for command in commands:
            lines += [f"printf '%s\\n' {shlex.quote(echo_of(command))}", command]
    return "\n".join(lines) + "\n"


def echo_of(command: str) -> str:
    """How the log announces a command."""
    first, _, rest = command.strip("\n").partition("\n")
    more = " # collapsed multi-line command" if rest.strip() else ""
    return f"{_GREEN}$ {first}{more}{_PLAIN}"


def own_program(command: str, module: str) -> list[str]:
    """What Python runs for a part of ours: it comes out of the same file as the agent where that runs from one."""
    packed = Path(__file__).parents[2]
    return [str(packed), command] if packed.is_file() else ["-m", module]
