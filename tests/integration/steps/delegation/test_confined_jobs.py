"""Delegation in jobs that run as another user or in a sandbox: the connecting command has the job's rights only, and
what the other agent reports, which the job has chosen, is not trusted."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpclib.server import Server, Stream
from tests.support.step_files import open_command, write_step

from remuda.steps.policy import sandbox
from remuda.testing.agent_process import AgentProcess, Seen, follow, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobStart, JobVariable, socket_of
from remuda.wire.agent_shell import ShellCommand, ShellExit, open_shell
from remuda.wire.proto import agent_pb2 as pb
from remuda.wire.proto.agent_grpc import AgentBase

UID = 123456
SECRET = "secret-of-the-agent"
RELAY = """
import os, select, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
pairs = {0: connection.fileno(), connection.fileno(): 1}
while True:
    for ready in select.select(list(pairs), [], [])[0]:
        data = os.read(ready, 65536)
        if not data:
            sys.exit(0)
        os.write(pairs[ready], data)
"""
MODES: dict[str, dict[str, Any]] = {
    "user": {"run_as": str(UID)},
    "sandbox": {"sandbox": True},
    "both": {"run_as": str(UID), "sandbox": True},
}

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as other users"),
    pytest.mark.skipif(sandbox.problem() is not None, reason=f"no sandbox here: {sandbox.problem()}"),
]


@pytest.fixture
async def agent(public_folder: Path) -> AsyncIterator[AgentProcess]:
    """The agent of the job, with a variable that jobs must not see."""
    async with AgentProcess(public_folder / "data") as process:
        await process.start(env={"AGENT_SECRET": SECRET})
        yield process


@pytest.fixture
def work(public_folder: Path) -> Path:
    """The working directory, with a step that opens an environment of the agent behind the socket `other`."""
    work = public_folder / "work"
    work.mkdir()
    (work / "relay.py").write_text(RELAY)
    note = f"id -u >>{work}/users; env >>{work}/variables; test ! -e /proc/1/environ || cat /proc/1/environ 2>/dev/null"
    connect = f"({note}) >/dev/null; exec /usr/bin/python3 {work}/relay.py {work}/other"
    environment = {"agent": ["sh", "-c", connect]}
    definition = {"environment": {"open": {"command": open_command(environment)}, "close": {"command": ["true"]}}}
    write_step(work / "machine", definition)
    return work


def a_job(work: Path, *inner: dict[str, Any], **values: Any) -> JobStart:
    machine = {"name": "machine", "step": "./machine", "run": list(inner)}
    after = {"name": "after", "script": "echo after ${{ steps.there.outputs.text }} $EXPORTED"}
    return JobStart(id="1", work_dir=str(work), steps=steps_text(machine, after), **values)


WRITE = """
    printf '{"name": "text", "value": "output"}\\n' >>$REMUDA_OUTPUTS
    printf '{"name": "EXPORTED", "value": "export"}\\n' >>$REMUDA_EXPORTS
    echo there
"""
THERE = {"name": "there", "script": WRITE}


@asynccontextmanager
async def forward(socket: Path, target: Path) -> AsyncIterator[None]:
    """Forward connections of all users from `socket` to the unix socket `target`."""

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_unix_connection(target)
        async with asyncio.TaskGroup() as group:
            group.create_task(copy(reader, other_writer), name="there")
            group.create_task(copy(other_reader, writer), name="back")

    async with await asyncio.start_unix_server(accept, socket):
        socket.chmod(0o666)
        yield


@pytest.fixture
async def other(tmp_path: Path, work: Path) -> AsyncIterator[AgentProcess]:
    """Another agent, which every user reaches through the socket `other` of the working directory."""
    async with AgentProcess(tmp_path / "other") as process:
        await process.start()
        socket = socket_of(process.data)
        assert socket is not None
        async with forward(work / "other", Path(socket)):
            yield process


@pytest.mark.parametrize("mode", MODES)
async def test_steps_run_there_with_the_jobs_rights(
    agent: AgentProcess, other: AgentProcess, work: Path, mode: str
) -> None:
    look = f"cp -r {other.data}/jobs {other.data}/seen"
    variables = (JobVariable(key="MASKED", value="masked-value", masked=True),)
    job = a_job(
        work, THERE, {"name": "look", "script": look}, variables=variables, masks=("known-to-no-job",), **MODES[mode]
    )
    seen = await run_job(agent, job)
    assert seen.check().status == "success", seen.log.decode()
    assert b"after output export" in seen.lines
    [event] = [event for event in seen.results if event["event"] == "finished" and event["path"] == "/machine/there"]
    assert (event["status"], event["environment"]) == ("success", "/machine")
    users = set((work / "users").read_text().split())
    assert users == {str(UID if "run_as" in MODES[mode] else os.geteuid())}
    assert SECRET not in (work / "variables").read_text()
    stored = b"".join(path.read_bytes() for path in (other.data / "seen").rglob("request"))
    assert b"masked-value" in stored
    assert b"known-to-no-job" not in stored


async def test_a_cancelled_job_ends_there(agent: AgentProcess, other: AgentProcess, work: Path) -> None:
    long = {"name": "there", "script": f"touch {other.data}/up; sleep 1000"}
    async with agent.client() as client:
        await client.start(a_job(work, long, **MODES["both"]))
        await until((other.data / "up").exists)
        await client.cancel("1")
        seen = await follow(client, "1")
    assert seen.check().status == "cancelled"
    async with other.client() as client:
        assert list((await client.hello()).jobs) == []
    assert set((work / "users").read_text().split()) == {str(UID)}


async def test_a_failed_job_on_hold_is_released_with_the_jobs_rights(
    agent: AgentProcess, other: AgentProcess, work: Path
) -> None:
    fail = {"name": "there", "script": "exit 3"}
    async with agent.client() as client:
        await client.start(a_job(work, fail, hold_failed_seconds=600, **MODES["both"]))
        seen = await follow(client, "1")
        assert seen.check().exit_code == 3, seen.log.decode()
        async with other.client() as there:
            assert len((await there.hello()).jobs) == 1
        connections = len((work / "users").read_text().split())
        await client.close_job("1")
    users = (work / "users").read_text().split()
    assert len(users) > connections
    assert set(users) == {str(UID)}
    assert SECRET not in (work / "variables").read_text()
    async with other.client() as there:
        assert list((await there.hello()).jobs) == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_shell_is_passed_on_with_the_jobs_rights(
    agent: AgentProcess, other: AgentProcess, work: Path, mode: str
) -> None:
    long = {"name": "there", "script": f"touch {other.data}/up; sleep 1000"}
    async with agent.client() as client:
        await client.start(a_job(work, long, **MODES[mode]))
        await until((other.data / "up").exists)
        connections = len((work / "users").read_text().split())
        command = ShellCommand(command=("touch", f"{other.data}/touched"), terminal=False)
        async with open_shell(client, "1", command) as shell:
            assert ShellExit(0) in [event async for event in shell]
        await client.close_job("1")
    assert (other.data / "touched").exists()
    users = (work / "users").read_text().split()
    assert len(users) > connections
    assert set(users) == {str(UID if "run_as" in MODES[mode] else os.geteuid())}
    assert SECRET not in (work / "variables").read_text()


async def test_a_job_with_a_policy_cannot_delegate(agent: AgentProcess, other: AgentProcess, work: Path) -> None:
    """The other agent would apply the policy, and the job has chosen that agent."""
    policy = {"version": 1, "layers": [{"author": "runner r", "document": {"rules": []}}]}
    seen = await run_job(agent, a_job(work, THERE, policy=json.dumps(policy), **MODES["user"]))
    assert seen.check().reason == "script_failure"
    assert b"cannot be opened in a job with a policy" in seen.log
    assert not (work / "users").exists()


class ForgingAgent(AgentBase):
    """An agent that runs nothing and reports what it likes."""

    def __init__(self, results: list[bytes], end: pb.JobEnd) -> None:
        self._results, self._end = results, end

    async def Hello(self, stream: Stream[pb.HelloRequest, pb.HelloResponse]) -> None:  # noqa: N802
        raise NotImplementedError

    async def Start(self, stream: Stream[pb.StartRequest, pb.StartResponse]) -> None:  # noqa: N802
        await stream.recv_message()
        await stream.send_message(pb.StartResponse())

    async def Close(self, stream: Stream[pb.CloseRequest, pb.CloseResponse]) -> None:  # noqa: N802
        await stream.recv_message()
        await stream.send_message(pb.CloseResponse())

    async def Watch(self, stream: Stream[pb.WatchRequest, pb.WatchEvent]) -> None:  # noqa: N802
        await stream.recv_message()
        for number, result in enumerate(self._results, 1):
            await stream.send_message(pb.WatchEvent(result=pb.ResultEvent(seq=number, json=result)))
        await stream.send_message(pb.WatchEvent(end=self._end))
        await stream.recv_message()

    Cancel = Jobs = Describe = Usage = Shell = Hello  # type: ignore[assignment]


async def run_forged(agent: AgentProcess, work: Path, results: list[bytes], **end: Any) -> Seen:
    server = Server([ForgingAgent(results, pb.JobEnd(**end))])
    await server.start(path=str(work / "other"))
    (work / "other").chmod(0o666)
    try:
        return await run_job(agent, a_job(work, THERE, **MODES["user"]))
    finally:
        server.close()
        await server.wait_closed()


def a_result(**values: Any) -> bytes:
    event = {"event": "finished", "path": "/there", "name": "there", "status": "success", "seq": 1, "version": 1}
    return json.dumps(event | values).encode()


async def test_a_forged_result_is_marked_and_shows_no_policy(agent: AgentProcess, work: Path) -> None:
    policy = {"decision": "allowed", "enforced": ["memory"], "rule": "r"}
    result = a_result(policy=policy, outputs={"text": "forged"}, exports={"EXPORTED": "e"})
    seen = await run_forged(agent, work, [result], status="success")
    assert seen.check().status == "success", seen.log.decode()
    [event] = [event for event in seen.results if event["path"] == "/machine/there"]
    assert event["unverified"] is True
    assert "policy" not in event
    assert all("unverified" not in event for event in seen.results if event["path"] == "/after")
    assert b"after forged e" in seen.lines


async def test_a_forged_system_failure_is_the_jobs_failure(agent: AgentProcess, work: Path) -> None:
    end = {"status": "failure", "reason": "runner_system_failure", "exit_code": -1, "message": "the disk is broken"}
    seen = await run_forged(agent, work, [], **end)
    assert seen.check().reason == "script_failure"
    assert "the disk is broken" in seen.check().message


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (b"[" * 100_000, "it is not JSON, or nested too deeply"),
        (a_result(exports={"A": "x\0y"}), "an export is not a text without NUL"),
        (a_result(outputs={"a": "x" * 5_000_000}), "more than 4194304"),
    ],
    ids=["json", "export", "large"],
)
async def test_an_invalid_result_fails_the_step_not_the_agent(
    agent: AgentProcess, work: Path, result: bytes, text: str
) -> None:
    seen = await run_forged(agent, work, [result], status="success")
    assert seen.check().reason == "script_failure", seen.log.decode()[-2000:]
    assert "the agent of the environment sent an invalid result" in seen.check().message
    assert text in seen.check().message


async def test_a_long_message_is_cut(agent: AgentProcess, work: Path) -> None:
    end = {"status": "failure", "reason": "runner_system_failure", "exit_code": -1, "message": "x" * 100_000}
    seen = await run_forged(agent, work, [], **end)
    message = seen.check().message
    assert "delegate: xxx" in message
    assert len(message) < 20_000
