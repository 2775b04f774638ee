"""Linux control groups (cgroup v1 and v2): finds where this process may create them, and creates one for each step.

Groups are created below the agent's own group, so that the limits of that group also apply to steps, or below a named
one (REMUDA_CGROUP or a job slot). In v2 a group that passes on controllers must not contain processes: an agent that is
alone in its group moves into a subgroup; otherwise limits cannot be set. A group is named after job and step, so that
it is found after a restart. All operations are idempotent."""

import contextlib
import errno
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path

from remuda.lib.dataclass import dataclass
from remuda.steps.process.limits import Limits, StepUsage

V1 = ("memory", "cpu", "cpuacct", "pids", "blkio")
V2 = ("memory", "cpu", "pids", "io")
PERIOD_MICROSECONDS = 100_000
PARENT_VARIABLE = "REMUDA_CGROUP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """For each cgroup hierarchy: the folder for the groups of steps, and the controllers available there."""

    v1: Mapping[str, Path] = field(default_factory=dict)
    """Folders by controller."""
    v2: Path | None = None
    v2_controllers: frozenset[str] = frozenset()
    lacking: Mapping[str, str] = field(default_factory=dict)
    """Why a limit cannot be set: by memory, cpu, pids."""

    def limits(self, name: str) -> bool:
        """Return True if the limit `name` ("memory", "cpu" or "pids") can be set for steps."""
        return name in self.v1 or name in self.v2_controllers

    def folders(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys([*self.v1.values(), *([self.v2] if self.v2 else [])]))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGroup:
    """The control groups of one step, one in each cgroup hierarchy. `key` is their name."""

    groups: Groups
    key: str

    @property
    def joins(self) -> tuple[str, ...]:
        """Paths of the cgroup.procs files of the groups. A process that writes 0 to each of them joins the groups."""
        return tuple(str(folder / self.key / "cgroup.procs") for folder in self.groups.folders())

    def make(self, limits: Limits) -> None:
        for folder in self.groups.folders():
            (folder / self.key).mkdir(exist_ok=True, parents=True)
        if self.groups.v2 is not None:
            _enable(self.groups.v2, set(self.groups.v2_controllers))
        if limits.memory_bytes is not None:
            # The limit with swap may never be below the other, whatever both were before.
            self._set("memory", "memory.memsw.limit_in_bytes", "", "-1", optional=True)
            self._set("memory", "memory.limit_in_bytes", "memory.max", str(limits.memory_bytes))
            self._set("memory", "memory.memsw.limit_in_bytes", "", str(limits.memory_bytes), optional=True)
            self._set("memory", "", "memory.swap.max", "0", optional=True)
        if limits.cpus is not None:
            quota = max(1000, int(limits.cpus * PERIOD_MICROSECONDS))
            self._set("cpu", "cpu.cfs_period_us", "", str(PERIOD_MICROSECONDS))
            self._set("cpu", "cpu.cfs_quota_us", "cpu.max", str(quota), f"{quota} {PERIOD_MICROSECONDS}")
        if limits.pids is not None:
            self._set("pids", "pids.max", "pids.max", str(limits.pids))

    def count_memory_kills(self) -> int:
        """Return how many processes of the step the kernel has killed because its memory limit was reached."""
        counts = _words(self._path("memory", "memory.oom_control")) or _words(self._path("", "memory.events"))
        return counts.get("oom_kill", 0)

    def count_refused_forks(self) -> int:
        """Return how often the kernel refused to start a process of the step because its pids limit was reached."""
        counts = _words(self._path("pids", "pids.events")) or _words(self._path("", "pids.events"))
        return counts.get("max", 0)

    def usage(self) -> StepUsage | None:
        """CPU time, peak memory and disk I/O of the step so far; None if it has no group."""
        if not any((folder / self.key).is_dir() for folder in self.groups.folders()):
            return None
        stat = _words(self._path("", "cpu.stat"))
        user, system = stat.get("user_usec"), stat.get("system_usec")
        nanoseconds = [_number(self._path("cpuacct", f"cpuacct.usage_{kind}")) for kind in ("user", "sys")]
        peak = _number(self._path("memory", "memory.max_usage_in_bytes")) or _number(self._path("", "memory.peak"))
        read, written = self._io_bytes()
        return StepUsage(
            cpu_user_seconds=_seconds(nanoseconds[0], 1e9) if nanoseconds[0] is not None else _seconds(user, 1e6),
            cpu_system_seconds=_seconds(nanoseconds[1], 1e9) if nanoseconds[1] is not None else _seconds(system, 1e6),
            memory_peak_bytes=peak,
            io_read_bytes=read,
            io_write_bytes=written,
        )

    def kill(self) -> bool:
        """Kill all processes in the groups and forbid new ones. If there are none, change nothing and return False."""
        members = self.members()
        if members:
            with contextlib.suppress(OSError):
                self._set("pids", "pids.max", "pids.max", "0")
            with contextlib.suppress(OSError):
                self._set("", "", "cgroup.kill", "1", optional=True)
        for pid in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return bool(members)

    def remove(self) -> bool:
        """Remove the groups and their subgroups. Returns False if that fails, usually for a process still in one."""
        is_gone = True
        for folder in self._folders():
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                is_gone = False
        return is_gone

    def members(self) -> set[int]:
        """Return process ids in the groups and subgroups, without those invisible in this PID namespace."""
        members: set[int] = set()
        for folder in self._folders():
            members |= {int(pid) for pid in (_text(folder / "cgroup.procs") or "").split()}
        return members - {0}

    def _folders(self) -> Iterator[Path]:
        """Yield the folders of the groups and all their subgroups, children before parents."""
        for folder in self.groups.folders():
            for path, _, _ in os.walk(folder / self.key, topdown=False):
                yield Path(path)

    def _set(
        self, controller: str, v1: str, v2: str, value: str, value_v2: str = "", *, optional: bool = False
    ) -> None:
        is_v1 = controller in self.groups.v1
        can = self.groups.limits(controller) if controller else self.groups.v2 is not None
        if not can or not (v1 if is_v1 else v2):
            return
        path = self._path(controller, v1) if is_v1 else self._path("", v2)
        assert path is not None
        if optional and not path.exists():
            return
        path.write_text(value if is_v1 else value_v2 or value)

    def _path(self, controller: str, name: str) -> Path | None:
        folder = self.groups.v1.get(controller) if controller else self.groups.v2
        return folder / self.key / name if folder else None

    def _io_bytes(self) -> tuple[int | None, int | None]:
        """Return the bytes read and written on disks, as attributed by the kernel; None if it does not count them."""
        name = "blkio.throttle.io_service_bytes"
        old = _text(self._path("blkio", f"{name}_recursive")) or _text(self._path("blkio", name))
        if old is not None:
            words = [line.split() for line in old.splitlines()]
            sums = [sum(int(line[2]) for line in words if line[1:2] == [kind]) for kind in ("Read", "Write")]
            return sums[0], sums[1]
        new = _text(self._path("", "io.stat"))
        if new is None:
            return None, None
        pairs = [word.split("=") for word in new.split() if "=" in word]
        totals = [sum(int(value) for key, value in pairs if key == kind) for kind in ("rbytes", "wbytes")]
        return totals[0], totals[1]


def find_groups(name: str, *, proc: Path = Path("/proc/self"), parent: str | None = None) -> Groups:
    """Find the cgroup hierarchies in which this process may create groups, and enable their controllers. `name`: folder
    for all groups of this agent; `parent`: the group for it, by default REMUDA_CGROUP or the agent's own."""
    parent = os.environ.get(PARENT_VARIABLE) if parent is None else parent
    v1: dict[str, Path] = {}
    lacking: dict[str, str] = {}
    v2: Path | None = None
    controllers: frozenset[str] = frozenset()
    for names, place, base in _places(proc, parent):
        try:
            base.mkdir(exist_ok=True, parents=True)
            if not os.access(base, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            for controller in names.split(",") if names else V2:
                lacking[controller] = f"the agent may not make control groups in {base} ({error.strerror})"
            continue
        if names:
            v1 |= dict.fromkeys(set(names.split(",")) & set(V1), base / name)
        else:
            v2, controllers = base / name, _enable_controllers(base, place if parent else base, lacking)
    ordered = {controller: v1[controller] for controller in V1 if controller in v1}
    for limit in ("memory", "cpu", "pids"):
        if limit not in v1 and limit not in controllers:
            lacking.setdefault(limit, "this machine has no control groups for it")
    controllers -= frozenset(v1)
    # If version 1 has all controllers, a group of version 2 would only count the same again.
    return Groups(v1=ordered, v2=v2 if controllers or not v1 else None, v2_controllers=controllers, lacking=lacking)


def list_places(parent: str, *, proc: Path = Path("/proc/self")) -> tuple[Path, ...]:
    """Return the path that the group `parent` has in each cgroup hierarchy, whether or not the group exists."""
    return tuple(base for _, _, base in _places(proc, parent))


def _places(proc: Path, parent: str | None) -> Iterator[tuple[str, Path, Path]]:
    """Yield controllers (empty for v2), mount point and path of `parent` (None: own group) per cgroup hierarchy."""
    mounts = list(_mounts(proc / "mountinfo"))
    for line in (_text(proc / "cgroup") or "").splitlines():
        _, names, own = line.split(":", 2)
        if names and not set(names.split(",")) & set(V1):
            continue
        mount = next((m for m in mounts if (set(names.split(",")) <= m[2] if names else m[3] == "cgroup2")), None)
        if mount is not None:
            root, place, _, _ = mount
            yield names, place, place / _relative_to_mount(root, parent or own).lstrip("/")


def _enable_controllers(base: Path, top: Path, lacking: dict[str, str]) -> frozenset[str]:
    """Enable controllers in each cgroup v2 folder from `top` down to `base`, so that groups in `base` can have limits.
    Returns the controllers that are now enabled in `base`. Adds to `lacking`, by controller, why one could not be
    enabled."""
    for level in (*reversed([parent for parent in base.parents if parent.is_relative_to(top)]), base):
        controllers = set((_text(level / "cgroup.controllers") or "").split()) & set(V2)
        try:
            _enable(level, controllers)
        except OSError as error:
            why = "other processes are in that control group" if error.errno == errno.EBUSY else error.strerror
            for controller in controllers:
                lacking[controller] = (
                    f"{level} cannot be divided into groups for steps ({why}); name an empty one with {PARENT_VARIABLE}"
                )
    return frozenset((_text(base / "cgroup.subtree_control") or "").split()) & frozenset(V2)


def _enable(level: Path, controllers: set[str]) -> None:
    missing = controllers - set((_text(level / "cgroup.subtree_control") or "").split())
    if not missing:
        return
    order = " ".join(f"+{controller}" for controller in sorted(missing))
    try:
        (level / "cgroup.subtree_control").write_text(order)
    except OSError as error:
        if error.errno != errno.EBUSY or not _make_room(level):
            raise
        (level / "cgroup.subtree_control").write_text(order)


def _make_room(level: Path) -> bool:
    """Move the agent and its children from the group `level` into a new subgroup: only then the kernel lets `level`
    enable controllers. Returns False, without a change, if other processes are in `level`."""
    members = {int(pid) for pid in (_text(level / "cgroup.procs") or "").split()}
    own = {os.getpid(), *_children()}
    if not members or not members <= own:
        return False
    room = level / "remuda-agent"
    room.mkdir(exist_ok=True)
    for pid in members:
        (room / "cgroup.procs").write_text(str(pid))
    return True


def _children() -> list[int]:
    text = _text(Path(f"/proc/self/task/{os.getpid()}/children")) or ""
    return [int(pid) for pid in text.split()]


def _mounts(path: Path) -> Iterator[tuple[str, Path, set[str], str]]:
    """Yield root, mount point, options (which name v1 controllers) and type of cgroup mounts in a mountinfo file."""
    for line in (_text(path) or "").splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            root, place = fields.split(" ")[3:5]
            yield root, Path(place.replace("\\040", " ")), set(options.split(",")), kind


def _relative_to_mount(root: str, path: str) -> str:
    """Convert the path of a group within its hierarchy to the path below the mount point. `root`: the path of the group
    that is mounted there; `/` if the whole hierarchy is."""
    return path.removeprefix(root) if root != "/" and f"{path}/".startswith(f"{root}/") else path


def _text(path: Path | None) -> str | None:
    try:
        return path.read_text() if path is not None else None
    except OSError:
        return None


def _number(path: Path | None) -> int | None:
    text = (_text(path) or "").strip()
    return int(text) if text.isdecimal() else None


def _words(path: Path | None) -> dict[str, int]:
    pairs = (line.split() for line in (_text(path) or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _seconds(count: int | None, unit: float) -> float | None:
    return None if count is None else round(count / unit, 6)
