"""`remuda completion`: the scripts work in real shells."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script for each shell, made by the command in a process."""
    folder = tmp_path_factory.mktemp("completion")
    for shell, name in (("bash", "remuda"), ("zsh", "_remuda"), ("fish", "remuda.fish")):
        command = [sys.executable, "-m", "remuda", "completion", shell]
        (folder / name).write_bytes(subprocess.run(command, check=True, capture_output=True).stdout)
    return folder


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        (["jo"], {"job"}),
        (["job", "ret"], {"retry"}),
        (["job", "list", "--stat"], {"--status"}),
        (["job", "list", "--output", ""], {"text", "json"}),
        (["project", "members", "root/shop", "--role", "main"], {"maintainer"}),
        (["cell", "keys", ""], {"list", "rotate"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
    ],
)
def test_bash(scripts: Path, line: list[str], completions: set[str]) -> None:
    program = (
        f"source {scripts / 'remuda'}\n"
        'COMP_WORDS=(remuda "$@"); COMP_CWORD=$#; COMPREPLY=()\n'
        "_remuda\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    result = subprocess.run(
        ["bash", "--norc", "-c", program, "bash", *line], check=True, capture_output=True, text=True
    )
    assert set(result.stdout.split()) == completions
    assert result.stderr == ""


def test_bash_finds_the_script_for_the_command(scripts: Path) -> None:
    result = subprocess.run(
        ["bash", "--norc", "-c", f"source {scripts / 'remuda'}; complete -p remuda"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert result.stdout == "complete -F _remuda remuda\n"


def complete_in_fish(scripts: Path, line: str) -> set[str]:
    program = f"source {scripts / 'remuda.fish'}; complete -C '{line}'"
    result = subprocess.run(["fish", "-N", "-c", program], check=True, capture_output=True, text=True)
    return {row.partition("\t")[0] for row in result.stdout.splitlines()}


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish(scripts: Path) -> None:
    assert complete_in_fish(scripts, "remuda job ret") >= {"retry"}
    assert complete_in_fish(scripts, "remuda job list --stat") >= {"--status"}
    assert {"text", "json"} <= complete_in_fish(scripts, "remuda job list --output ")


class Terminal:
    """The terminal of a program. `wait_for` consumes the output up to a text, and keeps what follows."""

    def __init__(self, file: int) -> None:
        self.file = file
        self._rest = ""

    def type(self, text: str) -> None:
        os.write(self.file, text.encode())

    def wait_for(self, text: str, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while text not in self._rest:
            assert time.monotonic() < end, self._rest
            if select.select([self.file], [], [], 0.2)[0]:
                self._rest += os.read(self.file, 4096).decode(errors="replace")
        self._rest = self._rest.partition(text)[2]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh(scripts: Path, tmp_path: Path) -> None:
    pid, file = pty.fork()
    if pid == 0:
        variables: dict[str, Any] = {**os.environ, "TERM": "xterm", "HOME": str(tmp_path), "PS1": "ready> "}
        os.execvpe("zsh", ["zsh", "-f", "-i"], variables)
    try:
        terminal = Terminal(file)
        terminal.wait_for("ready> ")
        terminal.type(f"PS1='READY''> '; fpath=({scripts} $fpath); autoload -U compinit; compinit -u -D\n")
        # zsh must have taken the terminal over before a Tab comes.
        terminal.wait_for("READY> ")
        terminal.type("remuda job ret\t")
        terminal.wait_for("ry")
        terminal.type("7 --foll\t")
        terminal.wait_for("ow")
    finally:
        os.close(file)
        os.waitpid(pid, 0)
