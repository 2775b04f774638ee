"""Waits until a service container is ready: its health check succeeds, or one of its ports is open. Open ports are read
from /proc/net/tcp of the container, through /proc of this machine if the engine is local, else with `cat` in the
container, so no route to it is needed. If that fails, or a service has neither ports nor a health check, it counts as
ready while it runs. Problems are returned and not raised, because a job may work without the service."""

import time
from pathlib import Path
from typing import Any

from remuda.lib.dataclass import dataclass
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.engine import job_containers
from remuda.stdsteps.engine.docker_api import Engine, EngineGoneError
from remuda.stdsteps.engine.docker_exec import run_inside
from remuda.stdsteps.service.names import parse_listening

POLL_SECONDS = 0.2
SETTLE_SECONDS = 0.3
_TABLES = ("tcp", "tcp6")


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The result of waiting for a service: the problem, if any, and what was checked."""

    problem: str
    """Empty: no problem was found."""
    checked: str
    """What was checked, for the log, such as `its health check`, `port 5432`, or `nothing`."""


def wait_for(engine: Engine, container: str, ports: list[int], *, seconds: float) -> Health:
    """Poll until the service is ready, has exited, or `seconds` are over. It is ready when its health check succeeds
    or, if its image has none, one of `ports` is open. Without both, or if `seconds` is 0, only checks that it runs."""
    details = job_containers.inspect(engine, container)
    has_check = bool(details and details["State"].get("Health"))
    checked = "its health check" if has_check else _describe_ports(ports)
    if (not has_check and not ports) or seconds <= 0:
        time.sleep(SETTLE_SECONDS)
        return Health(problem=_find_end(job_containers.inspect(engine, container)), checked="nothing")
    until = time.monotonic() + seconds
    while True:
        details = job_containers.inspect(engine, container)
        if problem := _find_end(details):
            return Health(problem=problem, checked=checked)
        assert details is not None
        verdict = _check_ports(engine, details, ports) if not has_check else _check_health(details)
        if verdict is not None:
            return Health(problem=verdict, checked=checked)
        if time.monotonic() >= until:
            what = "its health check has not succeeded" if has_check else _describe_closed(ports)
            return Health(problem=f"{what} after {seconds:.0f} s", checked=checked)
        time.sleep(POLL_SECONDS)


def _find_end(details: dict[str, Any] | None) -> str:
    if details is None:
        return "its container does not exist any more"
    state = details["State"]
    if state["Running"]:
        return ""
    memory = ", out of memory" if state.get("OOMKilled") else ""
    return f"it has ended with exit code {state['ExitCode']}{memory}"


def _check_health(details: dict[str, Any]) -> str | None:
    health = details["State"]["Health"]
    if health["Status"] == "healthy":
        return ""
    if health["Status"] != "unhealthy":
        return None
    last = str((health.get("Log") or [{}])[-1].get("Output") or "").strip()
    return f"its health check fails{f': {last[-200:]}' if last else ''}"


def _check_ports(engine: Engine, details: dict[str, Any], ports: list[int]) -> str | None:
    table = _read_table(engine, details)
    if table is None:
        return ""  # cannot be checked, so it counts as ready
    return "" if parse_listening(table) & set(ports) else None


def _read_table(engine: Engine, details: dict[str, Any]) -> str | None:
    """Return /proc/net/tcp and tcp6 of a container as one text; None if they cannot be read. `details`: the engine's
    description of the container."""
    if engine.is_local and (table := _read_local_table(details)) is not None:
        return table
    try:
        _, output = run_inside(engine, details["Id"], ["cat", *(f"/proc/net/{name}" for name in _TABLES)])
    except EngineGoneError:
        raise
    except StepError:
        return None
    text = output.decode(errors="replace")
    return text if "local_address" in text else None


def _read_local_table(details: dict[str, Any]) -> str | None:
    folder = Path(f"/proc/{details['State']['Pid']}")
    try:
        # The engine may be on another machine, and the process id that of another process here.
        if details["Id"] not in (folder / "cgroup").read_text():
            return None
        return "\n".join((folder / "net" / name).read_text() for name in _TABLES if (folder / "net" / name).exists())
    except OSError:
        return None


def _describe_ports(ports: list[int]) -> str:
    if len(ports) == 1:
        return f"port {ports[0]}"
    return f"one of the ports {', '.join(map(str, ports))}" if ports else "nothing"


def _describe_closed(ports: list[int]) -> str:
    if len(ports) == 1:
        return f"port {ports[0]} is not open"
    return f"none of the ports {', '.join(map(str, ports))} is open"
