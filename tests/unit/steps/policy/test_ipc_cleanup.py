"""Removal of a user's System V shared memory, message queues and semaphores, on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.steps.policy.ipc_cleanup import remove_memory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
REMOVED_UID, KEPT_UID = 123481, 123482
CREATE_PROGRAM = """
import ctypes, os, sys
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
libc = ctypes.CDLL(None)
assert libc.shmget(0, 4096, 0o1600) >= 0
assert libc.msgget(0, 0o1600) >= 0
assert libc.semget(0, 2, 0o1600) >= 0
"""


def create_objects(uid: int) -> None:
    subprocess.run([sys.executable, "-c", CREATE_PROGRAM, str(uid)], check=True)


def list_kinds(uid: int) -> list[str]:
    """List the kinds of objects that exist for a user."""
    owners = {kind: Path("/proc/sysvipc", kind).read_text().split() for kind in ("shm", "msg", "sem")}
    return [kind for kind, fields in owners.items() if str(uid) in fields]


def test_objects_of_a_user_are_removed_and_those_of_others_are_kept() -> None:
    try:
        for uid in (REMOVED_UID, KEPT_UID):
            create_objects(uid)
        assert list_kinds(REMOVED_UID) == list_kinds(KEPT_UID) == ["shm", "msg", "sem"]
        remove_memory(REMOVED_UID)
        assert (list_kinds(REMOVED_UID), list_kinds(KEPT_UID)) == ([], ["shm", "msg", "sem"])
    finally:
        for uid in (REMOVED_UID, KEPT_UID):
            remove_memory(uid)
    assert list_kinds(KEPT_UID) == []
