"""Removes the System V IPC objects (shared memory, message queues, semaphores) of a job's own user after the job.

They outlive their processes, and the next job in the same slot has the same user, so it would find them. Objects of a
sandbox or container end with it. It is its own module because it calls the C library."""

import ctypes
from pathlib import Path

_LISTS = Path("/proc/sysvipc")
_IPC_RMID = 0
_REMOVERS = {"shm": ("shmid", "shmctl"), "msg": ("msqid", "msgctl"), "sem": ("semid", "semctl")}
"""By list: the column with the number, and the call that removes an entry."""


def remove_memory(uid: int) -> None:
    """Remove all System V IPC objects that the user owns or has created. Failures are ignored."""
    libc = ctypes.CDLL(None)
    for kind, (column, name) in _REMOVERS.items():
        remove = getattr(libc, name)
        for number in _list_owned(uid, kind, column):
            # The second argument is the number of a semaphore in its set, which is ignored here.
            remove(number, 0, _IPC_RMID) if kind == "sem" else remove(number, _IPC_RMID, None)


def _list_owned(uid: int, kind: str, column: str) -> list[int]:
    """Return the ids of a user's IPC objects of one `kind` (shm, msg or sem). `column`: the id in the kernel's list."""
    try:
        head, *lines = (_LISTS / kind).read_text().splitlines()
    except (OSError, ValueError):
        return []
    names = head.split()
    rows = (dict(zip(names, line.split(), strict=False)) for line in lines)
    return [int(row[column]) for row in rows if str(uid) in (row["uid"], row["cuid"])]
