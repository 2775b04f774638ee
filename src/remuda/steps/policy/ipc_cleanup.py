"""What a user who is a job's alone has left of System V IPC when the job is over: memory, messages, semaphores.

They have no place in the file system and outlive their processes, so the next job in the slot, which has the same user,
would find them. The kernel lists those of this IPC namespace; what a sandbox or a container had goes with its own.
Called by `enforcement`, after `own_user` has ended the user's processes.
"""

import ctypes
from pathlib import Path

_LISTS = Path("/proc/sysvipc")
_IPC_RMID = 0
_REMOVERS = {"shm": ("shmid", "shmctl"), "msg": ("msqid", "msgctl"), "sem": ("semid", "semctl")}
"""By list: the column with the number, and the call that removes an entry."""


def remove_memory(uid: int) -> None:
    """Remove everything that the user owns or has made. What cannot be removed stays."""
    libc = ctypes.CDLL(None)
    for kind, (column, name) in _REMOVERS.items():
        remove = getattr(libc, name)
        for number in _list_owned(uid, kind, column):
            # Semaphores come in sets: which one of the set is the second argument, and of no meaning here.
            remove(number, 0, _IPC_RMID) if kind == "sem" else remove(number, _IPC_RMID, None)


def _list_owned(uid: int, kind: str, column: str) -> list[int]:
    """The numbers of a user's entries; none where the kernel has no such list."""
    try:
        head, *lines = (_LISTS / kind).read_text().splitlines()
    except (OSError, ValueError):
        return []
    names = head.split()
    rows = (dict(zip(names, line.split(), strict=False)) for line in lines)
    return [int(row[column]) for row in rows if str(uid) in (row["uid"], row["cuid"])]
