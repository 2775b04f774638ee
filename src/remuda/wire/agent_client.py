"""Client of the agent's gRPC service `remuda.agent.v1.Agent`, with plain values instead of protobuf messages.

Every error is `AgentUnavailableError` (try again, or reconnect) or `AgentRefusedError` (the same request will never
work). The client retries nothing, and every call may be repeated. Channels to local agents are made here; those over
SSH or a plugin are subclasses of `LiveChannel` elsewhere, which use `CHANNEL_CONFIG`, too."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from grpclib import GRPCError
from grpclib.client import Channel, Stream
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.events import SendRequest, listen
from grpclib.exceptions import ProtocolError, StreamTerminatedError

from remuda.lib.connection_errors import explain_local
from remuda.wire.http2 import LiveChannel, allow_large_frames, disable_frame_texts
from remuda.wire.proto import agent_pb2 as pb
from remuda.wire.proto.agent_grpc import AgentStub

REQUEST_VERSION = 1
CHANNEL_CONFIG = Configuration(http2_stream_window_size=1024 * 1024, http2_connection_window_size=8 * 1024 * 1024)
"""The window of the connection is larger than that of a stream, so that a watch stream that is not read does not block
other calls."""
_PERMANENT = frozenset(
    {Status.INVALID_ARGUMENT, Status.UNIMPLEMENTED, Status.FAILED_PRECONDITION}
    | {Status.PERMISSION_DENIED, Status.UNAUTHENTICATED}
)


class AgentUnavailableError(Exception):
    """The agent cannot be reached or cannot answer now. Its jobs keep running."""


class AgentRefusedError(Exception):
    """The agent refuses the request. The same request will never work."""


class AgentHello(msgspec.Struct, frozen=True, kw_only=True):
    protocol: int
    version: str
    jobs: frozenset[str]
    pid: int


class AgentAbility(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of limit for steps, such as time, and whether the agent can enforce it on its machine."""

    name: str
    enforced: bool
    detail: str
    """How the limit is enforced, or why it cannot be."""


class AgentDescription(msgspec.Struct, frozen=True, kw_only=True):
    protocol: int
    version: str
    program: str
    """zipapp, frozen, installed"""
    transport: str
    """unix, tcp"""
    system: str
    machine: str
    uid: int
    abilities: tuple[AgentAbility, ...]


class MachineUsage(msgspec.Struct, frozen=True, kw_only=True):
    cpus: int
    load_1m: float
    memory_bytes: int
    memory_available_bytes: int
    disk_bytes: int
    disk_available_bytes: int


class JobUsage(msgspec.Struct, frozen=True, kw_only=True):
    processes: int
    cpu_seconds: float
    memory_bytes: int
    log_bytes: int


class AgentUsage(msgspec.Struct, frozen=True, kw_only=True):
    cpu_seconds: float
    memory_bytes: int
    open_files: int
    open_files_limit: int
    machine: MachineUsage
    jobs: Mapping[str, JobUsage]


class JobVariable(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    value: str
    file: bool = False
    masked: bool = False


class JobUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Resource usage of a finished job; None means unknown."""

    cpu_user_seconds: float | None = None
    cpu_system_seconds: float | None = None
    memory_peak_bytes: int | None = None
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    work_dir_bytes: int | None = None
    """Disk space of the working directory at the end of the job."""
    network_received_bytes: int | None = None
    network_sent_bytes: int | None = None
    source: str = ""
    """Where CPU time and memory were read: `cgroup` or `rusage`."""


class GroupLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of memory, CPUs and number of processes for all processes of a job together; 0 means no limit."""

    memory_bytes: int = 0
    cpus: float = 0
    pids: int = 0


class JobStart(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    work_dir: str
    steps: str
    """Two documents, JSON or YAML: the spec, then the definition."""
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    variables: Sequence[JobVariable] = ()
    masks: Sequence[str] = ()
    mask_prefixes: Sequence[str] = ()
    timeout_seconds: int = 0
    log_limit_bytes: int = 0
    banner: Sequence[str] = ()
    policy: str = ""
    """The step policy as a JSON object, see docs/reference/step-policy.md."""
    run_as: str = ""
    """User that runs the steps: a name, UID or UID:GID. The agent must be root."""
    log_waiting_limit_bytes: int = 0
    """Limit for unconfirmed log bytes at the agent; at the limit, steps that print are blocked. 0: the agent's default;
    negative: no limit."""
    sandbox: bool = False
    """True if steps run in a sandbox, where they can change only files of the job."""
    cgroup: str = ""
    """Control group for the job's processes."""
    cgroup_limits: GroupLimits = GroupLimits()
    """Limits for all processes in that group together. The agent refuses a job whose limits it cannot enforce."""
    own_user: bool = False
    """True if no other job on the machine uses the user of `run_as`. Its processes and files are then removed when the
    job ends."""
    writable: Sequence[str] = ()
    """Folders that steps in a sandbox may write to, in addition to work_dir."""
    hidden: Sequence[str] = ()
    """With `sandbox`: folders that steps cannot see. If set, the sandbox changes nothing else."""
    owner: bytes = b""
    """Data of the client that the agent stores; `AgentClient.jobs` returns it."""
    patience_seconds: int = 0
    """The agent cancels and removes the job if no client watches it for this long; 0: never."""
    hold_failed_seconds: int = 0
    """How long the environments of a failed job are kept."""
    hold_note: str = ""
    """Last line of the log of a failed job whose environments are kept."""


class KeptJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of an agent: its id, its client's data (`owner`), whether it has ended, and whether it is watched."""

    id: str
    owner: bytes
    ended: bool
    attended: bool
    """True if a client watches the job now."""


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str
    offset: int
    data: bytes
    is_first: bool = False
    """All earlier bytes were confirmed and deleted at the agent."""


class StepResultEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a job's steps: a JSON object, see docs/reference/step-results.md."""

    job_id: str
    seq: int
    json: bytes


class JobEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The last event of a job: how it ended, and the sizes of its log and results."""

    job_id: str
    status: str
    reason: str
    exit_code: int
    """Exit code of the step that determined the status; -1 if it has none."""
    message: str
    log_bytes: int
    results: int
    log_checksum: str
    used: JobUse = JobUse()
    held_seconds: int = 0
    """How much longer the job's environments are kept; 0: they are removed."""


class UnknownJob(msgspec.Struct, frozen=True, kw_only=True):
    """The agent does not know the job, or has removed it."""

    job_id: str


class _Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """TCP address and token of an agent that does not listen on a unix socket."""

    host: str
    port: int
    token: str


WatchedEvent = LogChunk | StepResultEvent | JobEnded | UnknownJob


class Watch:
    """Events of all subscribed jobs of an agent. Iterate over it in one task; any task may subscribe. The iteration
    ends with AgentUnavailableError or AgentRefusedError."""

    def __init__(self, stream: "Stream[pb.WatchRequest, pb.WatchEvent]") -> None:
        self._stream = stream
        self._sending = asyncio.Lock()

    async def subscribe(self, job_id: str, *, log_offset: int = 0, result_seq: int = 1) -> None:
        """Receive a job's log from byte `log_offset`, its step results from `result_seq`. Replaces an earlier call."""
        subscribe = pb.Subscribe(id=job_id, log_offset=log_offset, result_seq=result_seq, batches=True)
        await self._send(pb.WatchRequest(subscribe=subscribe))

    async def confirm(self, job_id: str, *, log_offset: int, result_seq: int) -> None:
        """Confirm that log and step results before these positions are stored here: the agent may delete them."""
        confirm = pb.Confirm(id=job_id, log_offset=log_offset, result_seq=result_seq)
        await self._send(pb.WatchRequest(confirm=confirm))

    async def unsubscribe(self, job_id: str) -> None:
        await self._send(pb.WatchRequest(unsubscribe=pb.Unsubscribe(id=job_id)))

    async def __aiter__(self) -> AsyncIterator[WatchedEvent]:
        with translate_errors():
            async for event in self._stream:
                if event.WhichOneof("event") == "results":
                    for seq, result in enumerate(event.results.json, event.results.seq):
                        yield StepResultEvent(job_id=event.id, seq=seq, json=result)
                else:
                    yield _read_event(event)
        raise AgentUnavailableError("the agent ended the watch stream")

    async def _send(self, request: pb.WatchRequest) -> None:
        async with self._sending:
            with translate_errors():
                await self._stream.send_message(request)


class AgentClient:
    def __init__(self, channel: Channel) -> None:
        disable_frame_texts()
        self._channel = channel
        self.stub = AgentStub(channel)

    async def hello(self) -> AgentHello:
        with translate_errors():
            answer = await self.stub.Hello(pb.HelloRequest())
        return AgentHello(protocol=answer.protocol, version=answer.version, jobs=frozenset(answer.jobs), pid=answer.pid)

    async def describe(self) -> AgentDescription:
        with translate_errors():
            answer = await self.stub.Describe(pb.DescribeRequest())
        return AgentDescription(
            protocol=answer.protocol,
            version=answer.version,
            program=answer.program,
            transport=answer.transport,
            system=answer.system,
            machine=answer.machine,
            uid=answer.uid,
            abilities=tuple(
                AgentAbility(name=ability.name, enforced=ability.enforced, detail=ability.detail)
                for ability in answer.abilities
            ),
        )

    async def usage(self) -> AgentUsage:
        with translate_errors():
            answer = await self.stub.Usage(pb.UsageRequest())
        return AgentUsage(
            cpu_seconds=answer.cpu_seconds,
            memory_bytes=answer.memory_bytes,
            open_files=answer.open_files,
            open_files_limit=answer.open_files_limit,
            machine=msgspec.convert(answer.machine, MachineUsage, from_attributes=True),
            jobs={job.id: msgspec.convert(job, JobUsage, from_attributes=True) for job in answer.jobs},
        )

    async def start(self, job: JobStart) -> None:
        """Store and start a job. For an id that the agent already has, this succeeds and changes nothing."""
        with translate_errors():
            await self.stub.Start(_start_request(job))

    async def jobs(self, ids: Sequence[str]) -> AsyncIterator[KeptJob]:
        """Yield the agent's jobs with these ids (none: all), with their clients' `owner` data. Skips unknown ids."""
        with translate_errors():
            async with self.stub.Jobs.open() as stream:
                await stream.send_message(pb.JobsRequest(ids=ids), end=True)
                async for job in stream:
                    yield KeptJob(id=job.id, owner=job.owner, ended=job.ended, attended=job.attended)

    async def cancel(self, job_id: str) -> None:
        """Cancel a job: end its running step; then only steps with the condition `always()` run. May be repeated."""
        with translate_errors():
            await self.stub.Cancel(pb.CancelRequest(id=job_id))

    async def close_job(self, job_id: str) -> None:
        """Kill the processes of a job and delete the job with its log and results."""
        with translate_errors():
            await self.stub.Close(pb.CloseRequest(id=job_id))

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Watch]:
        """Open the stream of job events, which is closed at the end of the `async with` block."""
        call = self.stub.Watch.open()
        async with AsyncExitStack() as stack:
            with translate_errors():
                await allow_large_frames(self._channel)
                stream = await call.__aenter__()
                stack.push_async_callback(reset_stream, stream)
                await stream.send_request()
                await stream.recv_initial_metadata()
            yield Watch(stream)

    def close(self) -> None:
        """Close the connection. Jobs keep running."""
        self._channel.close()

    async def __aenter__(self) -> "AgentClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def unix_channel(socket: Path) -> Channel:
    """A gRPC channel to an agent, which connects at the first call."""
    return LiveChannel(path=str(socket), config=CHANNEL_CONFIG)


def tcp_channel(host: str, port: int, token: str) -> Channel:
    """Channel to an agent on a loopback TCP port. It sends the agent's token with every call."""
    channel = LiveChannel(host, port, config=CHANNEL_CONFIG)

    async def add_token(event: SendRequest) -> None:
        event.metadata["remuda-token"] = token

    listen(channel, SendRequest, add_token)
    return channel


def channel_of(data: Path) -> Channel | None:
    """Channel to a folder's agent (unix socket or TCP); None if none is ready. A killed agent leaves its address."""
    try:
        endpoint = msgspec.json.decode((data / "endpoint").read_bytes(), type=_Endpoint)
    except FileNotFoundError:
        socket = socket_of(data)
        return None if socket is None else unix_channel(socket)
    return tcp_channel(endpoint.host, endpoint.port, endpoint.token)


def socket_of(data: Path) -> Path | None:
    """Unix socket of a folder's agent; None if none is ready or it uses TCP. A killed agent leaves its path."""
    try:
        return Path((data / "socket").read_text().rstrip("\n"))
    except FileNotFoundError:
        return None


async def reset_stream(stream: "Stream[Any, Any]") -> None:
    """Reset and close a gRPC stream that is not needed any more. Errors are ignored: the connection may be lost."""
    with suppress(AgentUnavailableError, AgentRefusedError), translate_errors():
        await stream.cancel()
    with suppress(AgentUnavailableError, AgentRefusedError), translate_errors():
        await stream.__aexit__(None, None, None)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate errors of gRPC calls inside the block to AgentUnavailableError or AgentRefusedError."""
    try:
        yield
    except GRPCError as error:
        text = error.message or error.status.name
        if error.status in _PERMANENT:
            raise AgentRefusedError(text) from None
        raise AgentUnavailableError(text) from None
    except StreamTerminatedError as error:
        raise AgentUnavailableError(f"the connection to the agent is lost: {error}") from None
    except (OSError, ProtocolError) as error:
        raise AgentUnavailableError(f"the agent cannot be reached: {explain_local(error)}") from None
    except AttributeError as error:
        # grpclib raises this for a connection that ended before its first use.
        if error.name != "_transport":
            raise
        raise AgentUnavailableError("the connection to the agent is lost: it ended at once") from None


def _start_request(job: JobStart) -> pb.StartRequest:
    return pb.StartRequest(
        version=REQUEST_VERSION,
        id=job.id,
        work_dir=job.work_dir,
        env=dict(job.env),
        variables=[
            pb.Variable(key=variable.key, value=variable.value, file=variable.file, masked=variable.masked)
            for variable in job.variables
        ],
        steps=job.steps,
        masks=job.masks,
        mask_prefixes=job.mask_prefixes,
        timeout_seconds=job.timeout_seconds,
        log_limit_bytes=job.log_limit_bytes,
        banner=job.banner,
        policy=job.policy,
        run_as=job.run_as,
        log_waiting_limit_bytes=job.log_waiting_limit_bytes,
        sandbox=job.sandbox,
        cgroup=job.cgroup,
        cgroup_limits=pb.GroupLimits(**msgspec.structs.asdict(job.cgroup_limits)),
        own_user=job.own_user,
        writable=job.writable,
        hidden=job.hidden,
        owner=job.owner,
        patience_seconds=job.patience_seconds,
        hold_failed_seconds=job.hold_failed_seconds,
        hold_note=job.hold_note,
    )


def _read_event(event: pb.WatchEvent) -> WatchedEvent:
    match event.WhichOneof("event"):
        case "log":
            return LogChunk(job_id=event.id, offset=event.log.offset, data=event.log.data, is_first=event.log.is_first)
        case "result":
            return StepResultEvent(job_id=event.id, seq=event.result.seq, json=event.result.json)
        case "end":
            return JobEnded(
                job_id=event.id,
                status=event.end.status,
                reason=event.end.reason,
                exit_code=event.end.exit_code,
                message=event.end.message,
                log_bytes=event.end.log_bytes,
                results=event.end.results,
                log_checksum=event.end.log_checksum,
                used=_read_use(event.end.used),
                held_seconds=event.end.held_seconds,
            )
        case _:
            return UnknownJob(job_id=event.id)


def _read_use(message: pb.JobUse) -> JobUse:
    return JobUse(**{field.name: value for field, value in message.ListFields()})
