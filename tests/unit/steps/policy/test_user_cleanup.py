"""Removal of a user's files in shared folders, and of its processes. tests/integration/autoscaling/test_slots.py tests
it with jobs."""

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
IN_PID_NAMESPACE = ("unshare", "--pid", "--fork")
SLEEP = ("sh", "-c", "echo up; exec sleep 60")
PRIVILEGED_PROGRAM = f"""
import os, time
os.setresuid({UID}, 0, 0)
print("up", flush=True)
time.sleep(60)
"""
THREAD_PROGRAM = f"""
import ctypes, os, threading, time

def stay():
    time.sleep(0.2)
    print("up", flush=True)
    time.sleep(60)

os.setresuid({UID}, {UID}, {UID})
threading.Thread(target=stay).start()
ctypes.CDLL(None).syscall(60, 0)  # ends this thread only
"""


def test_files_in_a_folder_are_removed_and_link_targets_are_kept(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    (folder / "folder" / "deep").mkdir(parents=True)
    (folder / "folder" / "deep" / "file").touch()
    (folder / "file").touch()
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (folder / "link").symlink_to(elsewhere)
    (folder / "folder" / "link").symlink_to(elsewhere)
    remove_files(os.geteuid() + 1, (str(folder), str(tmp_path / "none")))
    assert len(list(folder.iterdir())) == 3
    remove_files(os.geteuid(), (str(folder), str(tmp_path / "none")))
    assert list(folder.iterdir()) == []
    assert (elsewhere / "kept").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_files_of_other_users_are_kept(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    (tmp_path / "own").touch()
    os.chown(tmp_path / "own", 123456, 123456)
    remove_files(123456, (str(tmp_path),))
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_users_are_looked_up_in_the_accounts_of_the_machine() -> None:
    assert is_listed(0)
    assert not is_listed(2**31 - 7)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    ("command", "is_killed"),
    [
        pytest.param((*AS_USER, *SLEEP), True, id="plain"),
        pytest.param(
            (*AS_USER, *IN_PID_NAMESPACE, "--user", "--map-root-user", *SLEEP), True, id="in its own namespace"
        ),
        pytest.param((sys.executable, "-c", PRIVILEGED_PROGRAM), True, id="with root privileges"),
        pytest.param((sys.executable, "-c", THREAD_PROGRAM), True, id="whose first thread has ended"),
        pytest.param((*IN_PID_NAMESPACE, *AS_USER, *SLEEP), False, id="in a container of another user"),
        pytest.param(SLEEP, False, id="of another user"),
    ],
)
def test_processes_of_the_user_are_killed_wherever_they_are(command: tuple[str, ...], is_killed: bool) -> None:
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"up\n":
                pytest.skip("this machine has no such namespaces")
            assert kill_processes(UID) is is_killed
            if is_killed:
                process.communicate(timeout=10)  # returns when the last process with the pipe has ended
            else:
                assert process.poll() is None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
