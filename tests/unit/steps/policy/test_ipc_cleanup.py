"""System V memory, messages and semaphores of a user, on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.steps.policy.ipc_cleanup import remove_memory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
OWN, OTHER = 123481, 123482
LEAVE = """
import ctypes, os, sys
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
libc = ctypes.CDLL(None)
assert libc.shmget(0, 4096, 0o1600) >= 0
assert libc.msgget(0, 0o1600) >= 0
assert libc.semget(0, 2, 0o1600) >= 0
"""


def leave(uid: int) -> None:
    subprocess.run([sys.executable, "-c", LEAVE, str(uid)], check=True)


def left(uid: int) -> list[str]:
    """Of which kinds there is something."""
    owners = {kind: Path("/proc/sysvipc", kind).read_text().split() for kind in ("shm", "msg", "sem")}
    return [kind for kind, words in owners.items() if str(uid) in words]


def test_what_a_user_left_is_removed_and_what_others_left_is_not() -> None:
    try:
        for uid in (OWN, OTHER):
            leave(uid)
        assert left(OWN) == left(OTHER) == ["shm", "msg", "sem"]
        remove_memory(OWN)
        assert (left(OWN), left(OTHER)) == ([], ["shm", "msg", "sem"])
    finally:
        for uid in (OWN, OTHER):
            remove_memory(uid)
    assert left(OTHER) == []
