"""Becomes a plugin's program that ends when its host does. Run as a script of its own, so nothing of ours is imported.

The kernel tells a process of its parent's death if it asked for that; most programs never ask. Asking survives becoming
another program, so it is done here, before. The parent is the thread that started it: the host's loop. Where the kernel
knows nothing of the kind the program is on its own. Why a program cannot be started is put into words here, for all.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
NOT_STARTED = 127


def main(host: str, program: str) -> None:
    """Never returns."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != int(host):
            sys.exit(NOT_STARTED)  # the host ended before the kernel knew
    try:
        os.execv(program, [program])
    except OSError as error:
        sys.exit(f"{program} cannot be started: {cause(program, error)}")


def cause(program: str, error: OSError) -> str:
    """Why it cannot be started. Of a script whose interpreter is missing the system says that there is no such file."""
    if isinstance(error, FileNotFoundError) and (interpreter := first_line(program)):
        return f"the interpreter of its first line, {interpreter}, is not there"
    return error.strerror or str(error)


def first_line(program: str) -> str:
    """What a script is to be run with; empty where it is no script."""
    try:
        with open(program, "rb") as file:
            line = file.readline(200)
    except OSError:
        return ""
    return line[2:].decode(errors="replace").strip() if line.startswith(b"#!") else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
