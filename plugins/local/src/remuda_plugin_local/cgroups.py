"""Control groups of machines, version 1 and 2: limits, and a group outside of the manager's own.

A machine has a group of its own in every usable hierarchy, so a service manager that ends all processes of the manager
does not end machines. The machine sees only its part of the hierarchy (`boot.sh` mounts it). Without a hierarchy
machines run without groups; that is an error only if limits are configured.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from remuda.lib.dataclass import dataclass

PARENT = "remuda-local"
_V1 = ("cpu", "cpuacct", "memory", "pids", "freezer", "devices", "blkio", "cpuset")
_PERIOD_MICROSECONDS = 100_000
_GONE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """A mounted hierarchy."""

    path: Path
    options: str
    """Mount options of version 1; empty: version 2."""
    controllers: frozenset[str]


def hierarchies(mounts: str, unified: Mapping[str, str]) -> tuple[Hierarchy, ...]:
    """Parse /proc/mounts. `unified`: controllers of each mount of version 2 by its path."""
    found = []
    for line in mounts.splitlines():
        _, path, kind, options, *_ = [*line.split(), "", "", "", ""]
        if kind == "cgroup2":
            found.append(Hierarchy(path=Path(path), options="", controllers=frozenset(unified.get(path, "").split())))
        elif kind == "cgroup":
            named = [word for word in options.split(",") if word in _V1 or word.startswith("name=")]
            if named:
                found.append(Hierarchy(path=Path(path), options=",".join(named), controllers=frozenset(named)))
    return tuple(found)


def here() -> tuple[Hierarchy, ...]:
    """Hierarchies of this host in which groups can be made."""
    mounts = Path("/proc/mounts").read_text()
    unified = {}
    for line in mounts.splitlines():
        if line.split()[2] == "cgroup2":
            with suppress(OSError):
                unified[line.split()[1]] = (Path(line.split()[1]) / "cgroup.controllers").read_text()
    usable = []
    for one in hierarchies(mounts, unified):
        with suppress(OSError):
            (one.path / PARENT).mkdir(exist_ok=True)
            usable.append(one)
    return tuple(usable)


def missing_for(found: tuple[Hierarchy, ...], *, memory_bytes: int, cpus: float) -> str:
    """Names of limits that cannot be set; empty: none."""
    known = frozenset[str]().union(*(one.controllers for one in found))
    wanted = {"memory": bool(memory_bytes), "cpu": bool(cpus)}
    return ", ".join(name for name, is_wanted in wanted.items() if is_wanted and name not in known)


def settings(one: Hierarchy, *, memory_bytes: int, cpus: float) -> dict[str, str]:
    """The files to write in a machine's group of this hierarchy."""
    written = {}
    if memory_bytes and "memory" in one.controllers:
        written["memory.limit_in_bytes" if one.options else "memory.max"] = str(memory_bytes)
    if cpus and "cpu" in one.controllers:
        quota = str(max(int(cpus * _PERIOD_MICROSECONDS), 1000))
        if one.options:
            written |= {"cpu.cfs_period_us": str(_PERIOD_MICROSECONDS), "cpu.cfs_quota_us": quota}
        else:
            written["cpu.max"] = f"{quota} {_PERIOD_MICROSECONDS}"
    return written


def make(found: tuple[Hierarchy, ...], machine: str, *, memory_bytes: int, cpus: float) -> list[tuple[Hierarchy, Path]]:
    """Make the groups of a machine. Raises OSError if a limit cannot be set."""
    made = []
    for one in found:
        parent, group = one.path / PARENT, one.path / PARENT / machine
        group.mkdir(parents=True, exist_ok=True)
        if not one.options:
            for folder in (one.path, parent):
                for name in one.controllers & {"cpu", "memory", "pids"}:
                    with suppress(OSError):
                        (folder / "cgroup.subtree_control").write_text(f"+{name}")
        if "cpuset" in one.controllers and one.options:
            for name in ("cpuset.cpus", "cpuset.mems"):
                for folder, above in ((parent, one.path), (group, parent)):
                    (folder / name).write_text((above / name).read_text())
        for name, value in settings(one, memory_bytes=memory_bytes, cpus=cpus).items():
            (group / name).write_text(value)
        made.append((one, group))
    return made


def remove(found: tuple[Hierarchy, ...], machine: str) -> None:
    """Remove the groups of an ended machine. Retries, because the kernel notices the end with a delay."""
    deadline = time.monotonic() + _GONE_SECONDS
    for one in found:
        group = one.path / PARENT / machine
        while group.exists():
            try:
                for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
                    folder.rmdir()
                group.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


def tidy(found: tuple[Hierarchy, ...]) -> None:
    """Remove the parent group if it has no machine."""
    for one in found:
        with suppress(OSError):
            (one.path / PARENT).rmdir()
