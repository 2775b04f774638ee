"""Plugins and hosts of both sides: fleeting's own plugin in Go under our host, ours under its host library."""

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
        found = await group.update()
        assert list(found.values()) == [InstanceState.CREATING] * 2
        one, other = found
        connect = await group.connect_info(one)
        host, _, port = connect.address().rpartition(":")
        assert host == "127.0.0.1"
        assert int(port)
        await group.heartbeat(one)
        with pytest.raises(UnhealthyError):
            await group.heartbeat("nobody")
        assert await group.decrease([one]) == [one]
        seen = [await group.update(), await group.update()]
        assert seen[0].get(one) in (InstanceState.DELETING, InstanceState.DELETED)
        assert seen[1].get(one, InstanceState.DELETED) is InstanceState.DELETED
        assert seen[1][other] is InstanceState.CREATING
        for missing in (group.suspend([other]), group.stats(), group.recover()):
            with pytest.raises(UnsupportedError):
                await missing
        await group.shutdown()
        pid = group.pid
    finally:
        await group.close()
    assert pid not in dict(processes())


async def test_the_dummy_plugin_is_replaced_when_it_is_killed() -> None:
    group = HostedGroup(built("fleeting-plugin-dummy"), backoff=Backoff(first_seconds=0.05))
    try:
        await group.init({}, SETTINGS)
        first = group.pid
        assert first is not None
        os.kill(first, 9)
        await until(lambda: group.starts == 2 and group.pid is not None)
        assert group.pid != first
        assert await group.update() == {}
    finally:
        await group.close()


async def test_a_wrong_configuration_of_the_dummy_plugin_is_said() -> None:
    group = HostedGroup(built("fleeting-plugin-dummy"))
    with pytest.raises(Exception, match="MaxSize") as caught:
        await group.init({"MaxSize": "many"}, SETTINGS)
    assert not isinstance(caught.value, PermanentError), "Go's plugins do not say which kind an error is"


def go_host(plugin: Path, config: dict[str, Any]) -> AbstractAsyncContextManager[LineProgram]:
    """Upstream's host library, call by call."""
    return line_program(built("fleeting-host"), str(plugin), json.dumps(config), log=plugin.parent / "host.log")


async def test_our_plugin_under_the_real_host_library(tmp_path: Path) -> None:
    plugin = a_plugin(tmp_path)
    connector = {"username": "ci", "key": "a2V5", "protocol_port": 2222, "keepalive": 12 * 10**9, "timeout": 90 * 10**9}
    async with go_host(plugin, {"max_size": 5, "address": "10.1.2.3"}) as host:
        info = await host.call("init", settings=connector)
        assert info == {"ID": "test/table", "MaxSize": 5, "Version": "1.2.3", "BuildInfo": "built by hand"}
        assert await host.call("increase", n=2) == 2
        assert set((await host.call("update")).values()) == {"creating"}
        one, other = sorted(await host.call("update"))
        connect = await host.call("connect_info", instance=one)
        assert {name: connect[name] for name in connector} == connector
        assert connect["internal_addr"] == "10.1.2.3"
        assert "expires" not in connect
        await host.call("heartbeat", instance=one)
        assert "nobody is gone" in (await host.answer("heartbeat", instance="nobody"))["error"]
        assert await host.call("decrease", instances=[one]) == [one]
        assert await host.call("update") == {one: "deleting", other: "running"}
        assert await host.call("update") == {other: "running"}
        await host.call("shutdown")
    assert not [words for _, words in processes() if str(plugin) in words]


async def test_our_plugin_without_abilities_under_the_real_host_library(tmp_path: Path) -> None:
    plugin = a_plugin(tmp_path, PlainGroup)
    async with go_host(plugin, {"max_sise": 5}) as host:
        assert "did you mean max_size?" in (await host.answer("init"))["error"]
    async with go_host(plugin, {}) as host:
        await host.call("init")
        await host.call("heartbeat", instance="anybody")
        await host.call("shutdown")


async def test_our_plugin_ends_with_a_go_host_that_is_killed(tmp_path: Path) -> None:
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


async def described(channel: Channel, symbol: str) -> FileDescriptorProto:
    async with ServerReflectionStub(channel).ServerReflectionInfo.open() as stream:
        await stream.send_message(ServerReflectionRequest(file_containing_symbol=symbol), end=True)
        answer = await stream.recv_message()
    assert answer is not None
    return FileDescriptorProto.FromString(answer.file_descriptor_response.file_descriptor_proto[0])


def facts(file: FileDescriptorProto) -> set[tuple[object, ...]]:
    """Everything of a file that is on the wire, and its names."""
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


async def test_the_protocol_is_upstreams_to_the_letter() -> None:
    process = FleetingProcess(built("fleeting-plugin-dummy"), say=lambda _: None)
    channel = await process.start()
    try:
        for symbol, ours in (("proto.InstanceGroup", fleeting_pb2), ("plugin.GRPCBroker", fleeting_process_pb2)):
            theirs = facts(await described(channel, symbol))
            assert theirs
            assert theirs - facts(FileDescriptorProto.FromString(ours.DESCRIPTOR.serialized_pb)) == set()
    finally:
        channel.close()
        process.kill()
        await process.close()
