"""Files of a user in places for everybody, and its processes; in jobs: tests/integration/autoscaling/test_slots.py."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from remuda.steps.policy.user_cleanup import is_listed, kill_processes, remove_files

UID = 123457
AS_USER = ("setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups")
APART = ("unshare", "--pid", "--fork")
SLEEP = ("sh", "-c", "echo up; exec sleep 60")
RAISED = f"""
import os, time
os.setresuid({UID}, 0, 0)
print("up", flush=True)
time.sleep(60)
"""
WITHOUT_FIRST_THREAD = f"""
import ctypes, os, threading, time

def stay():
    time.sleep(0.2)
    print("up", flush=True)
    time.sleep(60)

os.setresuid({UID}, {UID}, {UID})
threading.Thread(target=stay).start()
ctypes.CDLL(None).syscall(60, 0)  # ends this thread only
"""


def test_what_lies_in_a_place_goes_and_what_it_links_to_stays(tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    (place / "folder" / "deep").mkdir(parents=True)
    (place / "folder" / "deep" / "file").touch()
    (place / "file").touch()
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (place / "link").symlink_to(elsewhere)
    (place / "folder" / "link").symlink_to(elsewhere)
    remove_files(os.geteuid() + 1, (str(place), str(tmp_path / "none")))
    assert len(list(place.iterdir())) == 3
    remove_files(os.geteuid(), (str(place), str(tmp_path / "none")))
    assert list(place.iterdir()) == []
    assert (elsewhere / "kept").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    (tmp_path / "own").touch()
    os.chown(tmp_path / "own", 123456, 123456)
    remove_files(123456, (str(tmp_path),))
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_users_of_the_machine() -> None:
    assert is_listed(0)
    assert not is_listed(2**31 - 7)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    ("command", "is_users"),
    [
        pytest.param((*AS_USER, *SLEEP), True, id="plain"),
        pytest.param((*AS_USER, *APART, "--user", "--map-root-user", *SLEEP), True, id="in a namespace of its own"),
        pytest.param((sys.executable, "-c", RAISED), True, id="with root's rights"),
        pytest.param((sys.executable, "-c", WITHOUT_FIRST_THREAD), True, id="whose first thread has ended"),
        pytest.param((*APART, *AS_USER, *SLEEP), False, id="in a container of others"),
        pytest.param(SLEEP, False, id="of others"),
    ],
)
def test_processes_of_the_user_are_killed_wherever_they_are(command: tuple[str, ...], is_users: bool) -> None:
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"up\n":
                pytest.skip("this machine has no such namespaces")
            assert kill_processes(UID) is is_users
            if is_users:
                process.communicate(timeout=10)  # to the end of the last that can write there
            else:
                assert process.poll() is None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
