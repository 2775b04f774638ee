"""Fleeting's own plugin in Go runs under our host, and our plugin under the host library in Go."""

import asyncio
import json
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpclib.client import Channel
from grpclib.reflection.v1alpha.reflection_grpc import ServerReflectionStub
from grpclib.reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from tests.support.built_programs import require_built
from tests.support.runners.line_program import LineProgram, line_program

from remuda.fleeting import Connector, InstanceState, PermanentError, Settings, UnhealthyError, UnsupportedError
from remuda.fleeting.host import HostedGroup
from remuda.fleeting.process import FleetingProcess
from remuda.lib.backoff import Backoff
from remuda.testing.instance_groups import PlainGroup, a_plugin
from remuda.testing.lab import processes
from remuda.testing.waiting import until
from remuda.wire.proto import fleeting_pb2, fleeting_process_pb2

BUILT = Path(__file__).parents[2] / "build/interop"
SETTINGS = Settings(connector=Connector(username="ci", password="secret", keepalive_seconds=12, timeout_seconds=90))


def built(name: str) -> str:
    """Path of a program that `make interop` has built."""
    require_built(BUILT / name)
    return str(BUILT / name)


@pytest.mark.parametrize("auto_mtls", [False, True], ids=["plain", "TLS"])
async def test_the_dummy_plugin_under_our_host(auto_mtls: bool) -> None:
    group = HostedGroup(built("fleeting-plugin-dummy"), auto_mtls=auto_mtls)
    try:
        info = await group.init({"MaxSize": 5, "ListenSSH": True, "SimulateDeleting": True}, SETTINGS)
        assert (info.id, info.max_size, info.capabilities) == ("dummy/dummy", 5, frozenset())
        assert await group.update() == {}
        assert await group.increase(2) == 2
        instances = await group.update()
        assert list(instances.values()) == [InstanceState.CREATING] * 2
        first, second = instances
        connect = await group.connect_info(first)
        host, _, port = connect.address().rpartition(":")
        assert host == "127.0.0.1"
        assert int(port)
        await group.heartbeat(first)
        with pytest.raises(UnhealthyError):
            await group.heartbeat("nobody")
        assert await group.decrease([first]) == [first]
        updates = [await group.update(), await group.update()]
        assert updates[0].get(first) in (InstanceState.DELETING, InstanceState.DELETED)
        assert updates[1].get(first, InstanceState.DELETED) is InstanceState.DELETED
        assert updates[1][second] is InstanceState.CREATING
        for unsupported_call in (group.suspend([second]), group.stats(), group.recover()):
            with pytest.raises(UnsupportedError):
                await unsupported_call
        await group.shutdown()
        pid = group.pid
    finally:
        await group.close()
    assert pid not in dict(processes())


async def test_the_dummy_plugin_is_restarted_when_it_is_killed() -> None:
    group = HostedGroup(built("fleeting-plugin-dummy"), backoff=Backoff(first_seconds=0.05))
    try:
        await group.init({}, SETTINGS)
        first_pid = group.pid
        assert first_pid is not None
        os.kill(first_pid, 9)
        await until(lambda: group.starts == 2 and group.pid is not None)
        assert group.pid != first_pid
        assert await group.update() == {}
    finally:
        await group.close()


async def test_a_wrong_configuration_of_the_dummy_plugin_raises_its_error() -> None:
    group = HostedGroup(built("fleeting-plugin-dummy"))
    with pytest.raises(Exception, match="MaxSize") as caught:
        await group.init({"MaxSize": "many"}, SETTINGS)
    assert not isinstance(caught.value, PermanentError), "Go's plugins do not report the kind of an error"


def go_host(plugin: Path, config: dict[str, Any]) -> AbstractAsyncContextManager[LineProgram]:
    """Start a program with upstream's host library that makes one call for each line of its stdin."""
    return line_program(built("fleeting-host"), str(plugin), json.dumps(config), log=plugin.parent / "host.log")


async def test_our_plugin_under_the_real_host_library(tmp_path: Path) -> None:
    plugin = a_plugin(tmp_path)
    connector = {"username": "ci", "key": "a2V5", "protocol_port": 2222, "keepalive": 12 * 10**9, "timeout": 90 * 10**9}
    async with go_host(plugin, {"max_size": 5, "address": "10.1.2.3"}) as host:
        info = await host.call("init", settings=connector)
        assert info == {"ID": "test/table", "MaxSize": 5, "Version": "1.2.3", "BuildInfo": "built by hand"}
        assert await host.call("increase", n=2) == 2
        assert set((await host.call("update")).values()) == {"creating"}
        first, second = sorted(await host.call("update"))
        connect = await host.call("connect_info", instance=first)
        assert {name: connect[name] for name in connector} == connector
        assert connect["internal_addr"] == "10.1.2.3"
        assert "expires" not in connect
        await host.call("heartbeat", instance=first)
        assert "nobody is gone" in (await host.call_raw("heartbeat", instance="nobody"))["error"]
        assert await host.call("decrease", instances=[first]) == [first]
        assert await host.call("update") == {first: "deleting", second: "running"}
        assert await host.call("update") == {second: "running"}
        await host.call("shutdown")
    assert not [words for _, words in processes() if str(plugin) in words]


async def test_our_plugin_without_optional_calls_under_the_real_host_library(tmp_path: Path) -> None:
    plugin = a_plugin(tmp_path, PlainGroup)
    async with go_host(plugin, {"max_sise": 5}) as host:
        assert "did you mean max_size?" in (await host.call_raw("init"))["error"]
    async with go_host(plugin, {}) as host:
        await host.call("init")
        await host.call("heartbeat", instance="anybody")
        await host.call("shutdown")


async def test_our_plugin_exits_when_its_go_host_is_killed(tmp_path: Path) -> None:
    plugin = a_plugin(tmp_path)
    async with go_host(plugin, {}) as host:
        await host.call("init")
        await host.kill()
    await until(lambda: not [words for _, words in processes() if str(plugin) in words])


async def test_our_plugin_under_a_go_host_that_asks_for_tls(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(built("fleeting-host"), str(a_plugin(tmp_path))),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, logged = await process.communicate()
    assert int(printed) > len("test/table"), logged.decode()


async def request_descriptor(channel: Channel, symbol: str) -> FileDescriptorProto:
    async with ServerReflectionStub(channel).ServerReflectionInfo.open() as stream:
        await stream.send_message(ServerReflectionRequest(file_containing_symbol=symbol), end=True)
        answer = await stream.recv_message()
    assert answer is not None
    return FileDescriptorProto.FromString(answer.file_descriptor_response.file_descriptor_proto[0])


def protocol_elements(file: FileDescriptorProto) -> set[tuple[object, ...]]:
    """Calls, enum values and fields of a protocol file, with their names, numbers and types."""
    calls = {
        (file.package, service.name, call.name, call.input_type, call.output_type, call.server_streaming)
        for service in file.service
        for call in service.method
    }
    values = {(enum.name, value.name, value.number) for enum in file.enum_type for value in enum.value}
    messages = [*file.message_type, *(inner for message in file.message_type for inner in message.nested_type)]
    fields = {
        (message.name, field.name, field.number, field.type, field.label)
        for message in messages
        for field in message.field
    }
    return calls | values | fields


async def test_our_protocol_has_everything_of_upstreams() -> None:
    process = FleetingProcess(built("fleeting-plugin-dummy"), say=lambda _: None)
    channel = await process.start()
    try:
        for symbol, ours in (("proto.InstanceGroup", fleeting_pb2), ("plugin.GRPCBroker", fleeting_process_pb2)):
            theirs = protocol_elements(await request_descriptor(channel, symbol))
            assert theirs
            assert theirs - protocol_elements(FileDescriptorProto.FromString(ours.DESCRIPTOR.serialized_pb)) == set()
    finally:
        channel.close()
        process.kill()
        await process.close()
