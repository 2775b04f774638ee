"""Reads the output of a container, and shows it in the job's log."""

from remuda.stdsteps.common.log import say
from remuda.stdsteps.engine.docker_api import Engine, Frames

LARGEST_READ_BYTES = 4 * 1024 * 1024
LARGEST_SHOWN_BYTES = 16 * 1024


def read_log(engine: Engine, container: str, *, lines: int) -> str:
    """The last lines of a container's output, at most LARGEST_SHOWN_BYTES."""
    query = {"stdout": 1, "stderr": 1, "tail": lines}
    data = engine.call("GET", f"/containers/{container}/logs", query=query, most=LARGEST_READ_BYTES)
    whole = b"".join(part for _, part in Frames().feed(data))
    shown = whole[-LARGEST_SHOWN_BYTES:]
    cut = "[...]\n" if len(shown) < len(whole) else ""
    return cut + shown.decode(errors="replace").rstrip("\n")


def show(title: str, text: str) -> None:
    """Write a title and an indented text to the job's log."""
    say(title)
    say("\n".join(f"  {line}" for line in text.splitlines()) or "  (it printed nothing)")
