"""gRPC client of an instance group plugin. Every call except Acquire has a deadline; a failed call raises
TemporaryError or PermanentError and is not retried. Of accepted instances only the requested number counts."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import ProtocolError, StreamTerminatedError

from remuda.fleeting.codec import connect_info_from_wire, info_from_wire, settings_to_wire, state_from_wire
from remuda.fleeting.errors import PermanentError, TemporaryError, UnhealthyError, UnsupportedError
from remuda.fleeting.port import (
    MOST_INSTANCES,
    Capability,
    ConnectInfo,
    GroupStats,
    InstanceState,
    ProviderInfo,
    RoomAtProvider,
    Settings,
    TaggedInstance,
    Wishes,
)
from remuda.lib.connection_errors import explain_local
from remuda.lib.dataclass import dataclass
from remuda.telemetry.logs import Logger
from remuda.wire.proto import fleeting_pb2 as pb
from remuda.wire.proto import fleeting_provider_pb2 as provider
from remuda.wire.proto.fleeting_abilities_grpc import AbilitiesStub
from remuda.wire.proto.fleeting_abilities_pb2 import StatsResponse
from remuda.wire.proto.fleeting_grpc import InstanceGroupStub
from remuda.wire.proto.fleeting_provider_grpc import ProviderStub

_PERMANENT = (
    Status.INVALID_ARGUMENT,
    Status.FAILED_PRECONDITION,
    Status.NOT_FOUND,
    Status.PERMISSION_DENIED,
    Status.UNAUTHENTICATED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds to wait for answers. A plugin that misses a deadline of update, increase or decrease is restarted."""

    init: float = 60.0
    update: float = 60.0
    increase: float = 300.0
    decrease: float = 300.0
    connect_info: float = 120.0
    heartbeat: float = 60.0
    shutdown: float = 30.0
    other: float = 60.0


class HungError(TemporaryError):
    """The plugin did not answer a call within its deadline."""


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Convert errors in the `with` block: gRPC statuses in `_PERMANENT` to PermanentError, UNIMPLEMENTED to
    UnsupportedError, a timeout to HungError, others of gRPC and sockets to TemporaryError. `what`: the call's name."""
    try:
        yield
    except GRPCError as error:
        if error.status is Status.DEADLINE_EXCEEDED and not error.message:
            # The gRPC library of the plugin noticed the timeout first.
            raise HungError(f"the plugin has not answered {what} in time") from error
        text = error.message or error.status.name
        if error.status is Status.UNIMPLEMENTED:
            raise UnsupportedError(f"the plugin does not have {what}") from error
        if error.status in _PERMANENT:
            raise PermanentError(text) from error
        raise TemporaryError(text) from error
    except TimeoutError as error:
        raise HungError(f"the plugin has not answered {what} in time") from error
    except (ProtocolError, StreamTerminatedError, OSError) as error:
        raise TemporaryError(f"the plugin cannot be reached: {explain_local(error)}") from error


class WireGroup:
    """Calls an instance group's plugin over a gRPC channel. Implements all interfaces of `port`, also optional ones."""

    def __init__(self, channel: Channel, log: Logger, deadlines: Deadlines) -> None:
        self._stub = InstanceGroupStub(channel)
        self._abilities = AbilitiesStub(channel)
        self._provider = ProviderStub(channel)
        self._log = log
        self._deadlines = deadlines
        self._capabilities: frozenset[str] = frozenset()
        self._odd: set[str] = set()
        """Instances whose unknown state was logged."""

    async def init(self, config: Mapping[str, Any], settings: Settings) -> ProviderInfo:
        try:
            # `default`: dates of the configuration file are sent as text.
            text = json.dumps(dict(config), sort_keys=True, allow_nan=False, default=str)
        except ValueError as error:
            raise PermanentError(f"plugin_config cannot be sent to the plugin: {error}") from error
        request = pb.InitRequest(config=text.encode(), settings=settings_to_wire(settings))
        with translate_errors("Init"):
            info = info_from_wire(await self._stub.Init(request, timeout=self._deadlines.init))
        self._capabilities = info.capabilities
        return info

    async def update(self) -> Mapping[str, InstanceState]:
        states: dict[str, InstanceState] = {}
        with translate_errors("Update"):
            async with self._stub.Update.open(timeout=self._deadlines.update) as stream:
                await stream.send_message(pb.Empty(), end=True)
                async for answer in stream:
                    state = states[answer.instance] = state_from_wire(answer.state)
                    if state is InstanceState.UNKNOWN and answer.instance not in self._odd:
                        self._odd.add(answer.instance)
                        self._log.warning(
                            "plugin reports an unknown state of an instance; it is kept and gets no jobs",
                            instance=answer.instance,
                            state=answer.state,
                        )
                    if len(states) > MOST_INSTANCES:
                        raise TemporaryError(f"the plugin shows more than {MOST_INSTANCES} instances")
        self._odd &= states.keys()
        return states

    async def increase(self, count: int) -> int:
        with translate_errors("Increase"):
            answer = await self._stub.Increase(pb.IncreaseRequest(n=count), timeout=self._deadlines.increase)
        if answer.succeeded > count:
            self._log.warning(
                "plugin accepted more instances than requested; counting only the requested ones",
                requested=count,
                accepted=answer.succeeded,
            )
        return min(answer.succeeded, count)

    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        request = pb.DecreaseRequest(instances=instances)
        with translate_errors("Decrease"):
            answer = await self._stub.Decrease(request, timeout=self._deadlines.decrease)
        return self._of_these(instances, answer.succeeded)

    async def connect_info(self, instance: str) -> ConnectInfo:
        request = pb.ConnectInfoRequest(instance=instance)
        with translate_errors("ConnectInfo"):
            answer = await self._stub.ConnectInfo(request, timeout=self._deadlines.connect_info)
        return connect_info_from_wire(answer)

    async def shutdown(self) -> None:
        try:
            with translate_errors("Shutdown"):
                await self._stub.Shutdown(pb.Empty(), timeout=self._deadlines.shutdown)
        except UnsupportedError:
            return  # plugins of 2023

    async def heartbeat(self, instance: str) -> None:
        try:
            with translate_errors("Heartbeat"):
                await self._stub.Heartbeat(pb.HeartbeatRequest(instance=instance), timeout=self._deadlines.heartbeat)
        except UnsupportedError:
            return  # plugins before 2025
        except (TemporaryError, PermanentError) as error:
            if isinstance(error.__cause__, GRPCError):
                raise UnhealthyError(str(error)) from error
            raise

    async def suspend(self, instances: Sequence[str]) -> Sequence[str]:
        return await self._partly("Suspend", self._stub.Suspend, pb.SuspendRequest, instances)

    async def resume(self, instances: Sequence[str]) -> Sequence[str]:
        return await self._partly("Resume", self._stub.Resume, pb.ResumeRequest, instances)

    async def stats(self) -> GroupStats:
        self._need(Capability.STATS)
        with translate_errors(Capability.STATS):
            answer: StatsResponse = await self._abilities.Stats(Empty(), timeout=self._deadlines.other)
        return GroupStats(
            quota=answer.quota if answer.HasField("quota") else None,
            hourly_price=answer.hourly_price if answer.HasField("hourly_price") else None,
        )

    async def recover(self) -> Sequence[TaggedInstance]:
        tagged: list[TaggedInstance] = []
        self._need(Capability.RECOVER)
        with translate_errors(Capability.RECOVER):
            async with self._abilities.Recover.open(timeout=self._deadlines.other) as stream:
                await stream.send_message(Empty(), end=True)
                async for answer in stream:
                    created_at = float(answer.created_at) if answer.created_at > 0 else None
                    tagged.append(TaggedInstance(instance=answer.instance, owner=answer.owner, created_at=created_at))
                    if len(tagged) > MOST_INSTANCES:
                        raise TemporaryError(f"the plugin finds more than {MOST_INSTANCES} instances")
        return tagged

    async def room(self, wishes: Wishes) -> RoomAtProvider:
        self._need(Capability.PROVIDER)
        request = provider.RoomRequest(
            wanted=[
                provider.Wanted(key=key.key, running=key.running, waiting=key.waiting, ready=key.ready, soon=key.soon)
                for key in wishes.wanted
            ],
            open_requests=wishes.open_requests,
            held=[provider.Held(holder=holder, instance=instance) for holder, instance in wishes.held.items()],
            is_complete=wishes.is_complete,
        )
        with translate_errors("Room"):
            answer = await self._provider.Room(request, timeout=self._deadlines.other)
        capacity = answer.capacity if answer.HasField("capacity") else None
        return RoomAtProvider(capacity=capacity, explanation=answer.explanation)

    async def acquire(self, holder: str, *, key: str = "", caches: Sequence[str] = ()) -> str:
        """Wait until the plugin assigns an instance to a job; return its name. No deadline: it may have to be created.
        `holder`: id of this run of the job; `key`: equal for jobs with equal needs; `caches`: keys of its caches."""
        self._need(Capability.PROVIDER)
        with translate_errors("Acquire"):
            request = provider.AcquireRequest(holder=holder, key=key, caches=caches)
            answer = await self._provider.Acquire(request)
        if not answer.instance:
            raise PermanentError("the plugin answered Acquire without an instance")
        return answer.instance

    async def release(self, holder: str, *, is_used: bool = True, warmed: Sequence[str] = ()) -> None:
        self._need(Capability.PROVIDER)
        with translate_errors("Release"):
            request = provider.ReleaseRequest(holder=holder, is_used=is_used, warmed=warmed)
            await self._provider.Release(request, timeout=self._deadlines.other)

    async def _partly(
        self,
        what: str,
        call: "UnaryUnaryMethod[Any, Any]",
        request: Callable[..., Any],
        instances: Sequence[str],
    ) -> Sequence[str]:
        self._need(Capability.SUSPEND_RESUME)
        try:
            with translate_errors(what):
                answer = await call(request(instances=instances), timeout=self._deadlines.other)
                succeeded = answer.succeeded
        except TemporaryError as error:
            details = error.__cause__.details if isinstance(error.__cause__, GRPCError) else None
            if not details:
                raise
            succeeded = details[0].succeeded
            self._log.warning(
                "plugin call failed for some instances; only the others count as done", call=what, cause=str(error)
            )
        return self._of_these(instances, succeeded)

    def _need(self, ability: Capability) -> None:
        if ability not in self._capabilities:
            raise UnsupportedError(f"the plugin does not have {ability}")

    def _of_these(self, requested: Sequence[str], answered: Sequence[str]) -> Sequence[str]:
        ghosts = sorted(set(answered) - set(requested))
        if ghosts:
            self._log.warning(
                "plugin returned instances that were not in the request; ignoring them", instances=ghosts[:10]
            )
        accepted = set(answered)
        return [name for name in requested if name in accepted]
