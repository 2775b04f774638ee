"""Reads the output of a container, and writes it to the job log."""

from remuda.stdsteps.common.log import say
from remuda.stdsteps.engine.docker_api import Engine, Frames

LARGEST_READ_BYTES = 4 * 1024 * 1024
LARGEST_SHOWN_BYTES = 16 * 1024


def read_log(engine: Engine, container: str, *, lines: int) -> str:
    """Return the last `lines` lines of a container's output, cut to the last LARGEST_SHOWN_BYTES bytes."""
    query = {"stdout": 1, "stderr": 1, "tail": lines}
    data = engine.call("GET", f"/containers/{container}/logs", query=query, most=LARGEST_READ_BYTES)
    whole = b"".join(part for _, part in Frames().feed(data))
    shown = whole[-LARGEST_SHOWN_BYTES:]
    cut = "[...]\n" if len(shown) < len(whole) else ""
    return cut + shown.decode(errors="replace").rstrip("\n")


def show(title: str, text: str) -> None:
    say(title)
    say("\n".join(f"  {line}" for line in text.splitlines()) or "  (no output)")
