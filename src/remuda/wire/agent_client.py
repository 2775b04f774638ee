"""The manager's side of the agent's own service: plain values in and out, protobuf stays in here.

`AgentClient` works over any grpclib channel: `channel_of` gives the one for a data folder, a connector's byte stream is
another, with `CHANNEL_CONFIG` and a `_create_connection` that wraps the stream. Every error is one of two kinds:
`AgentUnavailableError` (try again, or find the agent again), `AgentRefusedError` (the same request will never work).

Nothing is retried here, and every call may be repeated.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import msgspec
from grpclib import GRPCError
from grpclib.client import Channel, Stream
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.events import SendRequest, listen
from grpclib.exceptions import ProtocolError, StreamTerminatedError

from remuda.wire.http2 import LiveChannel, allow_large_frames, leave_frames_untold
from remuda.wire.proto import agent_pb2 as pb
from remuda.wire.proto.agent_grpc import AgentStub

REQUEST_VERSION = 1
CHANNEL_CONFIG = Configuration(http2_stream_window_size=1024 * 1024, http2_connection_window_size=8 * 1024 * 1024)
"""The connection takes more than a stream, so that a watch nobody reads just now does not hold up other calls."""
_PERMANENT = frozenset(
    {Status.INVALID_ARGUMENT, Status.UNIMPLEMENTED, Status.FAILED_PRECONDITION}
    | {Status.PERMISSION_DENIED, Status.UNAUTHENTICATED}
)


class AgentUnavailableError(Exception):
    """The agent cannot be reached or cannot answer now; its jobs go on without it."""


class AgentRefusedError(Exception):
    """The agent refuses the request as it is."""


class AgentHello(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers on the socket."""

    protocol: int
    version: str
    jobs: frozenset[str]
    pid: int


class AgentAbility(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of limit on steps, and whether the agent's machine lets it be enforced."""

    name: str
    enforced: bool
    detail: str
    """By what it is enforced, or why it cannot be."""


class AgentDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is, and what it can enforce."""

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
    """What an agent's machine has, and how much of it is free."""

    cpus: int
    load_1m: float
    memory_bytes: int
    memory_available_bytes: int
    disk_bytes: int
    disk_available_bytes: int


class JobUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's processes use just now."""

    processes: int
    cpu_seconds: float
    memory_bytes: int
    log_bytes: int


class AgentUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent and the jobs that run use just now."""

    cpu_seconds: float
    memory_bytes: int
    open_files: int
    open_files_limit: int
    machine: MachineUsage
    jobs: Mapping[str, JobUsage]


class JobVariable(msgspec.Struct, frozen=True, kw_only=True):
    """A variable of the job's environment."""

    key: str
    value: str
    file: bool = False
    masked: bool = False


class JobUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job has used; None is unknown."""

    cpu_user_seconds: float | None = None
    cpu_system_seconds: float | None = None
    memory_peak_bytes: int | None = None
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    work_dir_bytes: int | None = None
    """What the working directory had on its disk at the end."""
    network_received_bytes: int | None = None
    network_sent_bytes: int | None = None
    source: str = ""
    """cgroup or rusage: where processor time and memory were read."""


class GroupLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a whole job may use; 0 is no limit."""

    memory_bytes: int = 0
    cpus: float = 0
    pids: int = 0


class JobStart(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the agent needs to run a job."""

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
    """What steps may do: a JSON object, see docs/reference/step-policy.md."""
    run_as: str = ""
    """Whom steps run as, where the agent is root: a user's name, UID or UID:GID."""
    log_waiting_limit_bytes: int = 0
    """How much of the log may wait at the agent before steps that print wait; 0: the agent's own, below 0: no limit."""
    sandbox: bool = False
    """Whether steps can only change their own of the machine's files."""
    cgroup: str = ""
    """Control group for the job's processes."""
    cgroup_limits: GroupLimits = GroupLimits()
    """Of all in that group together; a job that cannot be held to them is refused."""
    own_user: bool = False
    """Whether nobody else there is the user of `run_as`: what that user leaves goes with the job's end."""
    writable: Sequence[str] = ()
    """Folders besides work_dir that steps in a sandbox may write to."""
    hidden: Sequence[str] = ()
    """With `sandbox`: folders that steps do not see, while everything else stays as it is."""
    owner: bytes = b""
    """For the client alone: `jobs` gives it back."""
    patience_seconds: int = 0
    """The agent gives the job up when no client has had to do with it for so long; 0: never."""
    hold_failed_seconds: int = 0
    """How long a failed job keeps its environments."""
    hold_note: str = ""
    """What its log says then."""


class KeptJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that an agent has."""

    id: str
    owner: bytes
    ended: bool
    attended: bool
    """Whether some client has to do with it just now."""


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a job's log, from an offset on."""

    job_id: str
    offset: int
    data: bytes
    is_first: bool = False
    """What came before was confirmed, and the agent does not keep it any more."""


class StepResultEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a job's steps: a JSON object, see docs/reference/step-results.md."""

    job_id: str
    seq: int
    json: bytes


class JobEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The last event of a job."""

    job_id: str
    status: str
    reason: str
    exit_code: int
    """-1 where no process gave one."""
    message: str
    log_bytes: int
    results: int
    log_checksum: str
    used: JobUse = JobUse()
    held_seconds: int = 0
    """How long its environments stay from now on."""


class UnknownJob(msgspec.Struct, frozen=True, kw_only=True):
    """The agent does not keep this job, or not any more."""

    job_id: str


class _Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent listens that has no unix socket."""

    host: str
    port: int
    token: str


WatchedEvent = LogChunk | StepResultEvent | JobEnded | UnknownJob


class Watch:
    """One stream for all jobs of an agent. Iterate over it in one task, subscribe from any."""

    def __init__(self, stream: "Stream[pb.WatchRequest, pb.WatchEvent]") -> None:
        self._stream = stream
        self._sending = asyncio.Lock()

    async def subscribe(self, job_id: str, *, log_offset: int = 0, result_seq: int = 1) -> None:
        """Events of a job from the first byte and result wanted; again: from the new place."""
        subscribe = pb.Subscribe(id=job_id, log_offset=log_offset, result_seq=result_seq, batches=True)
        await self._send(pb.WatchRequest(subscribe=subscribe))

    async def confirm(self, job_id: str, *, log_offset: int, result_seq: int) -> None:
        """Everything before this byte and this result is safe here."""
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
    """Calls to one agent over one connection."""

    def __init__(self, channel: Channel) -> None:
        leave_frames_untold()
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
                AgentAbility(name=one.name, enforced=one.enforced, detail=one.detail) for one in answer.abilities
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
            jobs={one.id: msgspec.convert(one, JobUsage, from_attributes=True) for one in answer.jobs},
        )

    async def start(self, job: JobStart) -> None:
        """The job is stored and runs when this returns; a known id is success and changes nothing."""
        with translate_errors():
            await self.stub.Start(_start_request(job))

    async def jobs(self, ids: Sequence[str]) -> AsyncIterator[KeptJob]:
        """What was said of these jobs when they were started; unknown ones are left out. No ids: all."""
        with translate_errors():
            async with self.stub.Jobs.open() as stream:
                await stream.send_message(pb.JobsRequest(ids=ids), end=True)
                async for kept in stream:
                    yield KeptJob(id=kept.id, owner=kept.owner, ended=kept.ended, attended=kept.attended)

    async def cancel(self, job_id: str) -> None:
        """End the running step; what always runs still does. Repeatable."""
        with translate_errors():
            await self.stub.Cancel(pb.CancelRequest(id=job_id))

    async def close_job(self, job_id: str) -> None:
        """Kill what runs and forget the job, its log and results."""
        with translate_errors():
            await self.stub.Close(pb.CloseRequest(id=job_id))

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Watch]:
        """The stream of events, open as long as this lasts."""
        call = self.stub.Watch.open()
        async with AsyncExitStack() as stack:
            with translate_errors():
                await allow_large_frames(self._channel)
                stream = await call.__aenter__()
                stack.push_async_callback(_leave, stream)
                await stream.send_request()
                await stream.recv_initial_metadata()
            yield Watch(stream)

    def close(self) -> None:
        """Close the connection; jobs go on."""
        self._channel.close()

    async def __aenter__(self) -> "AgentClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def unix_channel(socket: Path) -> Channel:
    """A connection to a socket path, made at the first call."""
    return LiveChannel(path=str(socket), config=CHANNEL_CONFIG)


def tcp_channel(host: str, port: int, token: str) -> Channel:
    """The same to an agent that listens on the loopback address, whose calls carry a token."""
    channel = LiveChannel(host, port, config=CHANNEL_CONFIG)

    async def add_token(event: SendRequest) -> None:
        event.metadata["remuda-token"] = token

    listen(channel, SendRequest, add_token)
    return channel


def channel_of(data: Path) -> Channel | None:
    """A connection to the agent of a data folder, however it listens; None when none has ever been ready there."""
    try:
        endpoint = msgspec.json.decode((data / "endpoint").read_bytes(), type=_Endpoint)
    except FileNotFoundError:
        socket = socket_of(data)
        return None if socket is None else unix_channel(socket)
    return tcp_channel(endpoint.host, endpoint.port, endpoint.token)


def socket_of(data: Path) -> Path | None:
    """Where the agent of a data folder listens; None when none has ever been ready there."""
    try:
        return Path((data / "socket").read_text().rstrip("\n"))
    except FileNotFoundError:
        return None


async def _leave(stream: "Stream[pb.WatchRequest, pb.WatchEvent]") -> None:
    """Tell the agent that nobody reads any more; where the connection is gone, there is nobody to tell."""
    with suppress(AgentUnavailableError, AgentRefusedError), translate_errors():
        await stream.cancel()
    with suppress(AgentUnavailableError, AgentRefusedError), translate_errors():
        await stream.__aexit__(None, None, None)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Every error of a call as one of two kinds."""
    try:
        yield
    except GRPCError as error:
        text = error.message or error.status.name
        if error.status in _PERMANENT:
            raise AgentRefusedError(text) from None
        raise AgentUnavailableError(text) from None
    except StreamTerminatedError as error:
        # grpclib woke this task by cancelling it; taken back, or a TaskGroup around it would believe that.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            task.uncancel()
        raise AgentUnavailableError(f"the connection to the agent is lost: {error}") from None
    except (OSError, ProtocolError) as error:
        raise AgentUnavailableError(f"the agent cannot be reached: {error}") from None
    except AttributeError as error:
        # What grpclib says of a connection that ended between being made and being used.
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
                used=_use(event.end.used),
                held_seconds=event.end.held_seconds,
            )
        case _:
            return UnknownJob(job_id=event.id)


def _use(told: pb.JobUse) -> JobUse:
    return JobUse(**{field.name: value for field, value in told.ListFields()})
