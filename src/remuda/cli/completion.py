"""`remuda completion`: prints a script with which a shell completes commands, options and their values.

A separate module, because building the script imports every command."""

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

ZSH_END = """
if [[ "${funcstack[1]}" == _remuda ]]; then
  _remuda "$@"
else
  compdef _remuda remuda
fi
"""
"""zsh calls the file as a function at the first completion; with `source` it only has to register the function."""


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="The shell that gets the script.")], /
) -> None:
    """Print a script that lets a shell complete the commands and options of remuda.

    Write it where the shell looks for completions, and start a new shell. After an update, write it again.

    Try:

        remuda completion bash > ~/.local/share/bash-completion/completions/remuda
        remuda completion fish > ~/.config/fish/completions/remuda.fish
        remuda completion zsh > ~/.zfunc/_remuda     # with fpath+=~/.zfunc before compinit in ~/.zshrc
        source <(remuda completion bash)             # for this shell only
    """
    from remuda.cli.main import build_app

    script = build_app([]).generate_completion(prog_name="remuda", shell=shell)
    if shell == "zsh":
        # So that the file can have the usual name, and `source` works, too.
        script = script.replace("_cyclopts_remuda", "_remuda") + ZSH_END
    sys.stdout.write(script)
