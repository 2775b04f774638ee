"""Kills the processes of a job's own user when the job is over, and removes its files in shared folders such as /tmp.

Each job slot can have its own user, and the next job in the slot has the same one: it would own the files that the last
job left in folders where everybody may write. A user in the machine's user list may be a person, so none of its
processes and files is touched. In the PID namespace of a container engine the same number is a different user; in one
that the user has created it is the same. A set-user-id program counts as a process of the user who started it.
"""

import os
import pwd
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

from remuda.lib.safe_paths import close_after, remove_tree

_NS_GET_USERNS, _NS_GET_OWNER_UID = 0xB701, 0xB704
PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue")


def is_listed(uid: int) -> bool:
    """Return True if the machine's user list contains this user."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def kill_processes(uid: int) -> bool:
    """Kill all processes of the user. Returns True if there were any."""
    own, has_killed = os.readlink("/proc/self/ns/pid"), False
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with suppress(OSError):
            folder = Path("/proc", name)
            if _lives_as(uid, folder) and (os.readlink(folder / "ns/pid") == own or _maker(folder / "ns/pid") == uid):
                has_killed = True
                os.kill(int(name), signal.SIGKILL)
    return has_killed


def search_files(uid: int, places: tuple[str, ...] = PLACES) -> Iterator[os.DirEntry[str] | None]:
    """Yield the files, folders and links of the user directly in these folders, and None for each entry of another
    user, so that a long search can be interrupted."""
    for place in places:
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                is_users = False
                with suppress(OSError):
                    is_users = entry.stat(follow_symlinks=False).st_uid == uid
                yield entry if is_users else None


def remove_files(uid: int, places: tuple[str, ...] = PLACES) -> None:
    """Remove the user's files and folders (with their content) that are directly in these folders. Failures are
    ignored."""
    for entry in filter(None, search_files(uid, places)):
        with suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)


def _lives_as(uid: int, process: Path) -> bool:
    """Return True if a process lives and one of its user ids is `uid`. `process` is its folder in /proc, whose owner is
    only one of these ids."""
    lines = (process / "status").read_bytes().splitlines()
    fields = {name: value.split() for name, _, value in (line.partition(b":") for line in lines)}
    return str(uid).encode() in fields[b"Uid"] and fields[b"State"][0] not in (b"Z", b"X")


def _maker(namespace: Path) -> int:
    """Return the user that created the user namespace to which another namespace belongs: root for those of container
    engines. `namespace` is a file such as /proc/PID/ns/pid."""
    with (
        close_after(os.open(namespace, os.O_RDONLY)) as opened,
        close_after(ioctl(opened, _NS_GET_USERNS)) as users,
    ):
        return int.from_bytes(ioctl(users, _NS_GET_OWNER_UID, bytes(4)), sys.byteorder)
