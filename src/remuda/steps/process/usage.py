"""Measures the current CPU and memory usage of jobs, of the agent and of the machine, from /proc; values that cannot be
read there are 0.

A job's processes are found by their sessions: every running step has a session, led by the process that runs it (shim
or worker). Processes in other sessions are not counted."""

import os
import resource
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from remuda.lib.dataclass import dataclass
from remuda.steps.process.job_processes import Stat, all_processes, read_stat
from remuda.steps.process.shim import read_record, start_of, start_time
from remuda.steps.process.step_files import StepFiles

_PAGE = resource.getpagesize()
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    processes: int = 0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0

    def __add__(self, other: "Used") -> "Used":
        return Used(
            processes=self.processes + other.processes,
            cpu_seconds=self.cpu_seconds + other.cpu_seconds,
            memory_bytes=self.memory_bytes + other.memory_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    cpus: int
    load_1m: float
    memory_bytes: int
    memory_available_bytes: int
    disk_bytes: int
    disk_available_bytes: int


def of_sessions(sessions: Collection[int]) -> dict[int, Used]:
    """Return the CPU and memory usage of the processes in each session. All processes of the machine are read once."""
    used: dict[int, Used] = {}
    for pid in _processes():
        stat = read_stat(pid)
        if stat is not None and stat.session in sessions:
            used[stat.session] = used.get(stat.session, Used()) + _used(stat)
    return used


def of_folders(folders: Sequence[Path]) -> list[Used]:
    running = [sessions_in(folder) for folder in folders]
    used = of_sessions({session for sessions in running for session in sessions})
    return [sum((used.get(session, Used()) for session in sessions), Used()) for sessions in running]


def sessions_in(folder: Path) -> set[int]:
    """Return the session ids of a job's running steps, from the pid files in its folder."""
    sessions = set()
    for claim in folder.glob("step-*.pid"):
        serial = claim.stem.partition("-")[2]
        files = StepFiles(folder, int(serial) if serial.isdecimal() else 0)
        shim_record = read_record(files)
        if (
            shim_record is not None
            and shim_record.exit_code is None
            and start_time(shim_record.pid) == start_of(shim_record, files)
        ):
            sessions.add(shim_record.pid)
    return sessions


def of_process(pid: int) -> Used:
    stat = read_stat(pid)
    return Used() if stat is None else _used(stat)


def is_part_of(pid: int, sessions: Collection[int]) -> bool:
    """Return True if the process is in one of these sessions, or one of its ancestors is (up to 100 levels)."""
    level = 0
    while pid > 1 and level < 100:
        stat = read_stat(pid)
        if stat is None:
            return False
        if stat.session in sessions:
            return True
        pid, level = stat.parent, level + 1
    return False


def machine(folder: Path) -> Machine:
    """Return processors, load, memory and disk space of this machine. The disk is the one that contains `folder`."""
    disk = shutil.disk_usage(folder)
    memory = _memory()
    return Machine(
        cpus=os.cpu_count() or 1,
        load_1m=os.getloadavg()[0],
        memory_bytes=memory.get("MemTotal", 0),
        memory_available_bytes=memory.get("MemAvailable", 0),
        disk_bytes=disk.total,
        disk_available_bytes=disk.free,
    )


def open_files() -> int:
    """Number of open file descriptors of this process; 0 if unknown."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def _processes() -> list[int]:
    try:
        return all_processes()
    except OSError:
        return []


def _used(stat: Stat) -> Used:
    return Used(processes=1, cpu_seconds=stat.cpu_ticks / _TICKS, memory_bytes=stat.resident_pages * _PAGE)


def _memory() -> dict[str, int]:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split(":") for line in lines)
    return {name: int(rest.split()[0]) * 1024 for name, rest in pairs}


def format_bytes(size: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} bytes"
