"""Script that replaces itself by a plugin's program (exec), after asking the kernel to kill it when its host dies.

The host runs it with `-I -S`, so it imports the standard library only. PR_SET_PDEATHSIG (Linux only) survives exec. The
kernel kills the program when the thread that started it ends: the thread of the host's event loop."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
NOT_STARTED = 127


def main(host: str, program: str) -> None:
    """Replace this process by `program`. Never returns. `host`: process id of the host."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != int(host):
            sys.exit(NOT_STARTED)  # the host died before the signal was set
    try:
        os.execv(program, [program])
    except OSError as error:
        sys.exit(f"{program} cannot be started: {explain_start_error(program, error)}")


def explain_start_error(program: str, error: OSError) -> str:
    """Why a program cannot be started; names a missing interpreter, for which the system reports only ENOENT."""
    if isinstance(error, FileNotFoundError) and (interpreter := read_interpreter(program)):
        return f"the interpreter in its first line, {interpreter}, does not exist"
    return error.strerror or str(error)


def read_interpreter(program: str) -> str:
    """The command after `#!` in a script's first line; empty for other files."""
    try:
        with open(program, "rb") as file:
            line = file.readline(200)
    except OSError:
        return ""
    return line[2:].decode(errors="replace").strip() if line.startswith(b"#!") else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
