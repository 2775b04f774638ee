"""Runs the agent from its start to its end: data folder, transport, jobs, gRPC server, stop.

On a signal the agent stops at once: the processes of jobs continue, and the next agent resumes the jobs. It stops by
itself when its data folder was removed and no job runs. It can be bound to a command (`serve ... COMMAND`), as GitLab's
step runner is: the command is started when stdin has data, and the agent stops when the command ends."""

import array
import asyncio
import fcntl
import math
import os
import resource
import signal
import sys
import termios
from collections.abc import Callable, Sequence
from pathlib import Path

from grpclib.server import Server

from remuda.lib.clock import SystemClock
from remuda.lib.waiting import wait_for_event
from remuda.steps.agent.grpc_service import AgentService, StepRunnerService, is_of_a_job
from remuda.steps.agent.jobs import Jobs
from remuda.steps.agent.transport import open_transport
from remuda.steps.engine.process_execution import AgentContext
from remuda.steps.job_files.data_folder import occupy
from remuda.steps.pack.program import certificates
from remuda.steps.process.environment import clean_base
from remuda.steps.process.fork_server import ForkServer
from remuda.steps.process.kernel import Changes, Pulse

READY = "step-runner is listening on socket"
"""Clients look for this on stderr; the path of the socket or the TCP address follows."""
LOOK_SECONDS = 1.0
"""How often the agent checks whether it is idle and whether its folder exists."""
LOST_SECONDS = 2.0
"""How long an idle agent without a folder stays, so that clients can fetch how their jobs ended."""
CLEAN_UP_SECONDS = 5.0
"""How often the agent looks for jobs whose clients do not come back, and for a full disk."""


async def serve(
    data: Path,
    fork_server: ForkServer,
    *,
    listen_at: str | None = None,
    socket: Path | None = None,
    idle_exit_seconds: float | None = None,
    command: Sequence[str] = (),
) -> int:
    """Run the agent until a signal, `idle_exit_seconds` without job and connection, or the removal of its data folder.
    With `command`: run that, until a signal or its end, and return its exit code; otherwise return 0. `fork_server`
    runs built-in steps. `listen_at`, `socket`: the address for clients (see `open_transport`)."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    open_files = _raise_open_files()
    authorities = certificates()
    os.environ.update(authorities)
    code = 0
    with occupy(data) as is_there, open_transport(data, listen_at=listen_at, socket=socket) as transport:
        pulse = Pulse()
        context = AgentContext(
            clock=SystemClock(),
            pulse=pulse,
            changes=Changes(pulse),
            base_env=clean_base(os.environ) | authorities,
            open_files=open_files,
            fork_server=fork_server,
        )
        async with asyncio.TaskGroup() as tasks:
            jobs = Jobs(data.absolute() / "jobs", context, tasks)
            jobs.adopt()
            server = Server([AgentService(jobs, transport=transport.kind, data=data), StepRunnerService(jobs)])
            transport.guard(server, lambda pid: is_of_a_job(pid, jobs))
            await server.start(sock=transport.listener)
            transport.announce(data)
            sys.stderr.write(f"{READY} {transport.address}\n")
            sys.stderr.flush()
            cleaner = tasks.create_task(_clean_up(jobs), name="clean up")
            if command:
                code = await _with_command(command, stop)
            else:
                await _until_stopped(stop, server, jobs, idle_exit_seconds, is_there)
            cleaner.cancel()
            server.close()
            jobs.abandon()
        context.changes.close()
        context.drains.close()
    return code


async def _until_stopped(
    stop: asyncio.Event,
    server: Server,
    jobs: Jobs,
    idle_exit_seconds: float | None,
    is_there: Callable[[], bool],
) -> None:
    clock = SystemClock()
    used_at = kept_at = clock.monotonic()
    while not stop.is_set():
        now = clock.monotonic()
        if jobs.is_any_running or is_there():
            kept_at = now
        # The server has no public count of its connections.
        if not jobs.are_idle or any(not handler.closing for handler in server._handlers):
            used_at = now
        seconds = math.inf if idle_exit_seconds is None else used_at + idle_exit_seconds - now
        if seconds <= 0 or now - kept_at >= LOST_SECONDS:
            return
        await wait_for_event(stop, within_seconds=min(seconds, LOOK_SECONDS))


async def _clean_up(jobs: Jobs) -> None:
    clock = SystemClock()
    while True:
        await clock.sleep(CLEAN_UP_SECONDS)
        jobs.clean_up()
        await jobs.watch_disk()


async def _with_command(command: Sequence[str], stop: asyncio.Event) -> int:
    """Run the command as soon as stdin has data, and return its exit code. If stdin ends without data, or the agent is
    told to stop (`stop`) before, the command is not run and 0 is returned."""
    if not await _has_input(stop):
        return 0
    process = await asyncio.create_subprocess_exec(*command)
    async with asyncio.TaskGroup() as tasks:
        stopper = tasks.create_task(_terminate_at(stop, process), name="end of the command")
        code = await process.wait()
        stopper.cancel()
    return code if code >= 0 else 128 - code


async def _terminate_at(stop: asyncio.Event, process: asyncio.subprocess.Process) -> None:
    await stop.wait()
    process.terminate()


async def _has_input(stop: asyncio.Event) -> bool:
    """Wait until stdin has data, without reading it. Returns False if stdin ends first, or `stop` is set."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(0, readable.set)
    except OSError:  # epoll does not take plain files, which are always readable
        return True
    try:
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(event.wait(), name="stdin") for event in (readable, stop)]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
    finally:
        loop.remove_reader(0)
    waiting_bytes = array.array("i", [0])
    fcntl.ioctl(0, termios.FIONREAD, waiting_bytes)
    return waiting_bytes[0] > 0


def _raise_open_files() -> int:
    """Raise the limit of open files: each running step needs one in the agent. Returns the old limit, for the steps."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft
