"""A fake execution environment in the test's process: its agent runs nothing and reports what the test tells it to.

It speaks the agent's real protocol over a socket and passes the contract tests. A test simulates the job with
`agent.write`, `agent.add_result` and `agent.end`. `die()` closes all connections; jobs stay until `forget()`."""

import asyncio
import json
import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from grpclib import GRPCError
from grpclib.const import Status
from grpclib.protocol import H2Protocol
from grpclib.server import Server, Stream

from remuda.lib.safe_paths import make_below, remove_below
from remuda.lib.tasks import finish_despite_cancel
from remuda.manager.environments.port import Hook, JobPlace, PreparedPlace, Usage
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError
from remuda.plugins.job_hooks import describe_failure
from remuda.wire.agent_client import AgentClient, AgentUnavailableError, unix_channel
from remuda.wire.proto import agent_pb2 as pb
from remuda.wire.proto.agent_grpc import AgentBase

_CHUNK_BYTES = 64 * 1024


@dataclass
class FakeJob:
    request: pb.StartRequest
    log: bytearray = field(default_factory=bytearray)
    results: list[bytes] = field(default_factory=list)
    end: pb.JobEnd | None = None
    cancels: int = 0

    def without_owner(self) -> "FakeJob":
        request = pb.StartRequest()
        request.CopyFrom(self.request)
        request.ClearField("owner")
        return FakeJob(request)


class FakeAgent(AgentBase):
    def __init__(self) -> None:
        self.jobs: dict[str, FakeJob] = {}
        self.closed: list[str] = []
        self.confirmed: dict[str, tuple[int, int]] = {}
        self.unsubscribed: list[str] = []
        self.attended: set[str] = set()
        """Jobs that another client watches."""
        self.used = pb.JobUse()
        """Resource usage that jobs report at their end."""
        self.sent_bytes = 0
        """Number of log bytes sent to all clients."""
        self.changed = asyncio.Condition()

    async def job(self) -> str:
        """Wait until there is a job, and return the id of the newest one."""
        await self.until(lambda: self.jobs)
        return list(self.jobs)[-1]

    async def until(self, true: Callable[[], object], seconds: float = 30.0) -> None:
        """Wait until the function `true`, called after each change, returns true. TimeoutError after `seconds`."""
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(true)

    async def write(self, job_id: str, data: bytes) -> None:
        self.jobs[job_id].log += data
        await self._notify()

    async def add_result(self, job_id: str, **values: object) -> None:
        results = self.jobs[job_id].results
        results.append(json.dumps({"version": 1, "seq": len(results) + 1} | values).encode())
        await self._notify()

    async def end(self, job_id: str, status: str = "success", reason: str = "", exit_code: int = 0) -> None:
        job = self.jobs[job_id]
        job.end = pb.JobEnd(
            status=status,
            reason=reason,
            exit_code=exit_code,
            log_bytes=len(job.log),
            results=len(job.results),
            log_checksum=f"crc32:{zlib.crc32(job.log):08x}",
            used=self.used,
        )
        await self._notify()

    async def forget(self) -> None:
        """Remove all jobs from the fake agent, as if their files on the machine had been deleted."""
        self.jobs.clear()
        await self._notify()

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def Hello(self, stream: Stream[pb.HelloRequest, pb.HelloResponse]) -> None:  # noqa: N802
        await stream.recv_message()
        await stream.send_message(pb.HelloResponse(protocol=1, version="fake", jobs=self.jobs, pid=os.getpid()))

    async def Describe(self, stream: Stream[pb.DescribeRequest, pb.DescribeResponse]) -> None:  # noqa: N802
        await stream.recv_message()
        await stream.send_message(pb.DescribeResponse(protocol=1, version="fake", program="installed"))

    async def Usage(self, stream: Stream[pb.UsageRequest, pb.UsageResponse]) -> None:  # noqa: N802
        await stream.recv_message()
        running = (pb.JobUsage(id=job_id) for job_id, job in self.jobs.items() if job.end is None)
        await stream.send_message(pb.UsageResponse(jobs=running))

    async def Shell(self, stream: Stream[pb.ShellInput, pb.ShellOutput]) -> None:  # noqa: N802
        raise GRPCError(Status.UNIMPLEMENTED, "the fake agent has no shells")

    async def Jobs(self, stream: Stream[pb.JobsRequest, pb.KeptJob]) -> None:  # noqa: N802
        request = await stream.recv_message()
        assert request is not None
        for job_id in list(request.ids) or list(self.jobs):
            if (job := self.jobs.get(job_id)) is not None:
                is_watched = job_id in self.attended
                message = pb.KeptJob(id=job_id, owner=job.request.owner, ended=job.end is not None, attended=is_watched)
                await stream.send_message(message)

    async def Start(self, stream: Stream[pb.StartRequest, pb.StartResponse]) -> None:  # noqa: N802
        request = await stream.recv_message()
        assert request is not None
        self.jobs.setdefault(request.id, FakeJob(request))
        await self._notify()
        await stream.send_message(pb.StartResponse())

    async def Cancel(self, stream: Stream[pb.CancelRequest, pb.CancelResponse]) -> None:  # noqa: N802
        request = await stream.recv_message()
        assert request is not None
        if request.id in self.jobs:
            self.jobs[request.id].cancels += 1
        await self._notify()
        await stream.send_message(pb.CancelResponse())

    async def Close(self, stream: Stream[pb.CloseRequest, pb.CloseResponse]) -> None:  # noqa: N802
        request = await stream.recv_message()
        assert request is not None
        self.jobs.pop(request.id, None)
        self.closed.append(request.id)
        await self._notify()
        await stream.send_message(pb.CloseResponse())

    async def Watch(self, stream: Stream[pb.WatchRequest, pb.WatchEvent]) -> None:  # noqa: N802
        await stream.send_initial_metadata()
        places: dict[str, tuple[int, int]] = {}
        async with asyncio.TaskGroup() as group:
            sender = group.create_task(self._send_all(stream, places), name="fake watch")
            async for request in stream:
                match request.WhichOneof("request"):
                    case "subscribe":
                        places[request.subscribe.id] = (request.subscribe.log_offset, request.subscribe.result_seq)
                    case "unsubscribe":
                        places.pop(request.unsubscribe.id, None)
                        self.unsubscribed.append(request.unsubscribe.id)
                    case "confirm":
                        confirm = request.confirm
                        self.confirmed[confirm.id] = (confirm.log_offset, confirm.result_seq)
                await self._notify()
            sender.cancel()

    async def _send_all(
        self, stream: Stream[pb.WatchRequest, pb.WatchEvent], places: dict[str, tuple[int, int]]
    ) -> None:
        while True:
            for job_id in list(places):
                event = self._next(job_id, places)
                if event is not None:
                    await stream.send_message(event)
                    self.sent_bytes += len(event.log.data)
            async with self.changed:
                await self.changed.wait_for(lambda: any(self._next(job_id, dict(places)) for job_id in places))

    def _next(self, job_id: str, places: dict[str, tuple[int, int]]) -> pb.WatchEvent | None:
        """Return a job's next event for a subscriber; None if there is none yet. `places`: by job id, the log offset
        and number of the next step result; updated here. A job is removed after its last event."""
        offset, seq = places[job_id]
        job = self.jobs.get(job_id)
        if job is None:
            del places[job_id]
            return pb.WatchEvent(id=job_id, unknown=pb.Unknown())
        if seq <= len(job.results):
            places[job_id] = (offset, seq + 1)
            return pb.WatchEvent(id=job_id, result=pb.ResultEvent(seq=seq, json=job.results[seq - 1]))
        if data := bytes(job.log[offset : offset + _CHUNK_BYTES]):
            places[job_id] = (offset + len(data), seq)
            return pb.WatchEvent(id=job_id, log=pb.LogChunk(offset=offset, data=data))
        if job.end is not None:
            del places[job_id]
            return pb.WatchEvent(id=job_id, end=job.end)
        return None


class _CuttableServer(Server):
    """A gRPC server that can abort its connections as a dying process does; grpclib's `close` leaves them open."""

    def __init__(self, agent: FakeAgent) -> None:
        super().__init__([agent])
        self._protocols: list[H2Protocol] = []

    def _protocol_factory(self) -> H2Protocol:
        protocol = super()._protocol_factory()
        self._protocols.append(protocol)
        return protocol

    def cut(self) -> None:
        for protocol in self._protocols:
            if hasattr(protocol, "processor"):
                protocol.processor.close()


class FakeMachine:
    def __init__(self, socket: Path) -> None:
        self.agent = FakeAgent()
        self.lost = ""
        """Why the machine is permanently lost; empty while it exists."""
        self._socket = socket
        self._server: _CuttableServer | None = None
        self._starting = asyncio.Lock()

    async def connect(self) -> AgentClient:
        async with self._starting:
            if self._server is None:
                self._server = _CuttableServer(self.agent)
                # A start that is cancelled halfway would leave its socket open.
                await finish_despite_cancel(self._server.start(path=str(self._socket)), name="start of a fake agent")
        client = AgentClient(unix_channel(self._socket))
        try:
            await client.hello()
        except AgentUnavailableError as error:
            client.close()
            raise EnvironmentTemporaryError(str(error)) from error
        except BaseException:
            client.close()
            raise
        return client

    async def die(self) -> None:
        """Close all connections as if the agent had died. Its jobs are kept."""
        if self._server is not None:
            self._server.close()
            self._server.cut()
            await self._server.wait_closed()
            self._server = None


class FakeEnvironment:
    """A fake of `remuda.manager.environments.port.Environment` that starts no process. It has one permanent machine,
    like the local environment, or the named `machines`, each of which runs one job at a time."""

    def __init__(self, folder: Path, *, machines: Sequence[str] = ()) -> None:
        self._sockets = tempfile.TemporaryDirectory(prefix="remuda-fake-")
        self.fixed_machine = "" if machines else "fake"
        self.machines = {name: FakeMachine(Path(self._sockets.name) / name) for name in machines or ["fake"]}
        self.is_broken = False
        """While set, `connect` fails."""
        self.calls: Counter[str] = Counter()
        """Number of `acquire`, `connect` and `usage` calls."""
        self.disk_free_bytes = 1 << 40
        self.used: dict[str, str] = {}
        """Machine of each job, by the key of the job."""
        self.hooks: list[tuple[str, str]] = []
        """The commands that ran before and after jobs, with the jobs' keys."""
        self.failing_hook = ""
        """Error text of the hooks; empty: they succeed."""
        self._folder = folder
        self._released = asyncio.Condition()

    @property
    def agent(self) -> FakeAgent:
        return next(iter(self.machines.values())).agent

    def capacity(self) -> int | None:
        return None if self.fixed_machine else sum(not machine.lost for machine in self.machines.values())

    async def acquire(self, place: JobPlace) -> str:
        self.calls["acquire"] += 1
        async with self._released:
            await self._released.wait_for(lambda: place.key in self.used or self._free())
            return self.used.setdefault(place.key, self._free())

    def adopt(self, place: JobPlace, machine: str) -> None:
        self.used[place.key] = machine

    def _free(self) -> str:
        if self.fixed_machine:
            return self.fixed_machine
        taken = set(self.used.values())
        return next((name for name, machine in self.machines.items() if name not in taken and not machine.lost), "")

    async def prepare(self, place: JobPlace, machine: str) -> PreparedPlace:
        folders = place.folders(self._folder)
        try:
            if not place.may_have_begun:
                remove_below(*place.split_build_path(self._folder, f"{place.folder}.tmp"))
            for name, mode in ((place.folder, 0o777), (f"{place.folder}.tmp", 0o700)):
                os.close(make_below(*place.split_build_path(self._folder, name), mode=mode))
        except OSError as error:
            cause = f"the working directory {folders.work_dir} cannot be created: {error.strerror}"
            raise EnvironmentLostError(cause) from error
        return folders

    async def run_hook(self, hook: Hook, place: JobPlace, machine: str) -> str:
        if not (command := place.command_of(hook)):
            return ""
        self.hooks.append((command, place.key))
        if self.failing_hook:
            raise EnvironmentLostError(describe_failure(hook, "ended with 1", self.failing_hook))
        return f"{command} ran"

    async def connect(self, machine: str) -> AgentClient:
        self.calls["connect"] += 1
        if self.is_broken:
            raise EnvironmentTemporaryError("the fake agent is told not to start")
        entry = self.machines.get(machine)
        if entry is None or entry.lost:
            raise EnvironmentLostError(entry.lost if entry is not None else f"there is no machine {machine}")
        return await entry.connect()

    async def recover(self) -> Sequence[str]:
        return [name for name, machine in self.machines.items() if machine.agent.jobs]

    async def usage(self, folders: Sequence[str] = ()) -> Usage:
        self.calls["usage"] += 1
        return Usage(disk_free_bytes=self.disk_free_bytes)

    async def clean_up(self, place: JobPlace, machine: str) -> None:
        with suppress(OSError):
            remove_below(*place.split_build_path(self._folder, place.temporary_folder))
        async with self._released:
            self.used.pop(place.key, None)
            self._released.notify_all()

    async def close(self) -> None:
        pass

    async def die(self) -> None:
        for machine in self.machines.values():
            await machine.die()

    async def remove(self) -> None:
        await self.die()
        self._sockets.cleanup()
