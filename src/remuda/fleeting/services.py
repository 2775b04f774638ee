"""gRPC services of a plugin's program: the instance group, and the services of go-plugin. Calls go to an `InProcess`,
so a plugin behaves the same in its own process and in the host's."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError
from grpclib.const import Status
from grpclib.health.v1.health_grpc import HealthBase
from grpclib.health.v1.health_pb2 import HealthCheckResponse
from grpclib.server import Stream

from remuda.fleeting.codec import connect_info_to_wire, info_to_wire, settings_from_wire, state_to_wire
from remuda.fleeting.errors import PermanentError, TemporaryError, UnsupportedError
from remuda.fleeting.in_process import InProcess
from remuda.fleeting.port import HasHeartbeat, Wanted, Wishes
from remuda.fleeting.sdk import Plugin
from remuda.plugins.serving import receive, unary
from remuda.wire.proto import fleeting_abilities_pb2 as own
from remuda.wire.proto import fleeting_pb2 as pb
from remuda.wire.proto import fleeting_process_pb2 as process
from remuda.wire.proto import fleeting_provider_pb2 as provider
from remuda.wire.proto.fleeting_abilities_grpc import AbilitiesBase
from remuda.wire.proto.fleeting_grpc import InstanceGroupBase
from remuda.wire.proto.fleeting_process_grpc import GRPCBrokerBase, GRPCControllerBase, GRPCStdioBase
from remuda.wire.proto.fleeting_provider_grpc import ProviderBase


@contextmanager
def _as_status() -> Iterator[None]:
    try:
        yield
    except UnsupportedError as error:
        raise GRPCError(Status.UNIMPLEMENTED, str(error)) from error
    except PermanentError as error:
        raise GRPCError(Status.FAILED_PRECONDITION, str(error)) from error
    except TemporaryError as error:
        raise GRPCError(Status.UNKNOWN, str(error)) from error
    except (TypeError, ValueError, OverflowError) as error:  # a value that does not fit into the message
        raise GRPCError(Status.UNKNOWN, f"the plugin's answer cannot be sent: {error}") from error


_unary = unary(_as_status)


class GroupService(InstanceGroupBase):
    """Serves the InstanceGroup service of GitLab's fleeting protocol."""

    def __init__(self, plugin: Plugin[Any]) -> None:
        self._plugin = plugin
        self.group = InProcess(plugin)
        self._is_ours = False
        """True if the host is Remuda: only Remuda names an owner."""

    @_unary
    async def Init(self, request: pb.InitRequest) -> pb.InitResponse:  # noqa: N802
        try:
            config = json.loads(request.config or b"null")
        except ValueError as error:
            raise GRPCError(Status.INVALID_ARGUMENT, f"plugin_config is no JSON: {error}") from error
        if not request.HasField("settings") or not request.settings.HasField("connector_config"):
            # Otherwise the first login would fail, without a clear cause.
            what = "Init came without settings.connector_config; a host has to send it, even if nothing is set in it"
            raise GRPCError(Status.INVALID_ARGUMENT, what)
        settings = settings_from_wire(request.settings)
        self._is_ours = bool(settings.owner)
        return info_to_wire(await self.group.init(config, settings))

    async def Update(self, stream: "Stream[pb.Empty, pb.UpdateResponse]") -> None:  # noqa: N802
        await receive(stream)
        with _as_status():
            states = await self.group.update()
            messages = [
                pb.UpdateResponse(instance=name, state=state_to_wire(state, is_ours=self._is_ours))  # type: ignore[arg-type]
                for name, state in states.items()
            ]
        for message in messages:
            await stream.send_message(message)

    @_unary
    async def Increase(self, request: pb.IncreaseRequest) -> pb.IncreaseResponse:  # noqa: N802
        return pb.IncreaseResponse(succeeded=max(await self.group.increase(request.n), 0))

    @_unary
    async def Decrease(self, request: pb.DecreaseRequest) -> pb.DecreaseResponse:  # noqa: N802
        return pb.DecreaseResponse(succeeded=await self.group.decrease(list(request.instances)))

    @_unary
    async def ConnectInfo(self, request: pb.ConnectInfoRequest) -> pb.ConnectInfoResponse:  # noqa: N802
        return connect_info_to_wire(await self.group.connect_info(request.instance))

    @_unary
    async def Shutdown(self, _: pb.Empty) -> pb.Empty:  # noqa: N802
        await self.group.shutdown()
        return pb.Empty()

    @_unary
    async def Heartbeat(self, request: pb.HeartbeatRequest) -> pb.Empty:  # noqa: N802
        if not isinstance(self._plugin, HasHeartbeat):
            raise GRPCError(Status.UNIMPLEMENTED, "the plugin does not have Heartbeat")
        await self.group.heartbeat(request.instance)
        return pb.Empty()

    @_unary
    async def Suspend(self, request: pb.SuspendRequest) -> pb.SuspendResponse:  # noqa: N802
        return pb.SuspendResponse(succeeded=await self.group.suspend(list(request.instances)))

    @_unary
    async def Resume(self, request: pb.ResumeRequest) -> pb.ResumeResponse:  # noqa: N802
        return pb.ResumeResponse(succeeded=await self.group.resume(list(request.instances)))


class AbilitiesService(AbilitiesBase):
    """gRPC service: optional calls Stats (quota, price) and Recover (tagged instances), which only Remuda makes."""

    def __init__(self, group: InProcess) -> None:
        self._group = group

    @_unary
    async def Stats(self, _: Empty) -> own.StatsResponse:  # noqa: N802
        stats = await self._group.stats()
        return own.StatsResponse(quota=stats.quota, hourly_price=stats.hourly_price)

    async def Recover(self, stream: "Stream[Empty, own.TaggedInstance]") -> None:  # noqa: N802
        await receive(stream)
        with _as_status():
            messages = [
                own.TaggedInstance(instance=tag.instance, owner=tag.owner, created_at=int(tag.created_at or 0))
                for tag in await self._group.recover()
            ]
        for message in messages:
            await stream.send_message(message)


class ProviderService(ProviderBase):
    """gRPC service of a plugin that decides itself when to create and delete instances: the calls Room, Acquire and
    Release of a Remuda manager."""

    def __init__(self, group: InProcess) -> None:
        self._group = group

    @_unary
    async def Room(self, request: provider.RoomRequest) -> provider.RoomResponse:  # noqa: N802
        wanted = [
            Wanted(key=key.key, running=key.running, waiting=key.waiting, ready=key.ready, soon=key.soon)
            for key in request.wanted
        ]
        wishes = Wishes(
            wanted=wanted,
            open_requests=request.open_requests,
            held={held.holder: held.instance for held in request.held},
            is_complete=request.is_complete,
        )
        room = await self._group.room(wishes)
        capacity = None if room.capacity is None else max(room.capacity, 0)
        return provider.RoomResponse(capacity=capacity, explanation=room.explanation)

    @_unary
    async def Acquire(self, request: provider.AcquireRequest) -> provider.AcquireResponse:  # noqa: N802
        instance = await self._group.acquire(request.holder, key=request.key, caches=list(request.caches))
        return provider.AcquireResponse(instance=instance)

    @_unary
    async def Release(self, request: provider.ReleaseRequest) -> Empty:  # noqa: N802
        await self._group.release(request.holder, is_used=request.is_used, warmed=list(request.warmed))
        return Empty()


class StdioService(GRPCStdioBase):
    """go-plugin's stream for output. It has no messages, because hosts log the plugin's stderr."""

    async def StreamStdio(self, stream: "Stream[Empty, process.StdioData]") -> None:  # noqa: N802
        await receive(stream)
        await asyncio.Event().wait()


class BrokerService(GRPCBrokerBase):
    """Serves go-plugin's broker stream: messages are ignored; it stays open until the host closes it."""

    async def StartStream(self, stream: "Stream[process.ConnInfo, process.ConnInfo]") -> None:  # noqa: N802
        while await stream.recv_message() is not None:
            pass


class ControllerService(GRPCControllerBase):
    """Serves go-plugin's call Shutdown, which ends the process after the answer."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end

    async def Shutdown(self, stream: "Stream[process.Empty, process.Empty]") -> None:  # noqa: N802
        await receive(stream)
        await stream.send_message(process.Empty())
        await stream.send_trailing_metadata()
        self._end()


class HealthService(HealthBase):
    """Serves gRPC health checks: the service `plugin` is always SERVING."""

    async def Check(self, stream: Any) -> None:  # noqa: N802
        request = await receive(stream)
        if request.service not in ("", "plugin"):
            raise GRPCError(Status.NOT_FOUND, "there is no such service")
        await stream.send_message(HealthCheckResponse(status=HealthCheckResponse.SERVING))

    async def Watch(self, stream: Any) -> None:  # noqa: N802
        await receive(stream)
        await stream.send_message(HealthCheckResponse(status=HealthCheckResponse.SERVING))
        await asyncio.Event().wait()


def services(plugin: Plugin[Any], end: Callable[[], None]) -> list[Any]:
    """All gRPC services of a plugin's server. `end` is called when go-plugin's Shutdown has been answered."""
    group = GroupService(plugin)
    return [
        group,
        AbilitiesService(group.group),
        ProviderService(group.group),
        StdioService(),
        BrokerService(),
        ControllerService(end),
        HealthService(),
    ]
