"""Transports of the agent: loopback TCP with a token, a proxy on stdio, a command that the agent is bound to."""

import asyncio
import base64
import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from grpclib import GRPCError
from grpclib.client import Channel
from grpclib.const import Status
from tests.support.step_jobs import Build

from remuda.steps.delegation.client import CommandChannel
from remuda.steps.delegation.files import Order
from remuda.testing.agent_process import PROGRAM, AgentProcess, run_job
from remuda.testing.waiting import until
from remuda.wire.agent_client import (
    AgentClient,
    AgentRefusedError,
    JobEnded,
    channel_of,
    socket_of,
    tcp_channel,
)
from remuda.wire.proto import step_runner_pb2 as pb
from remuda.wire.proto.step_runner_grpc import StepRunnerStub


async def run_program(
    *arguments: str, env: dict[str, str] | None = None, data: bytes = b""
) -> tuple[int, bytes, bytes]:
    """Run the agent's program. Returns exit code, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | (env or {}),
    )
    async with asyncio.timeout(30):
        out, err = await process.communicate(data)
    assert process.returncode is not None
    assert b"Traceback" not in err
    return process.returncode, out, err


async def test_loopback_tcp_with_a_token(tmp_path: Path, a_job: Build) -> None:
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start("--listen", "tcp")
        file = agent.data / "endpoint"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        endpoint = json.loads(file.read_text())
        assert endpoint["host"] == "127.0.0.1"
        assert len(endpoint["token"]) >= 40
        assert socket_of(agent.data) is None
        async with agent.client() as client:
            assert (await client.describe()).transport == "tcp"
        assert (await run_job(agent, a_job(script="echo ok"))).lines == [b"ok"]
        for token in ("wrong", endpoint["token"][:-1], endpoint["token"] + "x"):
            async with AgentClient(tcp_channel("127.0.0.1", endpoint["port"], token)) as client:
                with pytest.raises(AgentRefusedError, match="no valid token"):
                    await client.hello()
        # The step runner's service needs the token, too, for streams and for single calls.
        async with Channel("127.0.0.1", endpoint["port"]) as channel:
            stub = StepRunnerStub(channel)
            for call in (stub.Status(pb.StatusRequest()), read_log(stub, "1")):
                with pytest.raises(GRPCError) as caught:
                    await call
                assert caught.value.status is Status.UNAUTHENTICATED
        await agent.kill()
        await agent.start("--listen", "tcp")
        assert json.loads(file.read_text())["token"] != endpoint["token"]
        await agent.stop()
        assert not file.exists()
        await agent.start()
        assert channel_of(agent.data) is not None


async def read_log(stub: StepRunnerStub, job_id: str) -> bytes:
    async with stub.FollowLogs.open() as stream:
        await stream.send_message(pb.FollowLogsRequest(id=job_id), end=True)
        return b"".join([answer.data async for answer in stream])


@pytest.mark.parametrize(
    "address", ["tcp:0.0.0.0:0", "tcp:192.0.2.1:7000", "tcp:localhost:1", "tcp:::1:7", "udp", "unix:x"]
)
async def test_other_listen_addresses_are_refused(tmp_path: Path, address: str) -> None:
    code, _, errors = await run_program("serve", "--data", str(tmp_path / "data"), "--listen", address)
    assert code == 1
    assert b"--listen" in errors


async def test_error_for_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code, _, errors = await run_program(
            "serve", "--data", str(tmp_path / "data"), "--listen", f"tcp:127.0.0.1:{port}"
        )
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}".encode() in errors


def command_channel(*command: str, token: str = "") -> CommandChannel:
    return CommandChannel(Order(command=command, key="k", results=Path(), steps="", token=token))


async def test_proxy_stdout_is_protocol_only(agent: AgentProcess, a_job: Build) -> None:
    channel = command_channel(*PROGRAM, "proxy", "--data", str(agent.data))
    client = AgentClient(channel)
    await client.start(a_job(script="seq 1 100000"))
    async with client.watch() as watch:
        await watch.subscribe("1")
        async for event in watch:
            if isinstance(event, JobEnded):
                assert event.status == "success"
                break
    assert (await channel.end()).endswith("ended with 0")


async def test_proxy_to_tcp(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start("--listen", "tcp")
        token = json.loads((agent.data / "endpoint").read_text())["token"]
        channel = command_channel(*PROGRAM, "proxy", "--data", str(agent.data), token=token)
        assert (await AgentClient(channel).hello()).pid == agent.pid
        await channel.end()


async def test_proxy_ends_with_either_side(agent: AgentProcess, tmp_path: Path) -> None:
    # The client's side ends: stdin is closed.
    code, out, _ = await run_program("proxy", "--data", str(agent.data))
    assert code == 0
    assert out[3:4] == b"\x04"  # output starts with the SETTINGS frame of an HTTP/2 server
    # The agent's side ends: its connection closes while stdin stays open.
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "proxy", "--socket", str(agent.data / "agent.sock"), stdin=asyncio.subprocess.PIPE, stdout=-3
    )
    await until(lambda: len(list_connections(agent.pid)) > 0)
    await agent.kill()
    async with asyncio.timeout(20):
        assert await process.wait() == 0


def list_connections(pid: int) -> Sequence[str]:
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    return [link for link in links if link.startswith("socket:")][4:]


async def test_proxy_without_an_agent_says_what_to_do(tmp_path: Path) -> None:
    code, out, errors = await run_program("proxy", "--data", str(tmp_path / "none"))
    assert (code, out) == (1, b"")
    assert b"start one with `serve`, or give --start" in errors


async def test_proxy_starts_an_agent_that_stays(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = (*PROGRAM, "proxy", "--data", str(data), "--start", "--idle-exit", "60")
    channels = [command_channel(*command) for _ in range(3)]
    async with asyncio.TaskGroup() as tasks:
        hellos = [tasks.create_task(AgentClient(channel).hello()) for channel in channels]
    [pid] = {hello.result().pid for hello in hellos}
    for channel in channels:
        await channel.end()
    next_channel = command_channel(*command)
    assert (await AgentClient(next_channel).hello()).pid == pid
    await next_channel.end()
    os.kill(pid, signal.SIGTERM)
    await until(lambda: not Path(f"/proc/{pid}").exists())
    assert not list(data.glob("agent.start*"))


async def test_proxy_tells_why_an_agent_did_not_start(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.tex").touch()
    code, _, errors = await run_program("proxy", "--data", str(tmp_path / "data"), "--start")
    assert code == 1
    assert b"the agent did not start" in errors
    assert b"is not an agent's" in errors


async def test_an_agent_bound_to_a_command(tmp_path: Path) -> None:
    """The command gets the agent's stdin. When it ends, the agent ends with its exit code."""
    data = str(tmp_path / "data")
    code, out, errors = await run_program(
        "serve", "--data", data, "sh", "-c", "read x; echo got $x; exit 7", data=b"word\n"
    )
    assert (code, out) == (7, b"got word\n")
    assert b"step-runner is listening on socket" in errors
    code, out, _ = await run_program("serve", "--data", data, "echo", "never")
    assert (code, out) == (0, b"")


async def test_entrypoint_that_drops_arguments_still_starts(tmp_path: Path) -> None:
    """If an entrypoint drops the program's arguments, they come from a variable."""
    text = base64.b64encode(json.dumps(["serve", "--data", str(tmp_path / "data"), "echo", "ran"]).encode()).decode()
    code, out, errors = await run_program(env={"REMUDA_AGENT_ARGUMENTS": text}, data=b"x")
    assert (code, out) == (0, b"ran\n")
    assert b"step-runner is listening on socket" in errors
    for wrong in ("%%%", base64.b64encode(b'{"a": 1}').decode()):
        code, _, errors = await run_program(env={"REMUDA_AGENT_ARGUMENTS": wrong})
        assert code == 1
        assert b"REMUDA_AGENT_ARGUMENTS must be a JSON list of strings, encoded as base64" in errors


async def test_describe_and_usage(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    # The kernel tells processor time in units of 10 ms; what is less is 0.
    work = "x = bytearray(30_000_000); any(time.process_time() > 0.05 for _ in iter(int, 1))"
    script = f'{sys.executable} -c \'import time; {work}; open("up", "w"); time.sleep(60)\''
    async with agent.client() as client:
        description = await client.describe()
        assert (description.transport, description.program, description.uid) == ("unix", "installed", os.getuid())
        assert description.system == os.uname().sysname
        abilities = {ability.name: ability for ability in description.abilities}
        assert {"steps", "memory", "network", "disk"} <= abilities.keys()
        assert abilities["steps"].enforced == (os.getuid() == 0)
        assert all(ability.detail for ability in description.abilities)
        assert not (await client.usage()).jobs
        await client.start(a_job(script=script))
        await client.start(a_job("2", script="echo done"))
        await until((tmp_path / "work" / "up").exists)
        used = await client.usage()
        assert used.jobs["1"].processes >= 2
        assert used.jobs["1"].memory_bytes > 30_000_000
        assert used.jobs["1"].cpu_seconds > 0
        assert used.memory_bytes > 10_000_000
        assert 0 < used.open_files < used.open_files_limit
        assert used.machine.cpus == os.cpu_count()
        assert used.machine.memory_available_bytes <= used.machine.memory_bytes
        assert 0 < used.machine.disk_available_bytes <= used.machine.disk_bytes
