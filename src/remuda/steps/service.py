"""The agent as a server: GitLab's step runner service and Remuda's own, on one unix socket, over the same jobs.

Handlers translate between the wire and `jobs`; nothing is decided here but which status code an error has. The server
stops at once when told to: jobs need no agent to go on, and the next one finds them.
"""

import asyncio
import os
import resource
import signal
import socket as sockets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from google.protobuf.timestamp_pb2 import Timestamp
from grpclib import GRPCError
from grpclib.const import Status
from grpclib.server import Server, Stream

from remuda import __version__
from remuda.lib.aio import happens
from remuda.lib.clock import SystemClock
from remuda.lib.masking import TOKEN_PREFIXES
from remuda.steps import plan
from remuda.steps.datafolder import announce, occupied, socket_path
from remuda.steps.environment import clean_base
from remuda.steps.errors import AgentError, BadRequestError, DefinitionError, UnknownJobError
from remuda.steps.execution import Surroundings
from remuda.steps.jobs import VERSION, Jobs
from remuda.steps.kernel import Changes, Pulse
from remuda.steps.runner import Job
from remuda.steps.standby import Standby
from remuda.steps.watching import CHUNK_BYTES, Watcher
from remuda.wire.proto import agent_pb2, step_runner_pb2
from remuda.wire.proto.agent_grpc import AgentBase
from remuda.wire.proto.step_runner_grpc import StepRunnerBase

Received = TypeVar("Received")
Sent = TypeVar("Sent")

PROTOCOL = 1
"""Of Remuda's own service."""

_STATUSES = {
    plan.Status.SUCCESS: step_runner_pb2.StepResult.success,
    plan.Status.FAILURE: step_runner_pb2.StepResult.failure,
    plan.Status.CANCELLED: step_runner_pb2.StepResult.cancelled,
}


class AgentService(AgentBase):
    """remuda.agent.v1.Agent."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def Hello(self, stream: Stream[agent_pb2.HelloRequest, agent_pb2.HelloResponse]) -> None:  # noqa: N802
        await _receive(stream)
        ids = [job.id for job in self._jobs.all()]
        await stream.send_message(
            agent_pb2.HelloResponse(protocol=PROTOCOL, version=__version__, jobs=ids, pid=os.getpid())
        )

    async def Start(self, stream: Stream[agent_pb2.StartRequest, agent_pb2.StartResponse]) -> None:  # noqa: N802
        request = await _receive(stream)
        with _status_codes():
            self._jobs.start(request)
        await stream.send_message(agent_pb2.StartResponse())

    async def Cancel(self, stream: Stream[agent_pb2.CancelRequest, agent_pb2.CancelResponse]) -> None:  # noqa: N802
        request = await _receive(stream)
        job = self._jobs.find(request.id)
        if job is not None:
            with _status_codes():
                job.cancel()
        await stream.send_message(agent_pb2.CancelResponse())

    async def Close(self, stream: Stream[agent_pb2.CloseRequest, agent_pb2.CloseResponse]) -> None:  # noqa: N802
        request = await _receive(stream)
        with _status_codes():
            self._jobs.close(request.id)
        await stream.send_message(agent_pb2.CloseResponse())

    async def Watch(self, stream: Stream[agent_pb2.WatchRequest, agent_pb2.WatchEvent]) -> None:  # noqa: N802
        await stream.send_initial_metadata()
        watcher = Watcher(self._jobs)
        try:
            async with asyncio.TaskGroup() as tasks:
                sender = tasks.create_task(watcher.send_all(stream.send_message), name="watch sender")
                async for request in stream:
                    watcher.handle(request)
                sender.cancel()
        finally:
            watcher.close()


class StepRunnerService(StepRunnerBase):
    """proto.StepRunner, as GitLab's runner calls it."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def Run(self, stream: Stream[step_runner_pb2.RunRequest, step_runner_pb2.RunResponse]) -> None:  # noqa: N802
        request = await _receive(stream)
        with _status_codes():
            try:
                self._jobs.start(_as_start(request))
            except DefinitionError as error:
                raise BadRequestError(f"loading step: reading steps: {error}") from None
        await stream.send_message(step_runner_pb2.RunResponse())

    async def FollowLogs(  # noqa: N802
        self, stream: Stream[step_runner_pb2.FollowLogsRequest, step_runner_pb2.FollowLogsResponse]
    ) -> None:
        request = await _receive(stream)
        with _status_codes():
            job = self._jobs.get(request.id)
            if request.offset < 0:
                raise BadRequestError(f"offset: 0 or more is needed, not {request.offset}")
        offset, changed = request.offset, asyncio.Event()
        job.listeners.add(changed.set)
        try:
            while not job.closed:
                changed.clear()
                if data := job.log.read(offset, CHUNK_BYTES):
                    await stream.send_message(step_runner_pb2.FollowLogsResponse(data=data))
                    offset += len(data)
                elif job.end is not None:
                    break
                else:
                    await changed.wait()
        finally:
            job.listeners.discard(changed.set)

    async def Status(  # noqa: N802
        self, stream: Stream[step_runner_pb2.StatusRequest, step_runner_pb2.StatusResponse]
    ) -> None:
        request = await _receive(stream)
        with _status_codes():
            jobs = [self._jobs.get(request.id)] if request.id else self._jobs.all()
        await stream.send_message(step_runner_pb2.StatusResponse(jobs=map(_status_of, jobs)))

    async def Close(  # noqa: N802
        self, stream: Stream[step_runner_pb2.CloseRequest, step_runner_pb2.CloseResponse]
    ) -> None:
        request = await _receive(stream)
        with _status_codes():
            self._jobs.close(request.id)
        await stream.send_message(step_runner_pb2.CloseResponse())

    async def Cancel(  # noqa: N802
        self, stream: Stream[step_runner_pb2.CancelRequest, step_runner_pb2.CancelResponse]
    ) -> None:
        request = await _receive(stream)
        with _status_codes():
            self._jobs.get(request.id).cancel()
        await stream.send_message(step_runner_pb2.CancelResponse())


async def serve(
    data: Path, standby: Standby, *, socket: Path | None = None, idle_exit_seconds: float | None = None
) -> None:
    """Serve until told to stop by SIGTERM or SIGINT, or until nobody has needed the agent for that long."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with occupied(data), socket_path(data, socket) as path, _listening(path) as listener:
        pulse = Pulse()
        around = Surroundings(
            clock=SystemClock(),
            pulse=pulse,
            changes=Changes(pulse),
            base_env=clean_base(os.environ),
            open_files=_raise_open_files(),
            standby=standby,
        )
        async with asyncio.TaskGroup() as tasks:
            jobs = Jobs(data.absolute() / "jobs", around, tasks)
            jobs.adopt()
            server = Server([AgentService(jobs), StepRunnerService(jobs)])
            await server.start(sock=listener)
            announce(data, path)
            sys.stderr.write(f"step-runner is listening on socket {path}\n")
            sys.stderr.flush()
            await _until_stopped(stop, server, jobs, idle_exit_seconds)
            server.close()
            jobs.abandon()
        around.changes.close()


@contextmanager
def _listening(path: Path) -> Iterator[sockets.socket]:
    """A socket for this user only; one that a killed agent left behind is replaced.

    Made before any job runs, because the mask for new files belongs to the whole process.
    """
    path.unlink(missing_ok=True)
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as listener:
        old_mask = os.umask(0o177)
        try:
            listener.bind(str(path))
        except OSError as error:
            raise AgentError(f"cannot listen on {path}: {error.strerror}") from None
        finally:
            os.umask(old_mask)
        yield listener


async def _until_stopped(stop: asyncio.Event, server: Server, jobs: Jobs, idle_exit_seconds: float | None) -> None:
    clock = SystemClock()
    used_at = clock.monotonic()
    while not stop.is_set():
        if idle_exit_seconds is None:
            await stop.wait()
            return
        # The server has no public count of its connections.
        if not jobs.are_idle or any(not handler.closing for handler in server._handlers):
            used_at = clock.monotonic()
        left = used_at + idle_exit_seconds - clock.monotonic()
        if left <= 0:
            return
        await happens(stop, within_seconds=min(left, 1.0))


def _raise_open_files() -> int:
    """Every running step costs the agent a descriptor; steps themselves keep the limit the agent was given."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


async def _receive(stream: Stream[Received, Sent]) -> Received:
    message = await stream.recv_message()
    if message is None:
        raise GRPCError(Status.INVALID_ARGUMENT, "the call carries no message")
    return message


@contextmanager
def _status_codes() -> Iterator[None]:
    try:
        yield
    except UnknownJobError as error:
        raise GRPCError(Status.NOT_FOUND, str(error)) from None
    except BadRequestError as error:
        raise GRPCError(Status.INVALID_ARGUMENT, str(error)) from None
    except OSError as error:
        raise GRPCError(Status.UNAVAILABLE, f"the agent cannot use its data folder: {error.strerror}") from None


def _as_start(request: step_runner_pb2.RunRequest) -> agent_pb2.StartRequest:
    """A run request is a start request with fewer fields. GitLab's runner leaves masking to whoever stamps."""
    return agent_pb2.StartRequest(
        version=VERSION,
        id=request.id,
        work_dir=request.job.build_dir or request.work_dir,
        env=request.env,
        variables=[
            agent_pb2.Variable(key=v.key, value=v.value, file=v.file, masked=v.masked) for v in request.job.variables
        ],
        steps=request.steps,
        mask_prefixes=TOKEN_PREFIXES,
    )


def _status_of(job: Job) -> step_runner_pb2.Status:
    status = step_runner_pb2.Status(
        id=job.id, status=step_runner_pb2.StepResult.running, start_time=_timestamp(job.journal.accepted_at)
    )
    if job.end is not None:
        status.status = _STATUSES[job.end.outcome.status]
        status.message = job.end.outcome.message
        status.end_time.CopyFrom(_timestamp(job.end.ended_at))
    return status


def _timestamp(seconds: float) -> Timestamp:
    whole = int(seconds)
    return Timestamp(seconds=whole, nanos=int((seconds - whole) * 1e6) * 1000)
