"""How the host of plugins (HostedGroup) handles broken plugins: bad handshakes, crashes, hangs, floods of output, stale
sockets and wrong answers."""

import asyncio
import json
import os
import signal
import sys
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from grpclib import GRPCError

from remuda.fleeting import InstanceState, PermanentError, Settings, TemporaryError, UnsupportedError
from remuda.fleeting.client import Deadlines
from remuda.fleeting.host import HostedGroup
from remuda.fleeting.plugin_search import find_program
from remuda.fleeting.process import FleetingProcess
from remuda.lib.backoff import Backoff
from remuda.lib.socket_folder import SocketFolder
from remuda.testing.instance_groups import TableGroup, a_plugin, a_program
from remuda.testing.lab import processes
from remuda.testing.logs import capture_logs
from remuda.testing.waiting import until
from remuda.wire.proto import fleeting_pb2 as pb
from remuda.wire.proto.fleeting_grpc import InstanceGroupStub

Host = Callable[..., HostedGroup]
QUICK = Backoff(first_seconds=0.01, ceiling_seconds=0.01)
PRELUDE = f"""#!{sys.executable}
import asyncio, os, signal, subprocess, sys, time
from remuda.fleeting import serve
from remuda.testing.instance_groups import TableGroup
"""
NEVER_ANSWERS = """
import socket
s = socket.socket(socket.AF_UNIX)
path = os.environ['PLUGIN_UNIX_SOCKET_DIR'] + '/s'
s.bind(path)
s.listen()
print(f'1|0|unix|{path}|grpc|', flush=True)
time.sleep(60)
"""
RAW = f"""#!{sys.executable}
import asyncio, os
from grpclib import GRPCError
from grpclib.const import Status
from grpclib.server import Server
from remuda.fleeting.services import GroupService
from remuda.testing.instance_groups import PlainGroup, TableGroup
from remuda.wire.proto import fleeting_pb2 as pb

async def main(service):
    path = os.environ["PLUGIN_UNIX_SOCKET_DIR"] + "/raw"
    server = Server([service])
    await server.start(path=path)
    print(f"1|0|unix|{{path}}|grpc", flush=True)
    await asyncio.Event().wait()
"""


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    """A function that hosts a program. Checks in the end that no process of it is left."""
    async with AsyncExitStack() as stack:

        def host_program(program: Path | str, **options: Any) -> HostedGroup:
            settings: dict[str, Any] = {"backoff": QUICK, "end_seconds": 0.3} | options
            group = HostedGroup(str(program), **settings)
            stack.push_async_callback(group.close)
            return group

        yield host_program
    # The kernel may take a moment to remove killed children.
    await until(lambda: not [words for _, words in processes() if any(str(tmp_path) in word for word in words)])


def write_shell_script(folder: Path, text: str) -> Path:
    return a_program(folder, f"#!/bin/sh\n{text}\n")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("echo; sleep 60", PermanentError, "no handshake: ''"),
        ("yes | tr -d '\\n'", PermanentError, "a first line of more than"),
        (
            "echo no licence >&2; exit 3",
            TemporaryError,
            "ended with 3 before its handshake; its last output: no licence",
        ),
        ("printf half; exit 0", TemporaryError, "ended with 0 before its handshake and after printing b'half'"),
        ("exec sleep 60", TemporaryError, "printed no handshake within 1 s"),
        ("exec >&-; exec sleep 60", TemporaryError, "closed its stdout before its handshake"),
        ("kill -9 $$", TemporaryError, "ended with -9"),
        ("echo '2|0|unix|/nowhere|grpc|'; sleep 60", PermanentError, "core protocol 2"),
        ("echo '1|7|unix|/nowhere|grpc|'; sleep 60", PermanentError, "no protocol version in common"),
        ("echo '1|0|unix|/nowhere'; sleep 60", PermanentError, "speaks netrpc"),
        ("echo '1|0|tcp|8.8.8.8:53|grpc|'; sleep 60", PermanentError, "a port of this machine"),
        ("echo '1|0|unix|/nowhere|grpc|'; echo sorry >&2; sleep 60", TemporaryError, "cannot be reached.*sorry"),
    ],
)
async def test_error_messages_for_programs_that_are_no_plugins(
    host: Host, tmp_path: Path, text: str, kind: type[Exception], message: str
) -> None:
    group = host(write_shell_script(tmp_path, text), start_seconds=1.0)
    with pytest.raises(kind, match=message):
        await group.init({}, Settings())
    with pytest.raises(kind, match="does not run"):
        await group.update()


async def test_a_banner_on_stdout_is_explained(host: Host, tmp_path: Path) -> None:
    text = "print('Welcome to my plugin 2.0')\nserve(TableGroup())\n"
    group = host(a_program(tmp_path, PRELUDE + text))
    with pytest.raises(PermanentError) as caught:
        await group.init({}, Settings())
    message = str(caught.value)
    assert f"{tmp_path}/fleeting-plugin-odd: this is no handshake: 'Welcome to my plugin 2.0'" in message
    assert "the first line on stdout has to be 1|0|unix|PATH|grpc|, and nothing may be printed before" in message


async def test_an_unrequested_certificate_is_refused(host: Host, tmp_path: Path) -> None:
    text = "import remuda.fleeting.serving as serving\nread = serving.Handshake\n"
    text += "serving.Handshake = lambda **how: read(**how | {'certificate': b'x' * 600})\nserve(TableGroup())\n"
    group = host(a_program(tmp_path, PRELUDE + text))
    with pytest.raises(PermanentError, match="a certificate although none was asked for; leave its sixth field empty"):
        await group.init({}, Settings())
    assert (await host(a_plugin(tmp_path)).init({}, Settings())).id == "test/table"


async def test_a_missing_submessage_is_an_error_on_both_sides(host: Host, tmp_path: Path) -> None:
    text = (
        "class Silent(GroupService):\n"
        "    async def ConnectInfo(self, stream):\n        await stream.recv_message()\n"
        "        await stream.send_message(pb.ConnectInfoResponse(InternalAddr='10.0.0.1'))\n"
        "asyncio.run(main(Silent(TableGroup())))\n"
    )
    group = host(a_program(tmp_path / "theirs", RAW + text))
    await group.init({}, Settings())
    with pytest.raises(TemporaryError, match="has no connector; it has to say how to log in"):
        await group.connect_info("a")
    assert await group.update() == {}

    # The plugin's side: a host sends Init without settings, or without the connector in them.
    process = FleetingProcess(str(a_plugin(tmp_path / "ours")), say=lambda _: None)
    try:
        channel = await process.start()
        stub = InstanceGroupStub(channel)
        for request in (pb.InitRequest(), pb.InitRequest(config=b"{}", settings=pb.Settings())):
            with pytest.raises(GRPCError, match=r"Init came without settings\.connector_config"):
                await stub.Init(request)
        empty = pb.Settings(connector_config=pb.ConnectorConfig())
        assert (await stub.Init(pb.InitRequest(settings=empty))).id == "test/table"
        await stub.Increase(pb.IncreaseRequest(n=1))
        response = await stub.ConnectInfo(pb.ConnectInfoRequest(instance="instance-1"))
        assert response.HasField("connector")
        assert (response.connector.keepalive, response.connector.timeout) == (30 * 10**9, 600 * 10**9)
        with pytest.raises(GRPCError, match="there is no instance"):
            await stub.ConnectInfo(pb.ConnectInfoRequest())
        channel.close()
    finally:
        process.kill()
        await process.close()


async def test_a_program_that_cannot_be_started_is_explained(host: Host, tmp_path: Path) -> None:
    with pytest.raises(TemporaryError, match="Exec format error"):
        await host(a_program(tmp_path, "neither script nor program")).init({}, Settings())
    for missing in (str(tmp_path / "nobody"), str(tmp_path), "nobody-has-this"):
        with pytest.raises(PermanentError, match="there is no"):
            await host(missing).init({}, Settings())


def test_a_folder_with_the_name_of_a_plugin_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = a_plugin(tmp_path / "bin")
    (tmp_path / "table").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_program("table") == find_program("fleeting-plugin-table") == str(program)


async def test_init_of_a_plugin_that_never_answers_times_out(host: Host, tmp_path: Path) -> None:
    group = host(a_program(tmp_path, PRELUDE + NEVER_ANSWERS), deadlines=Deadlines(init=0.3))
    with pytest.raises(TemporaryError, match="has not answered Init in time"):
        await group.init({}, Settings())


async def test_a_plugin_that_dies_in_a_call_is_restarted(host: Host, tmp_path: Path) -> None:
    flag = tmp_path / "died"
    text = (
        "class Dying(TableGroup):\n    async def increase(self, count):\n"
        f"        if os.path.exists('{flag}'):\n            return await super().increase(count)\n"
        f"        open('{flag}', 'w').close()\n        print('I am dying', file=sys.stderr, flush=True)\n"
        "        os._exit(7)\nserve(Dying())\n"
    )
    group = host(a_program(tmp_path, PRELUDE + text), backoff=Backoff(first_seconds=0.5))
    await group.init({"max_size": 4}, Settings())
    with pytest.raises(TemporaryError, match="fleeting-plugin-odd ended with 7; its last output: I am dying"):
        await group.increase(1)
    await until(lambda: group.pid is None)
    with pytest.raises(TemporaryError, match=r"does not run: .*ended with 7; its last output: I am dying"):
        await group.update()
    await until(lambda: group.pid is not None)
    assert group.starts == 2
    assert group.info is not None
    assert group.info.max_size == 4
    assert await group.increase(1) == 1


async def test_a_restart_logs_the_version_that_was_installed_meanwhile(host: Host, tmp_path: Path) -> None:
    program = a_plugin(tmp_path)
    group = host(program, backoff=QUICK)
    assert (await group.init({}, Settings())).version == "1.2.3"
    program.write_text(program.read_text().replace("sys.exit(", "TableGroup.version = '2.0.0'\nsys.exit("))
    assert group.pid is not None
    with capture_logs() as logs:
        os.kill(group.pid, signal.SIGKILL)
        await until(lambda: any(entry["event"] == "plugin restarted" for entry in logs))
    assert group.info is not None
    assert group.info.version == "2.0.0"
    assert [entry["version"] for entry in logs if entry["event"] == "plugin restarted"] == ["2.0.0"]


async def test_a_call_that_hangs_times_out_and_the_plugin_is_restarted(host: Host, tmp_path: Path) -> None:
    text = (
        "class Hanging(TableGroup):\n    async def update(self):\n        await asyncio.sleep(60)\nserve(Hanging())\n"
    )
    group = host(a_program(tmp_path, PRELUDE + text), deadlines=Deadlines(update=0.2, connect_info=0.2))
    await group.init({}, Settings())
    first = group.pid
    with pytest.raises(TemporaryError, match="has not answered Update in time"):
        await group.update()
    await until(lambda: group.pid not in (None, first))
    assert first not in dict(processes())


async def test_a_slow_connect_info_does_not_restart_the_plugin(host: Host, tmp_path: Path) -> None:
    text = (
        "class Slow(TableGroup):\n    async def connect_info(self, instance):\n        await asyncio.sleep(60)\n"
        "serve(Slow())\n"
    )
    group = host(a_program(tmp_path, PRELUDE + text), deadlines=Deadlines(connect_info=0.2))
    await group.init({}, Settings())
    with pytest.raises(TemporaryError, match="has not answered ConnectInfo in time"):
        await group.connect_info("any")
    assert await group.update() == {}
    assert group.starts == 1


@pytest.mark.parametrize("ending", ["\\n", ""], ids=["lines", "one line"])
@pytest.mark.parametrize("where", ["stdout", "stderr"])
async def test_a_flood_of_output_uses_little_memory(host: Host, tmp_path: Path, where: str, ending: str) -> None:
    megabytes = 30
    number = {"stdout": 1, "stderr": 2}[where]
    text = (
        "class Flooding(TableGroup):\n    async def update(self):\n"
        f"        piece = ('x' * 1023 + '{ending}').encode() * 64\n"
        f"        for _ in range({megabytes * 16}):\n"
        f"            await asyncio.to_thread(os.write, {number}, piece)\n"
        "        return {}\nserve(Flooding())\n"
    )
    group = host(a_program(tmp_path, PRELUDE + text))
    await group.init({}, Settings())
    tracemalloc.start()
    try:
        assert await group.update() == {}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < megabytes * 1024 * 1024 / 5
    assert group.starts == 1


async def test_a_child_that_keeps_the_pipes_open_does_not_block_the_host(host: Host, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    text = (
        "class Parent(TableGroup):\n    async def update(self):\n"
        "        child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        f"        print(child.pid, file=open('{pid}', 'w'), flush=True)\n        os._exit(0)\nserve(Parent())\n"
    )
    group = host(a_program(tmp_path, PRELUDE + text))
    await group.init({}, Settings())
    with pytest.raises(TemporaryError):
        await group.update()
    async with asyncio.timeout(15):
        await until(lambda: group.starts == 2 and group.pid is not None)
        await group.close()
    os.kill(int(pid.read_text()), signal.SIGKILL)


STUBBORN = (
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nimport remuda.fleeting.serving as serving\n"
    "class Never(asyncio.Event):\n    def set(self): pass\nserving.asyncio.Event = Never\nserve(TableGroup())\n"
)
HOST = """import asyncio, sys
from remuda.fleeting import Settings
from remuda.fleeting.host import HostedGroup
async def main():
    group = HostedGroup(sys.argv[1])
    await group.init({}, Settings())
    print(group.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for sockets of hosts. Checks in the end that it is empty."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)
        assert list(Path(folder).iterdir()) == []


@asynccontextmanager
async def run_host_until_killed(plugin: Path, sockets: Path) -> AsyncIterator[int]:
    """Run a host in another process, and kill it at the end of the block. Yields the pid of the plugin."""
    env = os.environ | {"TMPDIR": str(sockets)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOST, str(plugin)), env=env, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    pid = int(await process.stdout.readline())
    try:
        yield pid
    finally:
        process.kill()
        await process.wait()
    await until(lambda: pid not in dict(processes()))


@pytest.mark.parametrize("killed", ["a plugin that does not want to end", "a plugin at work", "the host"])
async def test_stale_sockets_are_removed(host: Host, tmp_path: Path, sockets: Path, killed: str) -> None:
    stubborn = a_program(tmp_path, PRELUDE + STUBBORN)
    if killed == "the host":
        async with run_host_until_killed(stubborn, sockets):
            [before] = sockets.glob("*/*/socket")
        assert before.exists()  # the killed host could not remove it
    group = host(stubborn)
    await group.init({}, Settings())
    if killed == "a plugin at work":
        [before] = sockets.glob("*/*/socket")
        assert group.pid is not None
        os.kill(group.pid, signal.SIGKILL)
        await until(lambda: group.starts == 2 and group.pid is not None)
    [now] = sockets.glob("*/*/socket")
    assert killed == "a plugin that does not want to end" or now != before
    assert str(now) in Path("/proc/net/unix").read_text()
    pid = group.pid
    await group.close()
    assert pid not in dict(processes())


async def test_the_plugin_ends_when_its_host_is_killed(tmp_path: Path, sockets: Path) -> None:
    async with run_host_until_killed(a_plugin(tmp_path, TableGroup), sockets) as pid:
        os.kill(pid, signal.SIGSTOP)  # so that the plugin does not notice the end of its host itself
    SocketFolder().close()


async def test_plugins_inherit_no_host_variables(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLUGIN_CLIENT_CERT", "-----BEGIN CERTIFICATE-----")
    monkeypatch.setenv("PLUGIN_MULTIPLEX_GRPC", "true")
    monkeypatch.setenv("PLUGINS_OF_MINE", "kept")
    env_file = tmp_path / "env"
    first = f"import json, os; json.dump(dict(os.environ), open({str(env_file)!r}, 'w'))"
    assert (await host(a_plugin(tmp_path, first=first)).init({}, Settings())).id == "test/table"
    env = json.loads(env_file.read_text())
    names = ["PLUGIN_MAX_PORT", "PLUGIN_MIN_PORT", "PLUGIN_PROTOCOL_VERSIONS", "PLUGIN_UNIX_SOCKET_DIR"]
    assert sorted(name for name in env if name.startswith("PLUGIN_")) == names
    assert env["PLUGINS_OF_MINE"] == "kept"


async def test_a_configuration_that_is_not_json_is_refused(host: Host, tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="plugin_config cannot be sent"):
        await host(a_plugin(tmp_path)).init({"max_size": float("nan")}, Settings())
    info = await host(a_plugin(tmp_path)).init({"address": date(2026, 1, 2)}, Settings())
    assert info.id == "test/table"


async def test_missing_socket_folder_is_explained(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    with pytest.raises(TemporaryError, match=r"cannot be started: .*No such file"):
        await host(a_plugin(tmp_path)).init({}, Settings())


async def test_a_cancelled_init_leaves_no_process(host: Host, tmp_path: Path) -> None:
    group = host(write_shell_script(tmp_path, "exec sleep 60"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await group.init({}, Settings())
    assert group.pid is None


async def test_a_cancelled_init_waits_for_the_end_of_the_plugin(host: Host, tmp_path: Path) -> None:
    text = (
        f"def end(*_):\n    open('{tmp_path}/ending', 'w').close()\n    time.sleep(0.3)\n"
        f"    open('{tmp_path}/ended', 'w').close()\n    os._exit(0)\nsignal.signal(signal.SIGTERM, end)\n"
    )
    program = a_program(tmp_path, PRELUDE + text + NEVER_ANSWERS)
    init = asyncio.create_task(host(program, deadlines=Deadlines(init=0.3), end_seconds=1.0).init({}, Settings()))
    await until((tmp_path / "ending").exists)
    init.cancel()
    await asyncio.wait({init})
    assert (tmp_path / "ended").exists()


@pytest.mark.parametrize("missing", ["Shutdown = Heartbeat", "Heartbeat"], ids=["five of 2023", "six of 2024"])
async def test_plugins_with_the_older_protocol_of_five_or_six_calls(host: Host, tmp_path: Path, missing: str) -> None:
    calls = tmp_path / "calls"
    text = (
        "class Old(GroupService):\n    async def missing(self, stream):\n"
        "        raise GRPCError(Status.UNIMPLEMENTED, 'unknown method')\n"
        "    async def Shutdown(self, stream):\n"
        f"        open('{calls}', 'a').write('Shutdown')\n        await super().Shutdown(stream)\n"
        f"    {missing} = Suspend = Resume = missing\n"
    )
    group = host(a_program(tmp_path, f"{RAW}{text}asyncio.run(main(Old(PlainGroup())))\n"))
    assert (await group.init({}, Settings())).capabilities == frozenset()
    assert await group.increase(1) == 1
    [instance] = await group.update()
    assert await group.update() == {instance: InstanceState.RUNNING}
    assert (await group.connect_info(instance)).address() == "10.0.0.1"
    await group.heartbeat(instance)
    assert await group.decrease([instance]) == [instance]
    await group.shutdown()
    assert calls.exists() == ("Shutdown" not in missing)
    unsupported: list[Callable[[], Awaitable[object]]] = [
        lambda: group.suspend(["a"]),
        lambda: group.resume(["a"]),
        group.stats,
        group.recover,
    ]
    for call in unsupported:
        with pytest.raises(UnsupportedError, match="does not have"):
            await call()
    boasting = host(a_program(tmp_path / "boasting", f"{RAW}{text}asyncio.run(main(Old(TableGroup())))\n"))
    assert "suspend_resume" in (await boasting.init({}, Settings())).capabilities
    with pytest.raises(UnsupportedError, match="does not have Suspend"):
        await boasting.suspend(["a"])


async def test_impossible_values_in_answers_are_corrected(host: Host, tmp_path: Path) -> None:
    text = (
        "class Boasting(GroupService):\n"
        "    async def Increase(self, stream):\n        request = await stream.recv_message()\n"
        "        await stream.send_message(pb.IncreaseResponse(succeeded=request.n + 50))\n"
        "    async def Decrease(self, stream):\n        request = await stream.recv_message()\n"
        "        await stream.send_message(pb.DecreaseResponse(succeeded=['ghost', *request.instances]))\n"
        "    async def Update(self, stream):\n        await stream.recv_message()\n"
        "        message = pb.UpdateResponse.FromString(bytes([10, 1, 97, 16, 9]))\n"
        "        await stream.send_message(message)\n"
        "asyncio.run(main(Boasting(TableGroup())))\n"
    )
    group = host(a_program(tmp_path, RAW + text))
    await group.init({}, Settings())
    assert await group.increase(2) == 2
    assert await group.decrease(["a"]) == ["a"]
    assert await group.update() == {"a": InstanceState.UNKNOWN}


async def test_a_partly_failed_suspend_returns_the_suspended_instances(host: Host, tmp_path: Path) -> None:
    text = (
        "from remuda.fleeting.status_details import Details\n"
        "class Half(GroupService):\n    async def Suspend(self, stream):\n"
        "        request = await stream.recv_message()\n"
        "        done = pb.SuspendResponse(succeeded=request.instances[:1])\n"
        "        raise GRPCError(Status.UNKNOWN, 'the other one did not want to', [done])\n"
        "_Server = Server\ndef Server(services): return _Server(services, status_details_codec=Details())\n"
        "asyncio.run(main(Half(TableGroup())))\n"
    )
    group = host(a_program(tmp_path, RAW + text))
    await group.init({}, Settings())
    assert await group.suspend(["a", "b"]) == ["a"]
