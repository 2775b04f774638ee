"""Runs commands in a running container by the engine's exec API."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from remuda.stdsteps.common.errors import PlatformError
from remuda.stdsteps.engine.docker_api import Engine, Stream

END_SECONDS = 30.0
"""Longest time between the end of a command's output and its exit code."""


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
    """Start a command in a container. Returns its exec id and the stream of its output and input. `terminal`: the
    command gets a terminal. `takes_input`: stdin is connected to the stream."""
    body: dict[str, Any] = {
        "Cmd": list(command),
        "Env": [f"{key}={value}" for key, value in (env or {}).items()],
        "AttachStdout": True,
        "AttachStderr": True,
        "AttachStdin": takes_input,
        "Tty": terminal,
    }
    body |= {"WorkingDir": work_dir} if work_dir else {}
    body |= {"User": user} if user else {}
    exec_id = str(engine.call("POST", f"/containers/{container}/exec", body=body)["Id"])
    start = {"Detach": False, "Tty": terminal}
    return exec_id, engine.stream(f"/exec/{exec_id}/start", body=start, framed=not terminal)


def is_running(engine: Engine, exec_id: str) -> bool:
    return bool(engine.call("GET", f"/exec/{exec_id}/json")["Running"])


def resize(engine: Engine, exec_id: str, *, columns: int, rows: int) -> None:
    engine.call("POST", f"/exec/{exec_id}/resize", query={"h": rows, "w": columns})


def exit_code(engine: Engine, exec_id: str) -> int:
    """Return the exit code of a command whose output has ended. Raises PlatformError if the engine does not report it
    within END_SECONDS."""
    until = time.monotonic() + END_SECONDS
    while time.monotonic() < until:
        state = engine.call("GET", f"/exec/{exec_id}/json")
        if not state["Running"] and state["ExitCode"] is not None:
            return int(state["ExitCode"])
        time.sleep(0.02)
    raise PlatformError("the container engine does not report the exit code of the command")


def run_inside(
    engine: Engine, container: str, command: Sequence[str], *, user: str = "", seconds: float = 60.0
) -> tuple[int, bytes]:
    """Run a short command in a container; return exit code and output. Raises PlatformError after `seconds`."""
    exec_id, stream = begin(engine, container, command, user=user)
    until = time.monotonic() + seconds
    output = b""
    try:
        while (parts := stream.read(max(until - time.monotonic(), 0.0))) is not None:
            output += b"".join(data for _, data in parts)
            if time.monotonic() >= until:
                raise PlatformError(f"a command in the container {container[:12]} takes too long: {command[0]}")
    finally:
        stream.close()
    return exit_code(engine, exec_id), output
