"""Background processes end with the job that started them, however they hide; those of other jobs continue."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from remuda.steps.policy import sandbox
from remuda.testing.agent_process import PROGRAM, AgentProcess, follow, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import AgentClient, JobStart

UID = 300_000 + os.getpid() % 100_000 * 2
"""A user that nobody else has: all processes of such a user end with the job."""
USERS = (str(UID), str(UID + 1))
UNPRIVILEGED = ("unshare", "--user", "--map-user=1000", "--map-group=1000", sys.executable, "-m", "remuda.steps")
"""An agent that is not root and cannot create cgroups."""
UNGROUPED = "awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts | xargs -r -n1 umount --lazy; exec \"$@\""
WITHOUT_GROUPS = ("unshare", "--mount", "sh", "-c", UNGROUPED, "sh", *PROGRAM)
"""An agent that is root, on a machine without cgroups."""
UNMARK = "prlimit --locks=12345: "
"""A command prefix that removes the mark of the job, as a hostile program does."""
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or ""
"""A Python that every user may run, and that is visible in a sandbox."""
pytestmark = [pytest.mark.long, pytest.mark.skipif(not PYTHON, reason="needs a Python of the system")]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

MOST_SECONDS = 120
"""Processes of a test end by themselves after this time if the code under test does not end them."""

# Each program is Python: `daemonize` leaves parent and session. `up` reports that all its processes run.
HEAD = f"""
import os, signal, subprocess, sys, time
END = time.time() + {MOST_SECONDS}
def daemonize():
    if os.fork(): os._exit(0)
    os.setsid()
    if os.fork(): os._exit(0)
    signal.alarm({MOST_SECONDS})
def up(): open(sys.argv[2], "w").close()
def sleep():
    while time.time() < END: time.sleep(1)
"""
FAMILY = """
daemonize()
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
reader, writer = os.pipe()
for n in range(3):
    if os.fork() == 0:
        os.setsid()
        os.fork()
        os.write(writer, b"x"); sleep(); os._exit(0)
while len(os.read(reader, 1)) and (n := n + 1) < 8: pass
up(); sleep()
"""
RESPAWN = """
# Two processes that watch each other: when one has ended, the other starts it again.
daemonize()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
watched = os.getpid()
while time.time() < END:
    if os.fork() == 0:
        os.setsid()
        watched = os.getppid()
        while time.time() < END:
            try: os.kill(watched, 0)
            except ProcessLookupError: break
            if not os.path.exists(sys.argv[2]): up()
            time.sleep(0.001)
    else:
        os.wait()
"""
STOPPED = """
daemonize()
if os.fork() == 0:
    os.setsid(); os.kill(os.getpid(), signal.SIGSTOP); sleep(); os._exit(0)
time.sleep(0.2); up(); os.kill(os.getpid(), signal.SIGSTOP); sleep()
"""
CHAIN = """
# A chain of processes: each one forks the next one and exits at once.
daemonize(); up()
while time.time() < END:
    if os.fork(): os._exit(0)
    os.setsid()
    with open(sys.argv[2], "a") as file: file.write("x")
"""
NAMESPACES = """
daemonize()
command = ["unshare", "--user", "--map-root-user", "--pid", "--mount-proc", "--fork", sys.executable, "-c"]
text = "import os,sys,time; os.fork(); open(sys.argv[2],'w').close(); time.sleep(120)"
os.execvp(command[0], [*command, text, *sys.argv[1:]])
"""
KINDS = {"family": FAMILY, "respawn": RESPAWN, "stopped": STOPPED, "chain": CHAIN, "namespaces": NAMESPACES}
SEARCHES = 20
TOKENS: list[str] = []
"""Tokens in the command lines of the processes that the running test has started."""


def find_processes(token: str) -> list[int]:
    """All running processes of the machine that have the token as an argument."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if token.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                pids.append(int(folder.name))
    return pids


async def check_gone(work: Path, token: str) -> None:
    """Assert that no process with this token is left. Killed processes may take a moment to end. A chain of processes
    is hardly ever found by a search, but its file grows."""
    await until(lambda: find_processes(token) == [], seconds=5)
    size = (work / "up").stat().st_size
    assert [find_processes(token) for _ in range(SEARCHES)] == [[]] * SEARCHES
    assert (work / "up").stat().st_size == size


def wait_for(name: str) -> str:
    """Shell code that waits for a file."""
    return f"n=0; until [ -e {name} ] || [ $n -ge {MOST_SECONDS * 20} ]; do n=$((n+1)); sleep 0.05; done"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users can enter. Processes that a failed test left are killed afterwards."""
    with tempfile.TemporaryDirectory(prefix="remuda-daemons-", dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
    while TOKENS:
        for pid in find_processes(TOKENS.pop()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def many_processes() -> Iterator[None]:
    command = ["sh", "-c", f"for n in $(seq 300); do sleep {MOST_SECONDS} & done; echo; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        yield
        os.killpg(shell.pid, signal.SIGKILL)


def a_job(
    place: Path, name: str, kind: str, *, bare: bool, unmark: bool = False, wait: str = "", **more: Any
) -> tuple[JobStart, str]:
    """A job that starts a daemon, and the token of its processes. `bare`: the daemon has no variable of the job.
    `unmark`: the daemon has removed the job's mark."""
    token, work = token_hex(8), place / name
    TOKENS.append(token)
    work.mkdir(exist_ok=True)
    (work / "daemon.py").write_text(HEAD + KINDS[kind])
    command = f"{UNMARK if unmark else ''}{'env -i PATH=$PATH ' if bare else ''}{PYTHON} daemon.py {token} up"
    script = f"{command} >/dev/null 2>&1 </dev/null & {wait_for('up')}; echo is up; {wait}"
    steps = steps_text({"name": "build", "script": script})
    return JobStart(**({"id": name, "work_dir": str(work), "steps": steps} | more)), token


@asynccontextmanager
async def an_agent(place: Path, program: tuple[str, ...] = ()) -> AsyncIterator[AgentProcess]:
    agent = AgentProcess(place / "data", program) if program else AgentProcess(place / "data")
    async with agent:
        await agent.start()
        yield agent


async def start_neighbour(client: AgentClient, place: Path, **options: Any) -> str:
    """Start a job with a daemon that continues until the file `go` exists. Returns its token."""
    job, token = a_job(place, "neighbour", "family", wait=wait_for("go"), **options)
    await client.start(job)
    await until((place / "neighbour/up").exists)
    return token


async def check_cleanup(
    place: Path, kind: str, *, program: tuple[str, ...] = (), users: Sequence[str] = ("", ""), **options: Any
) -> None:
    """Assert that the job leaves no process and that a neighbour's continue. `users`: the users of both jobs."""
    async with an_agent(place, program) as agent, agent.client() as client:
        neighbour_token = await start_neighbour(client, place, run_as=users[1], **options)
        neighbours = set(find_processes(neighbour_token))
        job, token = a_job(place, "main", kind, run_as=users[0], **options)
        seen = await run_job(agent, job)
        await check_gone(place / "main", token)
        assert seen.lines == [b"is up"], seen.log
        assert set(find_processes(neighbour_token)) == neighbours
        (place / "neighbour/go").touch()
        await follow(client, "neighbour")
        await check_gone(place / "neighbour", neighbour_token)


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("kind", list(KINDS))
async def test_daemons_end_with_a_job_of_root(place: Path, kind: str, bare: bool) -> None:
    await check_cleanup(place, kind, bare=bare)


@as_root
@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("kind", list(KINDS))
async def test_daemons_end_with_a_job_of_an_unprivileged_agent(place: Path, kind: str, bare: bool) -> None:
    await check_cleanup(place, kind, bare=bare, program=UNPRIVILEGED)


@as_root
@pytest.mark.parametrize("kind", list(KINDS))
async def test_daemons_end_with_a_job_that_has_its_own_user(place: Path, kind: str) -> None:
    await check_cleanup(place, kind, bare=True, users=USERS, own_user=True)


@as_root
@pytest.mark.parametrize("kind", list(KINDS))
async def test_unmarked_daemons_end_with_a_job_of_a_slot_user(place: Path, kind: str) -> None:
    await check_cleanup(place, kind, bare=True, unmark=True, users=USERS, program=WITHOUT_GROUPS)


@as_root
async def test_daemons_end_with_a_job_if_jobs_share_a_user(place: Path) -> None:
    await check_cleanup(place, "family", bare=True, users=USERS[:1] * 2, program=WITHOUT_GROUPS)


@pytest.mark.skipif(sandbox.problem() is not None, reason=f"no sandbox here: {sandbox.problem()}")
@pytest.mark.parametrize("kind", ["family", "chain"])
async def test_daemons_end_with_a_sandboxed_job(place: Path, kind: str) -> None:
    job, token = a_job(place, "main", kind, bare=True, sandbox=True)
    async with an_agent(place) as agent:
        seen = await run_job(agent, job)
    assert seen.lines == [b"is up"], seen.log
    await check_gone(place / "main", token)


@pytest.mark.parametrize("kind", ["family", "respawn", "chain"])
async def test_a_closed_job_leaves_nothing(place: Path, kind: str) -> None:
    async with an_agent(place) as agent, agent.client() as client:
        job, token = a_job(place, "main", kind, bare=True, wait=f"sleep {MOST_SECONDS}")
        await client.start(job)
        await until((place / "main/up").exists)
        await client.close_job(job.id)
        await check_gone(place / "main", token)


async def test_a_closed_job_leaves_nothing_among_many_processes(place: Path, many_processes: None) -> None:
    """A search of the whole machine takes longer here than each process of a chain lives."""
    await test_a_closed_job_leaves_nothing(place, "chain")


@pytest.mark.parametrize("kind", ["family", "respawn", "stopped"])
async def test_a_restarted_agent_ends_daemons_of_a_killed_agent(place: Path, kind: str) -> None:
    async with an_agent(place) as agent:
        job, token = a_job(place, "main", kind, bare=True, wait=wait_for("go"))
        async with agent.client() as client:
            neighbour_token = await start_neighbour(client, place, bare=True)
            await client.start(job)
            await until((place / "main/up").exists)
        neighbours = set(find_processes(neighbour_token))
        await agent.kill()
        await agent.start()
        (place / "main/go").touch()
        async with agent.client() as client:
            await follow(client, job.id)
            await check_gone(place / "main", token)
            assert set(find_processes(neighbour_token)) == neighbours


async def test_a_cancelled_job_leaves_nothing(place: Path) -> None:
    async with an_agent(place) as agent, agent.client() as client:
        job, token = a_job(place, "main", "family", bare=True, wait=f"sleep {MOST_SECONDS}")
        await client.start(job)
        await until((place / "main/up").exists)
        await client.cancel(job.id)
        async with asyncio.timeout(60):
            await follow(client, job.id)
        await check_gone(place / "main", token)
