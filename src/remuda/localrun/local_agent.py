"""Stops the agent of a platform that runs inside a command; the manager leaves it running, because jobs must survive
its restart. `remuda run` stops it with its jobs (`close`); `remuda up` only if no job runs (`end_if_idle`)."""

import asyncio
import os
import signal
import socket
import struct
from contextlib import suppress
from pathlib import Path

from grpclib import GRPCError
from grpclib.exceptions import ProtocolError, StreamTerminatedError

from remuda.lib.exits import CommandError
from remuda.wire.agent_client import AgentClient, AgentRefusedError, AgentUnavailableError, socket_of, unix_channel
from remuda.wire.proto.step_runner_grpc import StepRunnerStub
from remuda.wire.proto.step_runner_pb2 import StatusRequest, StepResult

END_SECONDS = 10.0
"""How long the agent may take to close its jobs and end."""
LOOK_SECONDS = 0.05


def data_of(manager_data: Path) -> Path:
    return manager_data / "agent"


async def close(data: Path) -> None:
    """Stop the agent with the data folder `data` and all its jobs. Raises CommandError if that fails."""
    await _end(data, closing=True)


async def end_if_idle(data: Path) -> frozenset[str]:
    """Stop the agent with the data folder `data` if no job is running. Returns the ids of the running jobs; an empty
    set means that the agent was stopped. Results of ended jobs stay on disk."""
    running = await _running_jobs(data)
    if not running:
        await _end(data, closing=False)
    return running


async def _end(data: Path, *, closing: bool) -> None:
    """Stop the agent; with `closing`, end its jobs first. Waits for one that exists but does not answer yet, because
    nothing would stop it later. CommandError if it does not exit in time or a job could not be ended."""
    try:
        async with asyncio.timeout(END_SECONDS):
            while True:
                if await _try_to_end(data, closing=closing) or not _has_agent_process(data):
                    return
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise CommandError(
            f"the agent of {data} does not exit; see agent.log there and in the folder above, then kill its process"
        ) from None


async def _running_jobs(data: Path) -> frozenset[str]:
    place = socket_of(data)
    if place is None:
        return frozenset()
    channel = unix_channel(place)
    try:
        async with asyncio.timeout(END_SECONDS):  # TimeoutError is an OSError
            answer = await StepRunnerStub(channel).Status(StatusRequest())
    except (GRPCError, OSError, ProtocolError, StreamTerminatedError):
        return frozenset()
    finally:
        channel.close()
    return frozenset(job.id for job in answer.jobs if job.status == StepResult.running)


async def _try_to_end(data: Path, *, closing: bool) -> bool:
    """Stop the agent and return True; False if no agent answers. With `closing`, end its jobs first. Raises
    CommandError if a job could not be ended."""
    place = socket_of(data)
    if place is None:
        return False
    failures, process = [], _listener_of(place)
    async with AgentClient(unix_channel(place)) as client:
        try:
            hello = await client.hello()
        except (AgentUnavailableError, AgentRefusedError):
            return False
        for job in hello.jobs if closing else ():
            try:
                await client.close_job(job)
            except (AgentUnavailableError, AgentRefusedError) as error:
                failures.append(f"{job} ({error})")
    if process:
        with suppress(ProcessLookupError):
            await _terminate(process)
    if failures:
        raise CommandError(f"the agent could not end its jobs {', '.join(failures)}; look for their processes")
    return True


def _listener_of(path: Path) -> int:
    """Return the id of the process that listens on the socket, in our PID namespace; 0 if there is none."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(os.fspath(path))
        except OSError:
            return 0
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])


def _has_agent_process(data: Path) -> bool:
    """True if a process has the command line of an agent with this data folder, except processes forked by an agent."""
    from remuda.steps.process.fork_server import NAME

    agent_words = {os.fsencode(data), b"remuda.steps"}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = set((process / "cmdline").read_bytes().split(b"\0"))
            # A process that an agent has forked has the same command line, but another name.
            if agent_words <= words and (process / "comm").read_text().strip() != NAME:
                return True
    return False


async def _terminate(pid: int) -> None:
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
