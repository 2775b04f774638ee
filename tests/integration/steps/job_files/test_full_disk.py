"""The agent's disk is full: jobs wait for free space, and a job that cannot continue ends with the cause."""

import asyncio
import errno
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.step_jobs import Build

from remuda.steps.job_files.disk import has_room
from remuda.testing.agent_process import PROGRAM, AgentProcess, follow, run_job, steps_text
from remuda.testing.waiting import until

pytestmark = pytest.mark.long

UID = 745_311 + 2 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""A user that neither this machine nor a concurrent test has. The next number is free, too."""
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")
"""A Python that every user may run."""
WAIT = "touch up; until [ -e {go} ]; do sleep 0.02; done; "


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small disk that other users can enter."""
    with tempfile.TemporaryDirectory(prefix="remuda-disk-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        disk = Path(folder, "disk")
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=2000", "tmpfs", str(disk)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("needs the right to mount a disk")
        yield disk
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.fixture
async def small_agent(disk: Path) -> AsyncIterator[AgentProcess]:
    """An agent whose data folder is on the small disk."""
    async with AgentProcess(disk / "data") as process:
        await process.start()
        yield process


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


async def fill_up(agent: AgentProcess) -> None:
    """Fill the disk from outside of any job, including the space that the agent has reserved."""
    assert (agent.data / "reserve").is_dir()
    fill(agent.data / "ballast1")
    await until(lambda: not (agent.data / "reserve").exists())
    fill(agent.data / "ballast2")


async def test_jobs_wait_for_room(small_agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    script = WAIT.format(go="go") + "for n in $(seq 2000); do echo line $n; done; touch printed"
    job = a_job(steps=steps_text({"name": "a", "script": script}, {"name": "b", "script": "echo next"}))
    async with small_agent.client() as client:
        await client.start(job)
        await until((tmp_path / "work/up").exists)
        await fill_up(small_agent)
        (tmp_path / "work/go").touch()
        await until((tmp_path / "work/printed").exists)
        for path in small_agent.data.glob("ballast*"):
            path.unlink()
        seen = await follow(client, "1")
    assert seen.check().status == "success"
    assert seen.lines == [b"line %d" % n for n in range(1, 2001)] + [b"next"]
    assert any(b"for room on the disk" in line for line in seen.agent_lines)


LITTLE_BYTES = 200 * 1024
"""Free space that is enough for `has_room`, but less than a job needs that writes `MUCH` at once."""
MUCH = 350 * 1024


def fill_except_little(disk: Path) -> Path:
    filesystem = os.statvfs(disk)
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(filesystem.f_bavail * filesystem.f_frsize - LITTLE_BYTES))
    assert has_room(disk)
    return ballast


async def test_output_waits_for_disk_space(small_agent: AgentProcess, a_job: Build, disk: Path, tmp_path: Path) -> None:
    """The disk has room before each write, and the write still fails."""
    lines = 30_000
    # The lines are short: their headers need more than the free space, but one read does not.
    script = WAIT.format(go="go") + f"exec {PYTHON} -c 'import os; os.write(1, b\"x\\n\" * {lines})'"
    async with small_agent.client() as client:
        await client.start(a_job(script=script))
        await until((tmp_path / "work/up").exists)
        ballast = fill_except_little(disk)
        (tmp_path / "work/go").touch()
        await until(lambda: not (small_agent.data / "reserve").exists())
        ballast.unlink()
        seen = await follow(client, "1")
    assert seen.check().status == "success", seen.log[-1000:]
    assert seen.lines == [b"x"] * lines


PRINT = """
import os, time
line = b"x" * 999 + b"\\n"
os.write(1, line * 20)
while not os.path.exists("go"):
    time.sleep(0.02)
os.write(1, line * 1000)
"""
"""The first lines make the agent enlarge the pipe, so that it can hold the other lines."""


async def test_last_output_waits_for_room(small_agent: AgentProcess, a_job: Build, disk: Path, tmp_path: Path) -> None:
    """All output is in the pipe when the command ends, and only a part of it fits on the disk."""
    async with small_agent.client() as client:
        await client.start(a_job(script=f"{PYTHON} -c '{PRINT}'; touch printed"))
        await until(lambda: any(path.stat().st_size > 20_000 for path in small_agent.data.glob("jobs/*/log")))
        os.kill(small_agent.pid, signal.SIGSTOP)
        (tmp_path / "work/go").touch()
        await until((tmp_path / "work/printed").exists)
        ballast = fill_except_little(disk)
        os.kill(small_agent.pid, signal.SIGCONT)
        await until(lambda: not (small_agent.data / "reserve").exists())
        ballast.unlink()
        seen = await follow(client, "1")
    assert seen.check().status == "success", seen.log[-1000:]
    assert seen.lines == [b"x" * 999] * 1020


async def test_script_waits_for_disk_space(small_agent: AgentProcess, a_job: Build, disk: Path, tmp_path: Path) -> None:
    large = f"echo next  # {'x' * MUCH}"
    job = a_job(
        steps=steps_text({"name": "a", "script": WAIT.format(go="go")}, {"name": "b", "script": large}),
    )
    async with small_agent.client() as client:
        await client.start(job)
        await until((tmp_path / "work/up").exists)
        fill_except_little(disk)
        (tmp_path / "work/go").touch()
        seen = await follow(client, "1")
    assert seen.check().status == "success", seen.log[-1000:]
    assert seen.lines == [b"next"]


async def test_a_job_whose_log_cannot_be_written_says_why(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    inner = {"name": "inner", "script": WAIT.format(go="go") + "echo lost; sleep 600"}
    job = a_job(steps=steps_text({"name": "outer", "parallel": [inner]}))
    async with agent.client() as client:
        await client.start(job)
        await until((tmp_path / "work/up").exists)
        # This limit acts like a full disk for all files of this agent, at once.
        before = resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        (tmp_path / "work/go").touch()
        async with asyncio.timeout(20):
            seen = await follow(client, "1")
        end = seen.check()
        assert (end.status, end.reason) == ("failure", "runner_system_failure")
        assert seen.agent_lines[-1].startswith(b"ERROR: Job failed (system failure): ")
        assert os.strerror(errno.EFBIG).encode() in seen.agent_lines[-1]
        assert seen.statuses == {"inner": "failure", "outer": "failure"}
        resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, before)
        await client.close_job("1")
    assert (await run_job(agent, a_job("2", script="echo next"))).lines == [b"next"]


FILL = "dd if=/dev/zero of=fill bs=4096 2>/dev/null"
REFILL = f"while :; do {FILL} || sleep 0.01; done"
MANY = "n=0; while : >file$n; do n=$((n+1)); done"
REPORT_EXIT = "trap 'echo it ended by itself' EXIT; "
"""A killed script does not print this."""
PRINT_LINES = "until [ -e {go} ]; do sleep 0.05; done; for n in $(seq 200); do echo line $n; done"


@pytest.mark.parametrize(
    "script",
    [
        f"{REPORT_EXIT}{FILL} || sleep 600",
        f"{FILL}",
        f"{REPORT_EXIT}{REFILL}",
        f"{REPORT_EXIT}({MANY}) 2>/dev/null; sleep 600",
        f"{REPORT_EXIT}setsid sh -c '{REFILL}' & sleep 600",
    ],
)
async def test_a_job_that_fills_the_disk_stalls_no_other_and_may_free_it(
    small_agent: AgentProcess, a_job: Build, disk: Path, tmp_path: Path, script: str
) -> None:
    go = tmp_path / "go"
    # It frees nothing before the test has seen the full disk: a script that ends at once would make room too soon.
    freeing = f"until [ -e {go} ]; do sleep 0.05; done; rm -f fill file*; echo freed"
    free = {"name": "after", "script": freeing, "if": "always()"}
    bad = a_job("bad", work_dir=str(disk / "bad"), steps=steps_text({"name": "build", "script": script}, free))
    steps = [{"name": "a", "script": PRINT_LINES.format(go=go)}, {"name": "b", "script": "echo next"}]
    good = a_job("good", work_dir=str(disk / "good"), steps=steps_text(*steps))
    async with small_agent.client() as client:
        await client.start(good)
        await client.start(bad)
        await until(lambda: not has_room(disk))
        go.touch()
        async with asyncio.timeout(100):
            good_seen = await follow(client, "good")
            assert good_seen.check().status == "success", good_seen.log
            assert good_seen.lines == [b"line %d" % n for n in range(1, 201)] + [b"next"]
            bad_seen = await follow(client, "bad")
    end = bad_seen.check()
    assert bad_seen.lines == [b"freed"]
    assert bad_seen.statuses == {"build": "failure", "after": "success"}
    assert (end.status, end.reason) == ("failure", "script_failure")
    assert "has filled the disk" in end.message
    assert has_room(disk)


REPEAT = "while :; do {} 2>/dev/null || sleep 0.01; done"
"""Repeats a command, so that space which the agent frees is used up, too."""
APPEND = REPEAT.format("dd if=/dev/zero of={out} bs=4096 oflag=append conv=notrunc")


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Path]:
    """A small ext4 disk: the kernel counts writes to it per process, unlike writes to a tmpfs."""
    image, disk = tmp_path / "image", tmp_path / "ext4"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(24 * 1024**2)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-N", "2000", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, disk], capture_output=True).returncode:
        pytest.skip("needs the right to mount a disk")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


async def check_other_job_continues(
    agent: AgentProcess, a_job: Build, disk: Path, go: Path, script: str, *, good_user: str = "", **options: Any
) -> None:
    """Assert that a job whose `script` fills the disk outside of its folders is ended, and another job continues."""
    free = {"name": "after", "script": f"rm -f {disk}/shared/fill; echo freed", "if": "always()"}
    bad = a_job(
        "bad", work_dir=str(disk / "bad"), steps=steps_text({"name": "build", "script": script}, free), **options
    )
    good = a_job("good", work_dir=str(disk / "good"), script=PRINT_LINES.format(go=go), run_as=good_user)
    async with agent.client() as client:
        await client.start(good)
        await client.start(bad)
        async with asyncio.timeout(100):
            bad_seen = await follow(client, "bad")
            go.touch()
            good_seen = await follow(client, "good")
    assert bad_seen.lines == [b"freed"], bad_seen.log
    assert bad_seen.statuses == {"build": "failure", "after": "success"}
    assert "has filled the disk" in bad_seen.check().message
    assert good_seen.check().status == "success", good_seen.log
    assert has_room(disk)


async def test_a_job_that_fills_the_disk_outside_its_folders_is_found(ext4: Path, a_job: Build, tmp_path: Path) -> None:
    (ext4 / "shared").mkdir()
    async with AgentProcess(ext4 / "data") as agent:
        await agent.start()
        await check_other_job_continues(agent, a_job, ext4, tmp_path / "go", APPEND.format(out=ext4 / "shared/fill"))


async def test_unnamed_file_fills_the_disk(small_agent: AgentProcess, a_job: Build, disk: Path, tmp_path: Path) -> None:
    (disk / "shared").mkdir()
    out = disk / "shared/fill"
    script = f"exec 3>{out}; rm {out}; " + REPEAT.format("dd if=/dev/zero bs=4096 >&3")
    await check_other_job_continues(small_agent, a_job, disk, tmp_path / "go", script)


MAPPED = """
import mmap, os, time
file = os.open("fill", os.O_RDWR | os.O_CREAT)
os.unlink("fill")
os.write(file, bytes(4096))
memory = mmap.mmap(file, 4096)
try:
    while True:
        os.write(file, bytes(4096))
except OSError:
    os.closerange(3, 100)
time.sleep(100)
"""


@pytest.mark.skipif(os.geteuid() != 0 or not PYTHON, reason="needs root, and a Python of the system")
@pytest.mark.parametrize("sandbox", [False, True])
async def test_a_job_that_fills_the_disk_with_a_file_that_is_only_mapped_is_found(
    small_agent: AgentProcess, a_job: Build, disk: Path, tmp_path: Path, sandbox: bool
) -> None:
    script = f"{PYTHON} -c '{MAPPED}'"
    await check_other_job_continues(small_agent, a_job, disk, tmp_path / "go", script, run_as=str(UID), sandbox=sandbox)


async def test_a_job_that_fills_the_disk_with_users_files_is_found(disk: Path, a_job: Build, tmp_path: Path) -> None:
    """/var/tmp, where all users can write, is on the agent's disk."""
    (disk / "shared").mkdir()
    (disk / "shared").chmod(0o1777)
    bind = f'mount --bind {disk}/shared /var/tmp && exec "$@"'
    async with AgentProcess(disk / "data", ("unshare", "--mount", "sh", "-c", bind, "sh", *PROGRAM)) as agent:
        await agent.start()
        script = APPEND.format(out="/var/tmp/fill")
        await check_other_job_continues(agent, a_job, disk, tmp_path / "go", script, run_as=str(UID), own_user=True)


HIDE = """
import os, resource, sys, time
LOCKS = 10
own, most = resource.getrlimit(LOCKS)

def find_mark_of_another():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat("/proc/" + name).st_uid == int(sys.argv[2]):
                line = next(line for line in open(f"/proc/{name}/limits") if line.startswith("Max file locks"))
                return int(line.split()[3])
        except (OSError, ValueError):
            pass

while (mark := 12345 if sys.argv[1] == "none" else find_mark_of_another()) is None:
    time.sleep(0.01)
resource.setrlimit(LOCKS, (mark, most))
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
file = os.open("fill", os.O_RDWR | os.O_CREAT)
os.unlink("fill")
end = time.monotonic() + 100
while time.monotonic() < end:
    try:
        os.write(file, bytes(4096))
    except OSError:
        time.sleep(0.01)
"""
"""Fills the disk with an unlinked file, from a process that has no mark or the mark of another user's job."""


@pytest.mark.skipif(os.geteuid() != 0 or not PYTHON, reason="needs root, and a Python of the system")
@pytest.mark.parametrize(("mark", "sandbox"), [("another", False), ("none", False), ("none", True)])
async def test_a_job_that_hides_behind_its_mark_is_found_by_its_user(
    small_agent: AgentProcess, a_job: Build, disk: Path, mark: str, sandbox: bool
) -> None:
    script = f"env -i {PYTHON} -c '{HIDE}' {mark} {UID + 1} >/dev/null 2>&1 </dev/null & sleep 600"
    users = (str(UID), str(UID + 1))
    await check_other_job_continues(
        small_agent, a_job, disk, disk / "go", script, run_as=users[0], good_user=users[1], sandbox=sandbox
    )
