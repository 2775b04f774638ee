import os
import subprocess
import sys
from pathlib import Path

from remuda.steps.process import usage
from remuda.steps.process.shim import start_time


def a_session() -> "subprocess.Popen[bytes]":
    """A process that leads a session and does nothing; one that is still being started has no memory yet."""
    text = "import sys; print(flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_sessions_are_counted_apart() -> None:
    with a_session() as one, a_session() as other:
        found = usage.of_sessions({one.pid, other.pid, 2**22})
        assert found.keys() == {one.pid, other.pid}
        assert all(used.processes == 1 and used.memory_bytes > 0 for used in found.values())
        for process in (one, other):
            process.communicate()
    assert not usage.of_sessions({one.pid})


def test_who_belongs_to_a_session() -> None:
    text = (
        "import subprocess, sys; print(subprocess.Popen(['setsid', 'sleep', '60']).pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as leader:
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        assert usage.is_part_of(leader.pid, {leader.pid})
        # In a session of its own, but started by one of this.
        assert usage.is_part_of(child, {leader.pid})
        assert not usage.is_part_of(os.getpid(), {leader.pid})
        assert not usage.is_part_of(0, {leader.pid})
        os.kill(child, 9)
        leader.communicate()
    assert not usage.is_part_of(leader.pid, {leader.pid})


def test_sessions_of_a_job_are_those_that_live(tmp_path: Path) -> None:
    own = os.getpid()
    (tmp_path / "step-0.pid").write_text(f"{own} {start_time(own)}\n")
    (tmp_path / "step-1.pid").write_text(f"{own} 1\n")  # the number was used again
    (tmp_path / "step-2.pid").write_text("")
    (tmp_path / "step-4.pid").write_text(f"{own} {start_time(own)}\n0\n")  # ended
    (tmp_path / "step-3.pid").write_text(f"{2**22} 77\n")
    assert usage.sessions_in(tmp_path) == {own}
    assert usage.sessions_in(tmp_path / "gone") == set()


def test_jobs_are_counted_apart(tmp_path: Path) -> None:
    (tmp_path / "busy").mkdir()
    with a_session() as process:
        (tmp_path / "busy/step-0.pid").write_text(f"{process.pid} {start_time(process.pid)}\n")
        idle, busy = usage.of_folders([tmp_path / "idle", tmp_path / "busy"])
        process.communicate()
    assert (idle.processes, busy.processes) == (0, 1)


def test_sums() -> None:
    used = usage.Used(processes=1, cpu_seconds=0.5, memory_bytes=10)
    assert sum((used, used), usage.Used()) == usage.Used(processes=2, cpu_seconds=1.0, memory_bytes=20)


def test_this_process_and_machine(tmp_path: Path) -> None:
    assert usage.of_process(os.getpid()).processes == 1
    assert usage.of_process(2**22) == usage.Used()
    assert usage.open_files() >= 3
    assert usage.machine(tmp_path).memory_bytes > 0
