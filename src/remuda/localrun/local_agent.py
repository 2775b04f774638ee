"""The agent of an embedded platform, seen from outside: which jobs it runs, and how it is ended.

The runner manager starts the agent and leaves it running, because jobs must survive their manager. Whoever embeds a
platform decides about its end: `remuda run` leaves nothing (`close`), `remuda up` leaves running jobs (`end_if_idle`).
"""

import asyncio
import os
import signal
import socket
import struct
from contextlib import suppress
from pathlib import Path

from grpclib import GRPCError
from grpclib.exceptions import ProtocolError, StreamTerminatedError

from remuda.cli.exits import CommandError
from remuda.wire.agent_client import AgentClient, AgentRefusedError, AgentUnavailableError, socket_of, unix_channel
from remuda.wire.proto.step_runner_grpc import StepRunnerStub
from remuda.wire.proto.step_runner_pb2 import StatusRequest, StepResult

END_SECONDS = 10.0
"""How long the agent may take to close its jobs and end."""
LOOK_SECONDS = 0.05


def data_of(manager_data: Path) -> Path:
    """Where the manager's local environment keeps its agent."""
    return manager_data / "agent"


async def close(data: Path) -> None:
    """End the agent of a data folder with everything that it runs."""
    await _end(data, closing=True)


async def end_if_idle(data: Path) -> frozenset[str]:
    """End the agent unless it runs jobs; those it runs. What it keeps of ended ones is on its disk."""
    running = await _running(data)
    if not running:
        await _end(data, closing=False)
    return running


async def _end(data: Path, *, closing: bool) -> None:
    """End the agent; one that is just starting is waited for, because nobody would end it later."""
    try:
        async with asyncio.timeout(END_SECONDS):
            while True:
                if await _ended(data, closing=closing) or not _is_starting(data):
                    return
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise CommandError(f"the agent of {data} does not end; see agent.log beside it, and end it by hand") from None


async def _running(data: Path) -> frozenset[str]:
    place = socket_of(data)
    if place is None:
        return frozenset()
    channel = unix_channel(place)
    try:
        async with asyncio.timeout(END_SECONDS):  # its TimeoutError is an OSError
            answer = await StepRunnerStub(channel).Status(StatusRequest())
    except (GRPCError, OSError, ProtocolError, StreamTerminatedError):
        return frozenset()
    finally:
        channel.close()
    return frozenset(job.id for job in answer.jobs if job.status == StepResult.running)


async def _ended(data: Path, *, closing: bool) -> bool:
    """End the agent that answers, after closing its jobs if wanted; False when none answers."""
    place = socket_of(data)
    if place is None:
        return False
    left, process = [], _listener_of(place)
    async with AgentClient(unix_channel(place)) as client:
        try:
            hello = await client.hello()
        except (AgentUnavailableError, AgentRefusedError):
            return False
        for job in hello.jobs if closing else ():
            try:
                await client.close_job(job)
            except (AgentUnavailableError, AgentRefusedError) as error:
                left.append(f"{job} ({error})")
    if process:
        with suppress(ProcessLookupError):
            await _gone(process)
    if left:
        raise CommandError(f"the agent could not end its jobs {', '.join(left)}; look for their processes")
    return True


def _listener_of(path: Path) -> int:
    """The process that listens there, by its number here: in a sandbox it has another one for itself. 0: none."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(os.fspath(path))
        except OSError:
            return 0
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", told)[0])


def _is_starting(data: Path) -> bool:
    """Whether an agent for this folder runs although it does not answer yet; its command line names the folder."""
    from remuda.steps.process.fork_server import NAME

    wanted = {os.fsencode(data), b"remuda.steps"}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = set((process / "cmdline").read_bytes().split(b"\0"))
            # What an agent has forked has its command line, too.
            if wanted <= words and (process / "comm").read_text().strip() != NAME:
                return True
    return False


async def _gone(pid: int) -> None:
    """Ask a process to end and wait until it has."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    handle = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        loop.add_reader(handle, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
