"""Marks the processes of a job, so that they can be found: by an environment variable and a resource limit.

The variable gets lost with `env -i`. The limit is RLIMIT_LOCKS, which Linux keeps but does not use: its soft value is a
number computed from the job's key. Processes inherit it, whatever happens to session, environment or namespaces, and
all may read it in /proc. A hostile program can change it, but stays in the job's control groups, if any."""

import os
import resource
import subprocess
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import sha256
from typing import Any

VARIABLE = "REMUDA_JOB_KEY"
"""Variable in the environment of every process of a job."""
_FILE_LOCKS = 10
"""RLIMIT_LOCKS, the same number on every processor; Python has no name for it."""
_BITS = 48
_FIRST = 1 << 61
"""Limits from here on are marks."""
_LINE = b"Max file locks"
_STARTING = threading.Lock()
"""Held while this process has the mark of a job, and while a thread starts a program that must not have one."""


@lru_cache(maxsize=1024)
def number_of(key: str) -> int:
    """The soft RLIMIT_LOCKS value that marks a job's processes: a hash of its key."""
    return _FIRST + int.from_bytes(sha256(key.encode()).digest()[: _BITS // 8], "big")


@contextmanager
def mark_children(key: str) -> Iterator[None]:
    """All processes started in the block get the mark of the job `key`; `start_unmarked` in another thread waits for
    its end. The block must not contain an await, because this whole process has the mark meanwhile."""
    with _STARTING:
        before = None
        with suppress(OSError, ValueError):
            before = resource.getrlimit(_FILE_LOCKS)
            mark_this_process(key)
        try:
            yield
        finally:
            if before is not None:
                with suppress(OSError, ValueError):
                    resource.setrlimit(_FILE_LOCKS, before)


def start_unmarked(arguments: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Start a program that does not inherit the mark (see the module) of a job; `options` are those of Popen. Threads
    must use this: while the event loop is inside `mark_children`, programs started otherwise get that job's mark."""
    with _STARTING:
        return subprocess.Popen(arguments, **options)


def mark_this_process(key: str) -> None:
    """Mark this process, and all that it starts later, by a soft RLIMIT_LOCKS: the number of the job `key`."""
    with suppress(OSError, ValueError):
        _, most = resource.getrlimit(_FILE_LOCKS)
        resource.setrlimit(_FILE_LOCKS, (number_of(key), most))


def has_mark(pid: int, key: str) -> bool:
    return _limit(pid) == number_of(key) or f"{VARIABLE}={key}".encode() in _environ(pid)


def has_mark_of(pid: int, keys: Collection[str]) -> bool:
    limit = _limit(pid)
    if limit and any(limit == number_of(key) for key in keys):
        return True
    return not {f"{VARIABLE}={key}".encode() for key in keys}.isdisjoint(_environ(pid))


def find_marked(pids: Iterable[int], keys: Collection[str]) -> dict[int, str]:
    by_limit = {number_of(key): key for key in keys}
    by_variable = {f"{VARIABLE}={key}".encode(): key for key in keys}
    marked = {}
    for pid in pids:
        key = by_limit.get(_limit(pid))
        if key is None:
            key = next((by_variable[entry] for entry in _environ(pid) if entry in by_variable), None)
        if key is not None:
            marked[pid] = key
    return marked


def has_any_mark(pid: int) -> bool:
    """True if a process, also a zombie, has an RLIMIT_LOCKS value that marks the processes of a job. False for the
    value of this process itself: an agent that runs inside a job passes it on to everything it starts."""
    limit = _limit(pid)
    return limit >> _BITS == _FIRST >> _BITS and limit != resource.getrlimit(_FILE_LOCKS)[0]


def _limit(pid: int) -> int:
    for line in _read(pid, "limits").splitlines():
        if line.startswith(_LINE):
            soft = line[len(_LINE) :].split()[0]
            return int(soft) if soft.isdigit() else 0
    return 0


def _environ(pid: int) -> list[bytes]:
    return _read(pid, "environ").split(b"\0")


def _read(pid: int, name: str) -> bytes:
    try:
        file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(file, 65536):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(file)
