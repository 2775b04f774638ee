"""Commands in a running container, through the engine's exec: begin one, follow it, learn how it ended."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from remuda.stdsteps.common.errors import PlatformError
from remuda.stdsteps.engine.docker_api import Engine, Stream

END_SECONDS = 30.0
"""Between the end of a command's output and the moment when the engine knows its exit code."""


def begin(
    engine: Engine,
    container: str,
    command: Sequence[str],
    *,
    work_dir: str = "",
    env: Mapping[str, str] | None = None,
    user: str = "",
    terminal: bool = False,
    takes_input: bool = False,
) -> tuple[str, Stream]:
    """Start a command: its number at the engine, and its output; its input too, where it takes some."""
    wish: dict[str, Any] = {
        "Cmd": list(command),
        "Env": [f"{key}={value}" for key, value in (env or {}).items()],
        "AttachStdout": True,
        "AttachStderr": True,
        "AttachStdin": takes_input,
        "Tty": terminal,
    }
    wish |= {"WorkingDir": work_dir} if work_dir else {}
    wish |= {"User": user} if user else {}
    number = str(engine.call("POST", f"/containers/{container}/exec", body=wish)["Id"])
    start = {"Detach": False, "Tty": terminal}
    return number, engine.stream(f"/exec/{number}/start", body=start, framed=not terminal)


def is_running(engine: Engine, number: str) -> bool:
    return bool(engine.call("GET", f"/exec/{number}/json")["Running"])


def resize(engine: Engine, number: str, *, columns: int, rows: int) -> None:
    """Tell the terminal of a command how large it is."""
    engine.call("POST", f"/exec/{number}/resize", query={"h": rows, "w": columns})


def exit_code(engine: Engine, number: str) -> int:
    """Of a command whose output has ended."""
    until = time.monotonic() + END_SECONDS
    while time.monotonic() < until:
        known = engine.call("GET", f"/exec/{number}/json")
        if not known["Running"] and known["ExitCode"] is not None:
            return int(known["ExitCode"])
        time.sleep(0.02)
    raise PlatformError("the container engine does not say how the command ended")


def run_inside(
    engine: Engine, container: str, command: Sequence[str], *, user: str = "", seconds: float = 60.0
) -> tuple[int, bytes]:
    """A short command from beginning to end: exit code and output."""
    number, stream = begin(engine, container, command, user=user)
    until = time.monotonic() + seconds
    output = b""
    try:
        while (parts := stream.read(max(until - time.monotonic(), 0.0))) is not None:
            output += b"".join(data for _, data in parts)
            if time.monotonic() >= until:
                raise PlatformError(f"a command in the container {container[:12]} does not end: {command[0]}")
    finally:
        stream.close()
    return exit_code(engine, number), output
