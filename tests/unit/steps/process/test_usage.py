import os
import subprocess
import sys
from pathlib import Path

from remuda.steps.process import usage
from remuda.steps.process.shim import start_time


def start_session() -> "subprocess.Popen[bytes]":
    """Start an idle session leader. Waits for its first output, because a process has no memory while it is started."""
    text = "import sys; print(flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_sessions_are_measured_separately() -> None:
    with start_session() as first, start_session() as second:
        usages = usage.of_sessions({first.pid, second.pid, 2**22})
        assert usages.keys() == {first.pid, second.pid}
        assert all(used.processes == 1 and used.memory_bytes > 0 for used in usages.values())
        for process in (first, second):
            process.communicate()
    assert not usage.of_sessions({first.pid})


def test_descendants_belong_to_a_session() -> None:
    text = (
        "import subprocess, sys; print(subprocess.Popen(['setsid', 'sleep', '60']).pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as leader:
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        assert usage.is_part_of(leader.pid, {leader.pid})
        # The child has its own session, but a process of this session started it.
        assert usage.is_part_of(child, {leader.pid})
        assert not usage.is_part_of(os.getpid(), {leader.pid})
        assert not usage.is_part_of(0, {leader.pid})
        os.kill(child, 9)
        leader.communicate()
    assert not usage.is_part_of(leader.pid, {leader.pid})


def test_only_running_sessions_of_a_job_are_listed(tmp_path: Path) -> None:
    own = os.getpid()
    (tmp_path / "step-0.pid").write_text(f"{own} {start_time(own)}\n")
    (tmp_path / "step-1.pid").write_text(f"{own} 1\n")  # the process id was reused
    (tmp_path / "step-2.pid").write_text("")
    (tmp_path / "step-4.pid").write_text(f"{own} {start_time(own)}\n0\n")  # ended
    (tmp_path / "step-3.pid").write_text(f"{2**22} 77\n")
    assert usage.sessions_in(tmp_path) == {own}
    assert usage.sessions_in(tmp_path / "gone") == set()


def test_jobs_are_measured_separately(tmp_path: Path) -> None:
    (tmp_path / "busy").mkdir()
    with start_session() as process:
        (tmp_path / "busy/step-0.pid").write_text(f"{process.pid} {start_time(process.pid)}\n")
        idle, busy = usage.of_folders([tmp_path / "idle", tmp_path / "busy"])
        process.communicate()
    assert (idle.processes, busy.processes) == (0, 1)


def test_usages_are_added() -> None:
    used = usage.Used(processes=1, cpu_seconds=0.5, memory_bytes=10)
    assert sum((used, used), usage.Used()) == usage.Used(processes=2, cpu_seconds=1.0, memory_bytes=20)


def test_usage_of_this_process_and_machine(tmp_path: Path) -> None:
    assert usage.of_process(os.getpid()).processes == 1
    assert usage.of_process(2**22) == usage.Used()
    assert usage.open_files() >= 3
    assert usage.machine(tmp_path).memory_bytes > 0
