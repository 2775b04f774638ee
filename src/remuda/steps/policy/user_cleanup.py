"""Kills the processes of a job's own user when the job is over, and removes its files in shared folders such as /tmp.

The next job in the same slot (place for one running job) has the same user and would own these files. Callers skip a
user in the machine's user list, who may be a person. Processes in containers of another user's engine (such as root's)
are not killed: there the same user id can be another user. A set-user-id program counts as a process of the user who
started it."""

import os
import pwd
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

from remuda.lib.safe_paths import close_after, remove_tree
from remuda.steps.process.job_processes import all_processes, has_ended, read_stat, read_uids

_NS_GET_USERNS, _NS_GET_OWNER_UID = 0xB701, 0xB704
PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue")


def is_listed(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def kill_processes(uid: int) -> bool:
    """Kill the user's processes outside of containers of other users' engines. Returns True if there were any."""
    own, has_killed = os.readlink("/proc/self/ns/pid"), False
    for pid in all_processes():
        with suppress(OSError):
            namespace = Path(f"/proc/{pid}/ns/pid")
            if _lives_as(uid, pid) and (os.readlink(namespace) == own or _namespace_creator(namespace) == uid):
                has_killed = True
                os.kill(pid, signal.SIGKILL)
    return has_killed


def search_files(uid: int, places: tuple[str, ...] = PLACES) -> Iterator[os.DirEntry[str] | None]:
    """Yield the user's entries directly in `places`, and None for each other one, so that the caller can stop early."""
    for place in places:
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                is_users = False
                with suppress(OSError):
                    is_users = entry.stat(follow_symlinks=False).st_uid == uid
                yield entry if is_users else None


def remove_files(uid: int, places: tuple[str, ...] = PLACES) -> None:
    """Remove what the user owns directly in the folders `places`, with content. Failures are ignored."""
    for entry in filter(None, search_files(uid, places)):
        with suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)


def _lives_as(uid: int, pid: int) -> bool:
    """True if the process is alive and one of its user ids (such as the real or the effective one) is `uid`."""
    return uid in read_uids(pid) and (stat := read_stat(pid)) is not None and not has_ended(pid, stat)


def _namespace_creator(namespace: Path) -> int:
    """Return the id of the user who created the user namespace to which `namespace` (a file /proc/PID/ns/...) belongs.
    It is 0 for a container of an engine that runs as root."""
    with (
        close_after(os.open(namespace, os.O_RDONLY)) as opened,
        close_after(ioctl(opened, _NS_GET_USERNS)) as users,
    ):
        return int.from_bytes(ioctl(users, _NS_GET_OWNER_UID, bytes(4)), sys.byteorder)
