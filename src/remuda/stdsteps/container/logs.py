"""What a container has printed, and how it is shown in the log of a job."""

from remuda.stdsteps.common.log import say
from remuda.stdsteps.engine.docker_api import Engine, Frames

LARGEST_READ_BYTES = 4 * 1024 * 1024
LARGEST_SHOWN_BYTES = 16 * 1024


def log_of(engine: Engine, container: str, *, lines: int) -> str:
    """The last lines, and no more of them than a log can take."""
    query = {"stdout": 1, "stderr": 1, "tail": lines}
    data = engine.call("GET", f"/containers/{container}/logs", query=query, most=LARGEST_READ_BYTES)
    whole = b"".join(part for _, part in Frames().feed(data))
    shown = whole[-LARGEST_SHOWN_BYTES:]
    cut = "[...]\n" if len(shown) < len(whole) else ""
    return cut + shown.decode(errors="replace").rstrip("\n")


def show(title: str, text: str) -> None:
    """A log inside the log."""
    say(title)
    say("\n".join(f"  {line}" for line in text.splitlines()) or "  (it printed nothing)")
