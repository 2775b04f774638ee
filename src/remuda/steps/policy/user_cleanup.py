"""What a user who is a job's alone has left on the machine when the job is over: processes, and files for everybody.

Each slot can have a user of its own, and the next job in the slot has the same one: whatever the last one left in
places where everybody may write would be its own. A user of the machine's user list is somebody, whom nothing is taken
from here. In a process namespace that others have made, a container, the same number is somebody else; in one that the
user has made it is not. Programs that have more rights than who started them count by who that was.
"""

import os
import pwd
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

from remuda.lib.safe_paths import remove_tree

_NS_GET_USERNS, _NS_GET_OWNER_UID = 0xB701, 0xB704
PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue")


def is_listed(uid: int) -> bool:
    """Whether the machine knows such a user."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def kill_processes(uid: int) -> bool:
    """Kill all that live; whether there were any."""
    own, found = os.readlink("/proc/self/ns/pid"), False
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with suppress(OSError):
            folder = Path("/proc", name)
            if _lives_as(uid, folder) and (os.readlink(folder / "ns/pid") == own or _maker(folder / "ns/pid") == uid):
                found = True
                os.kill(int(name), signal.SIGKILL)
    return found


def search_files(uid: int, places: tuple[str, ...] = PLACES) -> Iterator[os.DirEntry[str] | None]:
    """What lies directly in these places and is the user's: files, folders and links; and None for each of others, so
    that a search among very many can be given up."""
    for place in places:
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                is_users = False
                with suppress(OSError):
                    is_users = entry.stat(follow_symlinks=False).st_uid == uid
                yield entry if is_users else None


def remove_files(uid: int, places: tuple[str, ...] = PLACES) -> None:
    """Remove what lies directly in these places and is the user's, with all that is in it."""
    for entry in filter(None, search_files(uid, places)):
        with suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)


def _lives_as(uid: int, process: Path) -> bool:
    """By any of its user numbers; the owner of the folder is only one of them."""
    lines = (process / "status").read_bytes().splitlines()
    fields = {name: value.split() for name, _, value in (line.partition(b":") for line in lines)}
    return str(uid).encode() in fields[b"Uid"] and fields[b"State"][0] not in (b"Z", b"X")


def _maker(namespace: Path) -> int:
    """Who made the user namespace that this one belongs to: root for those of container engines."""
    opened = os.open(namespace, os.O_RDONLY)
    try:
        users = ioctl(opened, _NS_GET_USERNS)
    finally:
        os.close(opened)
    try:
        answer = ioctl(users, _NS_GET_OWNER_UID, bytes(4))
    finally:
        os.close(users)
    return int.from_bytes(answer, sys.byteorder)
