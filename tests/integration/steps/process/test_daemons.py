"""Whatever a job has started in the background ends with it, however it hides; what other jobs have started goes on."""

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
"""Of nobody else: all processes of such a user end with the job."""
USERS = (str(UID), str(UID + 1))
PLAIN = ("unshare", "--user", "--map-user=1000", "--map-group=1000", sys.executable, "-m", "remuda.steps")
"""An agent that is not root, and may make no control groups."""
UNGROUPED = "awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts | xargs -r -n1 umount --lazy; exec \"$@\""
WITHOUT_GROUPS = ("unshare", "--mount", "sh", "-c", UNGROUPED, "sh", *PROGRAM)
"""An agent that is root, on a machine without control groups."""
UNMARK = "prlimit --locks=12345: "
"""Removes the mark of the job, as a hostile program does."""
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or ""
"""One that every user may run, and that a sandbox shows."""
pytestmark = [pytest.mark.long, pytest.mark.skipif(not PYTHON, reason="needs a Python of the system")]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

MOST_SECONDS = 120
"""Whatever a test starts ends by itself after so long, should the code under test not end it."""

# Each is Python: `daemonize` has left its parent and its session. `up` says that all of it is there.
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
ready, said = os.pipe()
for n in range(3):
    if os.fork() == 0:
        os.setsid()
        os.fork()
        os.write(said, b"x"); sleep(); os._exit(0)
while len(os.read(ready, 1)) and (n := n + 1) < 8: pass
up(); sleep()
"""
RESPAWN = """
# Two that watch each other: when one is gone, the other starts it again.
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
FLEEING = """
# Always another process: each lives for a moment only.
daemonize(); up()
while time.time() < END:
    if os.fork(): os._exit(0)
    os.setsid()
    with open(sys.argv[2], "a") as file: file.write("x")
"""
NAMESPACES = """
daemonize()
words = ["unshare", "--user", "--map-root-user", "--pid", "--mount-proc", "--fork", sys.executable, "-c"]
text = "import os,sys,time; os.fork(); open(sys.argv[2],'w').close(); time.sleep(120)"
os.execvp(words[0], [*words, text, *sys.argv[1:]])
"""
KINDS = {"family": FAMILY, "respawn": RESPAWN, "stopped": STOPPED, "fleeing": FLEEING, "namespaces": NAMESPACES}
LOOKS = 20
TOKENS: list[str] = []
"""What the processes of the running test are found by."""


def living(token: str) -> list[int]:
    """All processes of the machine that have this among their arguments, except dead ones."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if token.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


async def check_gone(work: Path, token: str) -> None:
    """No process with this is left. What was killed may take a moment to go. One that is always another process is
    hardly ever seen, but its file grows."""
    await until(lambda: living(token) == [], seconds=5)
    size = (work / "up").stat().st_size
    assert [living(token) for _ in range(LOOKS)] == [[]] * LOOKS
    assert (work / "up").stat().st_size == size


def wait_for(name: str) -> str:
    """Shell code that waits for a file."""
    return f"n=0; until [ -e {name} ] || [ $n -ge {MOST_SECONDS * 20} ]; do n=$((n+1)); sleep 0.05; done"


@pytest.fixture
def place() -> Iterator[Path]:
    """Where other users can reach what is theirs. What a failed test has left is killed: what is stopped has no end."""
    with tempfile.TemporaryDirectory(prefix="remuda-daemons-", dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
    while TOKENS:
        for pid in living(TOKENS.pop()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def many_processes() -> Iterator[None]:
    words = ["sh", "-c", f"for n in $(seq 300); do sleep {MOST_SECONDS} & done; echo; wait"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        yield
        os.killpg(shell.pid, signal.SIGKILL)


def a_job(
    place: Path, name: str, kind: str, *, bare: bool, unmark: bool = False, wait: str = "", **more: Any
) -> tuple[JobStart, str]:
    """A job that starts a daemon, `bare` without any variable of the job, `unmark` without its limit; what its
    processes are found by."""
    token, work = token_hex(8), place / name
    TOKENS.append(token)
    work.mkdir(exist_ok=True)
    (work / "daemon.py").write_text(HEAD + KINDS[kind])
    words = f"{UNMARK if unmark else ''}{'env -i PATH=$PATH ' if bare else ''}{PYTHON} daemon.py {token} up"
    script = f"{words} >/dev/null 2>&1 </dev/null & {wait_for('up')}; echo is up; {wait}"
    steps = steps_text({"name": "build", "script": script})
    return JobStart(**({"id": name, "work_dir": str(work), "steps": steps} | more)), token


@asynccontextmanager
async def an_agent(place: Path, program: tuple[str, ...] = ()) -> AsyncIterator[AgentProcess]:
    agent = AgentProcess(place / "data", program) if program else AgentProcess(place / "data")
    async with agent:
        await agent.start()
        yield agent


async def beside(client: AgentClient, place: Path, **options: Any) -> str:
    """A job that goes on, with a daemon of its own; what its processes are found by."""
    job, token = a_job(place, "beside", "family", wait=wait_for("go"), **options)
    await client.start(job)
    await until((place / "beside/up").exists)
    return token


async def check(
    place: Path, kind: str, *, program: tuple[str, ...] = (), users: Sequence[str] = ("", ""), **options: Any
) -> None:
    """Nothing is left when the job has ended, and a neighbour is not hurt. `users` are whom the two run as."""
    async with an_agent(place, program) as agent, agent.client() as client:
        others = await beside(client, place, run_as=users[1], **options)
        family = set(living(others))
        job, token = a_job(place, "one", kind, run_as=users[0], **options)
        seen = await run_job(agent, job)
        await check_gone(place / "one", token)
        assert seen.lines == [b"is up"], seen.log
        assert set(living(others)) == family
        (place / "beside/go").touch()
        await follow(client, "beside")
        await check_gone(place / "beside", others)


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("kind", list(KINDS))
async def test_as_root(place: Path, kind: str, bare: bool) -> None:
    await check(place, kind, bare=bare)


@as_root
@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("kind", list(KINDS))
async def test_as_a_plain_user(place: Path, kind: str, bare: bool) -> None:
    await check(place, kind, bare=bare, program=PLAIN)


@as_root
@pytest.mark.parametrize("kind", list(KINDS))
async def test_as_a_user_of_its_own(place: Path, kind: str) -> None:
    await check(place, kind, bare=True, users=USERS, own_user=True)


@as_root
@pytest.mark.parametrize("kind", list(KINDS))
async def test_as_a_user_of_its_slot_without_a_mark(place: Path, kind: str) -> None:
    await check(place, kind, bare=True, unmark=True, users=USERS, program=WITHOUT_GROUPS)


@as_root
async def test_as_one_user_for_all_jobs(place: Path) -> None:
    await check(place, "family", bare=True, users=USERS[:1] * 2, program=WITHOUT_GROUPS)


@pytest.mark.skipif(sandbox.problem() is not None, reason=f"no sandbox here: {sandbox.problem()}")
@pytest.mark.parametrize("kind", ["family", "fleeing"])
async def test_in_a_sandbox(place: Path, kind: str) -> None:
    job, token = a_job(place, "one", kind, bare=True, sandbox=True)
    async with an_agent(place) as agent:
        seen = await run_job(agent, job)
    assert seen.lines == [b"is up"], seen.log
    await check_gone(place / "one", token)


@pytest.mark.parametrize("kind", ["family", "respawn", "fleeing"])
async def test_a_closed_job_leaves_nothing(place: Path, kind: str) -> None:
    async with an_agent(place) as agent, agent.client() as client:
        job, token = a_job(place, "one", kind, bare=True, wait=f"sleep {MOST_SECONDS}")
        await client.start(job)
        await until((place / "one/up").exists)
        await client.close_job(job.id)
        await check_gone(place / "one", token)


async def test_a_closed_job_leaves_nothing_among_many_processes(place: Path, many_processes: None) -> None:
    """Here a search of the whole machine takes longer than a fleeing process lives."""
    await test_a_closed_job_leaves_nothing(place, "fleeing")


@pytest.mark.parametrize("kind", ["family", "respawn", "stopped"])
async def test_the_next_agent_ends_what_was_started_under_a_dead_one(place: Path, kind: str) -> None:
    async with an_agent(place) as agent:
        job, token = a_job(place, "one", kind, bare=True, wait=wait_for("go"))
        async with agent.client() as client:
            others = await beside(client, place, bare=True)
            await client.start(job)
            await until((place / "one/up").exists)
        family = set(living(others))
        await agent.kill()
        await agent.start()
        (place / "one/go").touch()
        async with agent.client() as client:
            await follow(client, job.id)
            await check_gone(place / "one", token)
            assert set(living(others)) == family


async def test_a_cancelled_job_leaves_nothing(place: Path) -> None:
    async with an_agent(place) as agent, agent.client() as client:
        job, token = a_job(place, "one", "family", bare=True, wait=f"sleep {MOST_SECONDS}")
        await client.start(job)
        await until((place / "one/up").exists)
        await client.cancel(job.id)
        async with asyncio.timeout(60):
            await follow(client, job.id)
        await check_gone(place / "one", token)
