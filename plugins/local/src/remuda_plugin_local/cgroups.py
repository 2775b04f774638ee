"""Control groups of machines, version 1 and 2: limits, and a group outside of the manager's own.

A machine has a group of its own in every usable hierarchy, so a service manager that ends all processes of the manager
does not end machines. The machine sees only its part of the hierarchy (`boot.sh` mounts it). Without a hierarchy
machines run without groups; that is an error only if limits are configured."""

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
    """A mounted hierarchy of control groups."""

    path: Path
    options: str
    """Mount options of version 1; empty: version 2."""
    controllers: frozenset[str]


def hierarchies(mounts: str, unified: Mapping[str, str]) -> tuple[Hierarchy, ...]:
    """Parse `mounts`, the text of /proc/mounts. `unified`: controllers of each mount of version 2 by its path."""
    mounted = []
    for line in mounts.splitlines():
        _, path, kind, options, *_ = [*line.split(), "", "", "", ""]
        if kind == "cgroup2":
            mounted.append(Hierarchy(path=Path(path), options="", controllers=frozenset(unified.get(path, "").split())))
        elif kind == "cgroup":
            named = [word for word in options.split(",") if word in _V1 or word.startswith("name=")]
            if named:
                mounted.append(Hierarchy(path=Path(path), options=",".join(named), controllers=frozenset(named)))
    return tuple(mounted)


def here() -> tuple[Hierarchy, ...]:
    """Hierarchies of this host in which groups can be made. Makes the parent group of all machines in each."""
    mounts = Path("/proc/mounts").read_text()
    unified = {}
    for line in mounts.splitlines():
        if line.split()[2] == "cgroup2":
            with suppress(OSError):
                unified[line.split()[1]] = (Path(line.split()[1]) / "cgroup.controllers").read_text()
    usable = []
    for hierarchy in hierarchies(mounts, unified):
        with suppress(OSError):
            (hierarchy.path / PARENT).mkdir(exist_ok=True)
            usable.append(hierarchy)
    return tuple(usable)


def missing_for(available: tuple[Hierarchy, ...], *, memory_bytes: int, cpus: float) -> str:
    """Names of the limits that are set (not 0) but have no controller, as text; empty if there are none."""
    controllers = frozenset[str]().union(*(hierarchy.controllers for hierarchy in available))
    limits = {"memory": bool(memory_bytes), "cpu": bool(cpus)}
    return ", ".join(name for name, is_set in limits.items() if is_set and name not in controllers)


def settings(hierarchy: Hierarchy, *, memory_bytes: int, cpus: float) -> dict[str, str]:
    """Contents, by file name, of the files to write in a machine's group to set its limits; 0: no limit."""
    contents = {}
    if memory_bytes and "memory" in hierarchy.controllers:
        contents["memory.limit_in_bytes" if hierarchy.options else "memory.max"] = str(memory_bytes)
    if cpus and "cpu" in hierarchy.controllers:
        quota = str(max(int(cpus * _PERIOD_MICROSECONDS), 1000))
        if hierarchy.options:
            contents |= {"cpu.cfs_period_us": str(_PERIOD_MICROSECONDS), "cpu.cfs_quota_us": quota}
        else:
            contents["cpu.max"] = f"{quota} {_PERIOD_MICROSECONDS}"
    return contents


def make(
    available: tuple[Hierarchy, ...], machine: str, *, memory_bytes: int, cpus: float
) -> list[tuple[Hierarchy, Path]]:
    """Make a group for a machine in each hierarchy, with limits (0: none). Returns hierarchies and the groups' folders.
    Raises OSError if a group cannot be made or a limit cannot be set."""
    made = []
    for hierarchy in available:
        parent, group = hierarchy.path / PARENT, hierarchy.path / PARENT / machine
        group.mkdir(parents=True, exist_ok=True)
        if not hierarchy.options:
            for folder in (hierarchy.path, parent):
                for name in hierarchy.controllers & {"cpu", "memory", "pids"}:
                    with suppress(OSError):
                        (folder / "cgroup.subtree_control").write_text(f"+{name}")
        if "cpuset" in hierarchy.controllers and hierarchy.options:
            for name in ("cpuset.cpus", "cpuset.mems"):
                for folder, above in ((parent, hierarchy.path), (group, parent)):
                    (folder / name).write_text((above / name).read_text())
        for name, value in settings(hierarchy, memory_bytes=memory_bytes, cpus=cpus).items():
            (group / name).write_text(value)
        made.append((hierarchy, group))
    return made


def remove(available: tuple[Hierarchy, ...], machine: str) -> None:
    """Remove the groups of an ended machine. Retries, because the kernel notices the end with a delay. Raises OSError
    after `_GONE_SECONDS`."""
    deadline = time.monotonic() + _GONE_SECONDS
    for hierarchy in available:
        group = hierarchy.path / PARENT / machine
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


def tidy(available: tuple[Hierarchy, ...]) -> None:
    """Remove the parent group of all machines if it is empty."""
    for hierarchy in available:
        with suppress(OSError):
            (hierarchy.path / PARENT).rmdir()
