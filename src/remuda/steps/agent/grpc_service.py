"""The agent's two gRPC services, GitLab's step runner and Remuda's own. Both serve the same jobs.

Handlers translate between gRPC messages and `jobs`, and turn errors into status codes."""

import asyncio
import os
import platform
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from google.protobuf.timestamp_pb2 import Timestamp
from grpclib import GRPCError
from grpclib.const import Status
from grpclib.server import Stream

from remuda import __version__
from remuda.lib.masking import TOKEN_PREFIXES
from remuda.lib.waiting import unwrap_group_error
from remuda.steps.agent.jobs import VERSION, Jobs
from remuda.steps.agent.watch import CHUNK_BYTES, Watcher
from remuda.steps.engine.job_execution import Job
from remuda.steps.errors import BadRequestError, DefinitionError, UnknownJobError
from remuda.steps.job_tree import sequence
from remuda.steps.pack import program
from remuda.steps.pack.program import PROTOCOL
from remuda.steps.policy.host_abilities import describe, host_of
from remuda.steps.process import usage
from remuda.steps.process.marks import has_mark_of
from remuda.wire.proto import agent_pb2, step_runner_pb2
from remuda.wire.proto.agent_grpc import AgentBase
from remuda.wire.proto.step_runner_grpc import StepRunnerBase

Received = TypeVar("Received")
Sent = TypeVar("Sent")

_STATUSES = {
    sequence.Status.SUCCESS: step_runner_pb2.StepResult.success,
    sequence.Status.FAILURE: step_runner_pb2.StepResult.failure,
    sequence.Status.CANCELLED: step_runner_pb2.StepResult.cancelled,
}


class AgentService(AgentBase):
    def __init__(self, jobs: Jobs, *, transport: str, data: Path) -> None:
        self._jobs = jobs
        self._transport = transport
        self._data = data

    async def Hello(self, stream: Stream[agent_pb2.HelloRequest, agent_pb2.HelloResponse]) -> None:  # noqa: N802
        await _receive(stream)
        ids = [job.id for job in self._jobs.all()]
        await stream.send_message(
            agent_pb2.HelloResponse(protocol=PROTOCOL, version=__version__, jobs=ids, pid=os.getpid())
        )

    async def Start(self, stream: Stream[agent_pb2.StartRequest, agent_pb2.StartResponse]) -> None:  # noqa: N802
        request = await _receive(stream)
        with _status_codes():
            await self._jobs.start(request)
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
            await self._jobs.release(request.id)
            await self._jobs.close(request.id)
        await stream.send_message(agent_pb2.CloseResponse())

    async def Jobs(self, stream: Stream[agent_pb2.JobsRequest, agent_pb2.KeptJob]) -> None:  # noqa: N802
        request = await _receive(stream)
        ids = list(request.ids) or [job.id for job in self._jobs.all()]
        for job_id in ids:
            job = self._jobs.find(job_id)
            if job is not None:
                with _status_codes():
                    owner = job.journal.read_owner()
                answer = agent_pb2.KeptJob(
                    id=job.id, owner=owner, ended=job.end is not None, attended=job.presence.is_present
                )
                await stream.send_message(answer)

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

    async def Describe(  # noqa: N802
        self, stream: Stream[agent_pb2.DescribeRequest, agent_pb2.DescribeResponse]
    ) -> None:
        await _receive(stream)
        answer = agent_pb2.DescribeResponse(
            protocol=PROTOCOL,
            version=__version__,
            program=program.form(),
            transport=self._transport,
            system=platform.system(),
            machine=platform.machine(),
            uid=os.getuid(),
            abilities=(agent_pb2.Ability(**asdict(ability)) for ability in describe(host_of(self._data.absolute()))),
        )
        await stream.send_message(answer)

    async def Usage(self, stream: Stream[agent_pb2.UsageRequest, agent_pb2.UsageResponse]) -> None:  # noqa: N802
        await _receive(stream)
        own, machine = usage.of_process(os.getpid()), usage.machine(self._data)
        jobs = [job for job in self._jobs.all() if job.end is None]
        # In a thread, because this reads /proc of every process of the machine.
        usages = await asyncio.to_thread(usage.of_folders, [job.journal.folder for job in jobs])
        answer = agent_pb2.UsageResponse(
            cpu_seconds=own.cpu_seconds,
            memory_bytes=own.memory_bytes,
            open_files=usage.open_files(),
            open_files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            machine=agent_pb2.Machine(**asdict(machine)),
        )
        for job, job_usage in zip(jobs, usages, strict=True):
            answer.jobs.add(id=job.id, log_bytes=job.log.mark.length, **asdict(job_usage))
        await stream.send_message(answer)

    async def Shell(self, stream: Stream[agent_pb2.ShellInput, agent_pb2.ShellOutput]) -> None:  # noqa: N802
        first = await _receive(stream)
        # Imported here, because most agents open no shell.
        from remuda.steps.agent.shell import attend

        async with unwrap_group_error():
            await attend(self._jobs, first, stream)


class StepRunnerService(StepRunnerBase):
    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def Run(self, stream: Stream[step_runner_pb2.RunRequest, step_runner_pb2.RunResponse]) -> None:  # noqa: N802
        request = await _receive(stream)
        with _status_codes():
            try:
                await self._jobs.start(_as_start(request))
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
                offset = max(offset, job.log.freed)
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
            await self._jobs.release(request.id)
            await self._jobs.close(request.id)
        await stream.send_message(step_runner_pb2.CloseResponse())

    async def Cancel(  # noqa: N802
        self, stream: Stream[step_runner_pb2.CancelRequest, step_runner_pb2.CancelResponse]
    ) -> None:
        request = await _receive(stream)
        with _status_codes():
            self._jobs.get(request.id).cancel()
        await stream.send_message(step_runner_pb2.CancelResponse())


def is_of_a_job(pid: int, jobs: Jobs) -> bool:
    """True if a process belongs to a job that runs or is kept for debugging: it has the job's mark (`marks`), or it or
    an ancestor is in the session of a running step."""
    journals = [job.journal for job in jobs.all() if job.end is None or job.hold.is_active]
    if has_mark_of(pid, {journal.key for journal in journals}):
        return True
    return usage.is_part_of(pid, {session for journal in journals for session in usage.sessions_in(journal.folder)})


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
        cause = error.strerror or error
        raise GRPCError(Status.UNAVAILABLE, f"the agent cannot use its data folder: {cause}") from None


def _as_start(request: step_runner_pb2.RunRequest) -> agent_pb2.StartRequest:
    """Translate GitLab's run request. Sets `mask_prefixes`, because GitLab's runner has the agent mask tokens."""
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
        log_waiting_limit_bytes=-1,  # no limit, because GitLab's runner does not confirm what it has received
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
