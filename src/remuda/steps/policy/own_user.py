"""What a user who is a job's alone has left on the machine when the job is over: processes, and files for everybody.

Each slot can have a user of its own, and the next job in the slot has the same one: whatever the last one left in
places where everybody may write would be its own. A user of the machine's user list is somebody, whom nothing is taken
from here. Processes of other process namespaces are in containers, where the same number is somebody else.
"""

import os
import pwd
import signal
from contextlib import suppress
from pathlib import Path

from remuda.lib.files import remove_tree

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
            if folder.stat().st_uid == uid and os.readlink(folder / "ns/pid") == own and not _has_ended(folder):
                found = True
                os.kill(int(name), signal.SIGKILL)
    return found


def remove_files(uid: int, places: tuple[str, ...] = PLACES) -> None:
    """Remove what lies directly in these places and is the user's, with all that is in it."""
    for place in places:
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid != uid:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        remove_tree(entry.path, ignore_errors=True)
                    else:
                        os.unlink(entry.path)


def _has_ended(process: Path) -> bool:
    stat = (process / "stat").read_bytes()
    return stat[stat.rindex(b")") + 2 :][:1] in (b"Z", b"X")
