"""Waits until a service can be used: until the image's own health check says so, or one of its ports is open.

Whether a port is open is read from the kernel's table of the container's network: from this machine's /proc where the
engine's processes are here, else with the container's own cat. That is what a connection from the job's network would
find out, and needs neither a route from here nor a program in the image. A service that says nothing of ports or health
is taken as it is. What became of it is returned, never raised: a job may do without.
"""

import time
from pathlib import Path
from typing import Any

from remuda.lib.dataclass import dataclass
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.engine import job_containers
from remuda.stdsteps.engine.docker_api import Engine, EngineGoneError
from remuda.stdsteps.engine.docker_exec import run_inside
from remuda.stdsteps.service.names import listening

POLL_SECONDS = 0.2
SETTLE_SECONDS = 0.3
_TABLES = ("tcp", "tcp6")


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The result of waiting for a service."""

    problem: str
    """Empty: it can be used, as far as anybody can tell."""
    checked: str
    """What was looked at: health check, port 5432, or nothing."""


def wait_for(engine: Engine, container: str, ports: list[int], *, seconds: float) -> Health:
    """Look until it is well, has ended, or the time is over."""
    known = job_containers.inspect(engine, container)
    has_check = bool(known and known["State"].get("Health"))
    checked = "its health check" if has_check else _port_words(ports)
    if (not has_check and not ports) or seconds <= 0:
        time.sleep(SETTLE_SECONDS)
        return Health(problem=_death(job_containers.inspect(engine, container)), checked="nothing")
    until = time.monotonic() + seconds
    while True:
        known = job_containers.inspect(engine, container)
        if problem := _death(known):
            return Health(problem=problem, checked=checked)
        assert known is not None
        verdict = _verdict(engine, known, ports) if not has_check else _own_verdict(known)
        if verdict is not None:
            return Health(problem=verdict, checked=checked)
        if time.monotonic() >= until:
            what = "its health check has not succeeded" if has_check else f"{checked} is not open"
            return Health(problem=f"{what} after {seconds:.0f} s", checked=checked)
        time.sleep(POLL_SECONDS)


def _death(known: dict[str, Any] | None) -> str:
    if known is None:
        return "its container is gone"
    state = known["State"]
    if state["Running"]:
        return ""
    memory = ", out of memory" if state.get("OOMKilled") else ""
    return f"it has ended with exit code {state['ExitCode']}{memory}"


def _own_verdict(known: dict[str, Any]) -> str | None:
    health = known["State"]["Health"]
    if health["Status"] == "healthy":
        return ""
    if health["Status"] != "unhealthy":
        return None
    last = str((health.get("Log") or [{}])[-1].get("Output") or "").strip()
    return f"its health check fails{f': {last[-200:]}' if last else ''}"


def _verdict(engine: Engine, known: dict[str, Any], ports: list[int]) -> str | None:
    table = _table(engine, known)
    if table is None:
        return ""  # nobody can look, so it is taken as it is
    return "" if listening(table) & set(ports) else None


def _table(engine: Engine, known: dict[str, Any]) -> str | None:
    """The kernel's table of open ports in the container; None where nobody can read it."""
    if engine.is_near and (table := _near_table(known)) is not None:
        return table
    try:
        _, output = run_inside(engine, known["Id"], ["cat", *(f"/proc/net/{one}" for one in _TABLES)])
    except EngineGoneError:
        raise
    except StepError:
        return None
    text = output.decode(errors="replace")
    return text if "local_address" in text else None


def _near_table(known: dict[str, Any]) -> str | None:
    folder = Path(f"/proc/{known['State']['Pid']}")
    try:
        # Another machine's number may be that of somebody else here.
        if known["Id"] not in (folder / "cgroup").read_text():
            return None
        return "\n".join((folder / "net" / one).read_text() for one in _TABLES if (folder / "net" / one).exists())
    except OSError:
        return None


def _port_words(ports: list[int]) -> str:
    if len(ports) == 1:
        return f"port {ports[0]}"
    return f"one of the ports {', '.join(map(str, ports))}" if ports else "nothing"
