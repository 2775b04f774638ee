"""Known faults of GitLab's step runner, and behaviour of its service that GitLab's runner needs: a test for each.

docs/reference/agent.md describes the differences between the two services.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
from grpclib import GRPCError
from grpclib.const import Status
from tests.support.step_jobs import Build
from tests.support.step_runner_client import step_runner

from remuda.steps.delegation.client import CommandChannel
from remuda.steps.delegation.files import Order
from remuda.testing.agent_process import AgentProcess, Seen, follow, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import AgentRefusedError, LogChunk, socket_of
from remuda.wire.proto import agent_pb2
from remuda.wire.proto import step_runner_pb2 as pb
from remuda.wire.proto.agent_grpc import AgentStub
from remuda.wire.proto.step_runner_grpc import StepRunnerStub

HEADER = b"YYYY-MM-DDTHH:MM:SS.uuuuuuZ "


def run_request(folder: Path, script: str, job_id: str = "7", **values: object) -> pb.RunRequest:
    steps = steps_text({"name": "it", "script": script}, extended=False)
    return pb.RunRequest(id=job_id, work_dir=str(folder), steps=steps, **values)  # type: ignore[arg-type]


async def read_chunks(stub: StepRunnerStub, job_id: str, offset: int = 0) -> list[bytes]:
    async with stub.FollowLogs.open() as stream:
        await stream.send_message(pb.FollowLogsRequest(id=job_id, offset=offset), end=True)
        return [answer.data async for answer in stream]


async def get_status(stub: StepRunnerStub, job_id: str = "7") -> pb.Status:
    (status,) = (await stub.Status(pb.StatusRequest(id=job_id))).jobs
    return status


async def test_log_bytes_and_offsets_are_exact(agent: AgentProcess, tmp_path: Path) -> None:
    """Empty lines, carriage returns and a missing last line feed are kept; delivered bytes and offsets agree."""
    async with step_runner(agent) as stub:
        await stub.Run(run_request(tmp_path, r"printf 'a\n\n\nb\r\nc\rd\r\n\n\000end'"))
        log = b"".join(await read_chunks(stub, "7"))
        assert Seen(log=log).lines == [b"a", b"", b"", b"b\r", b"c\rd\r", b"", b"\0end"]
        async with agent.client() as client:
            seen = await follow(client, "7")
        assert seen.check().log_bytes == len(log)
        assert seen.log == log
        (stored,) = (agent.data / "jobs").glob("*/log")
        assert stored.read_bytes() == log


async def test_resume_at_any_byte_loses_nothing(agent: AgentProcess, tmp_path: Path) -> None:
    async with step_runner(agent) as stub:
        await stub.Run(run_request(tmp_path, "seq 1 5; echo; printf end"))
        log = b"".join(await read_chunks(stub, "7"))
        for offset in range(len(log) + 2):
            assert b"".join(await read_chunks(stub, "7", offset)) == log[offset:]


async def test_line_above_64_kib_streams(agent: AgentProcess, tmp_path: Path) -> None:
    async with step_runner(agent) as stub:
        await stub.Run(run_request(tmp_path, "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo after"))
        assert Seen(log=b"".join(await read_chunks(stub, "7"))).lines == [b"x" * 1_000_000, b"after"]


async def test_partial_line_is_delivered_in_time(agent: AgentProcess, tmp_path: Path) -> None:
    """A prompt without a line feed is delivered while the step still waits."""
    async with step_runner(agent) as stub:
        await stub.Run(run_request(tmp_path, "printf 'waiting...'; while [ ! -e go ]; do sleep 0.05; done; echo done"))
        async with stub.FollowLogs.open() as stream, asyncio.timeout(20):
            await stream.send_message(pb.FollowLogsRequest(id="7"), end=True)
            log = b""
            async for answer in stream:
                log += answer.data
                if b"waiting..." in log:
                    (tmp_path / "go").touch()
        assert Seen(log=log).lines == [b"waiting...done"]


async def test_log_of_a_reused_id_starts_empty(agent: AgentProcess, tmp_path: Path) -> None:
    async with step_runner(agent) as stub:
        await stub.Run(run_request(tmp_path, "echo old"))
        await read_chunks(stub, "7")
        await stub.Close(pb.CloseRequest(id="7"))
        await agent.kill()
        await agent.start()
    async with step_runner(agent) as stub:
        await stub.Run(run_request(tmp_path, "echo new"))
        log = b"".join(await read_chunks(stub, "7"))
    assert Seen(log=log).lines == [b"new"]
    assert b"old" not in log


async def test_failure_text_is_in_the_log(agent: AgentProcess, tmp_path: Path) -> None:
    async with step_runner(agent) as stub:
        await stub.Run(run_request(tmp_path, "exit 9"))
        log = b"".join(await read_chunks(stub, "7"))
        assert any(b"exit status 9" in line for line in Seen(log=log).agent_lines)


async def test_results_reach_the_client(agent: AgentProcess, a_job: Build) -> None:
    seen = await run_job(agent, a_job(script="exit 4"))
    assert [(event["event"], event["name"]) for event in seen.results] == [
        ("started", "script"),
        ("finished", "script"),
    ]
    assert seen.results[-1]["exit_code"] == 4


async def test_exit_code_is_a_field(agent: AgentProcess, a_job: Build) -> None:
    for code in (0, 1, 3, 255):
        seen = await run_job(agent, a_job(str(code), script=f"exit {code}"))
        assert seen.check().exit_code == code


async def test_message_ends_in_exit_status_n(agent: AgentProcess, tmp_path: Path) -> None:
    """The runner reads the text after the first `exit status`, which must be a number."""
    async with step_runner(agent) as stub:
        await stub.Run(run_request(tmp_path, "echo 'exit status 1 and more'; exit 12"))
        await read_chunks(stub, "7")
        message = (await get_status(stub)).message
        assert int(message.split("exit status", 1)[1], 0) == 12


async def test_unknown_id_is_not_found(agent: AgentProcess) -> None:
    async with step_runner(agent) as stub:
        for call in (
            stub.Status(pb.StatusRequest(id="x")),
            stub.Cancel(pb.CancelRequest(id="x")),
            read_chunks(stub, "x"),
        ):
            with pytest.raises(GRPCError) as caught:
                await call
            assert (caught.value.status, caught.value.message) == (Status.NOT_FOUND, 'no job with id "x"')
        await stub.Close(pb.CloseRequest(id="x"))


async def test_first_log_chunk_has_28_bytes(agent: AgentProcess, tmp_path: Path) -> None:
    """The runner decides by the first chunk whether lines have time stamps: it needs a whole header there."""
    async with step_runner(agent) as stub:
        await stub.Run(run_request(tmp_path, "printf a; sleep 0.7; echo b"))
        first = (await read_chunks(stub, "7"))[0]
    assert len(first) >= len(HEADER)
    for place, character in enumerate(HEADER.decode()):
        if not character.isalpha() or character in "TZ":
            assert chr(first[place]) == character
        else:
            assert chr(first[place]).isdigit()


async def test_stamped_logs_are_masked(agent: AgentProcess, tmp_path: Path) -> None:
    """The runner forwards lines with time stamps unchanged."""
    job = pb.Job(variables=[pb.Variable(key="SECRET", value="s3cret-value", masked=True)])
    async with step_runner(agent) as stub:
        script = "printf s3cret-; sleep 0.7; echo value; echo $SECRET glpat-abcdefghij; exit 1"
        await stub.Run(run_request(tmp_path, script, job=job))
        log = b"".join(await read_chunks(stub, "7"))
        message = (await get_status(stub)).message
    assert b"value" not in log
    assert Seen(log=log).lines == [b"[MASKED]", b"[MASKED] glpat-[MASKED]"]
    assert "s3cret" not in message


async def test_concurrent_runs_of_one_id_execute_once(agent: AgentProcess, tmp_path: Path) -> None:
    async with step_runner(agent) as stub:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(20):
                tasks.create_task(stub.Run(run_request(tmp_path, "echo run >>runs")))
        await read_chunks(stub, "7")
    assert (tmp_path / "runs").read_text() == "run\n"


@pytest.mark.parametrize(
    "job_id", ["../../../etc", "/etc/passwd", "..", ".", "a/b", "\n\t", "\x00", "é" * 200, "-rf *"]
)
async def test_id_cannot_leave_the_temp_directory(agent: AgentProcess, tmp_path: Path, job_id: str) -> None:
    before = {path.name for path in tmp_path.iterdir()}
    async with step_runner(agent) as stub:
        await stub.Run(run_request(tmp_path / "w", "echo ok", job_id))
        assert Seen(log=b"".join(await read_chunks(stub, job_id))).lines == [b"ok"]
        (folder,) = (agent.data / "jobs").iterdir()
        assert folder.name.isalnum()
        await stub.Close(pb.CloseRequest(id=job_id))
    assert not list((agent.data / "jobs").iterdir())
    assert {path.name for path in tmp_path.iterdir()} - {"w"} == before


@pytest.mark.parametrize("key", ["../escape", "a/b", "..", "", "x y", "/etc/passwd"])
async def test_file_variable_key_cannot_leave_its_directory(agent: AgentProcess, tmp_path: Path, key: str) -> None:
    job = pb.Job(variables=[pb.Variable(key=key, value="value", file=True)])
    async with step_runner(agent) as stub:
        with pytest.raises(GRPCError) as caught:
            await stub.Run(run_request(tmp_path, "echo", job=job))
    assert caught.value.status is Status.INVALID_ARGUMENT
    assert not list(tmp_path.rglob("escape"))


async def test_one_job_cannot_read_or_cancel_another(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    """The agent serves only its own user, and refuses processes of a job, whatever user they have."""
    # A process of a job with the agent's own user: it can connect, but every call is refused.
    attempt = tmp_path / "attempt.py"
    attempt.write_text(ATTEMPT_CALLS)
    async with agent.client() as client:
        await client.start(a_job("victim", script="echo private; sleep 60"))
        script = f"{sys.executable} -W ignore {attempt} {agent.data / 'agent.sock'}"
        thief = await run_job(agent, a_job("thief", script=[script], work_dir=str(tmp_path)))
        assert thief.check().status == "success", thief.lines
        assert json.loads(thief.lines[-1]) == dict.fromkeys(("list", "read", "cancel", "close"), "PERMISSION_DENIED")
        # A connection from a process of the job that has ended since.
        hand_over = await run_job(agent, a_job("hand-over", script=[f"{script} --hand-over"], work_dir=str(tmp_path)))
        assert json.loads(hand_over.lines[-1]) == json.loads(thief.lines[-1])
        # A process that has left the job's session and has no parent in the job.
        detached_script = (
            f"(setsid sh -c 'sleep 0.3; {script} >away 2>&1; touch gone' &); while [ ! -e gone ]; do sleep 0.05; done"
        )
        await run_job(agent, a_job("fugitive", script=[detached_script], work_dir=str(tmp_path)))
        assert json.loads((tmp_path / "away").read_text()) == json.loads(thief.lines[-1])
        assert "victim" in (await client.hello()).jobs
        # No variable of the job's environment contains the agent's socket.
        env_job = await run_job(agent, a_job("env", script="env"))
        assert not [line for line in env_job.lines if b"agent.sock" in line or b"STEP_RUNNER" in line]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can use another user")
async def test_another_user_cannot_reach_the_agent(a_job: Build) -> None:
    """For jobs that run as another user: folder and socket are closed; with an open socket, calls are refused."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        base.chmod(0o755)
        async with AgentProcess(base / "data") as agent:
            await agent.start("--socket", str(base / "s"))
            await run_job(agent, a_job("victim", script="echo private", work_dir=str(base / "w")))
            assert await exit_code_as_nobody(f"import os; os.listdir({str(agent.data)!r})") != 0
            assert await exit_code_as_nobody(f"{CONNECT}({str(base / 's')!r})") != 0
            (base / "s").chmod(0o666)
            assert await exit_code_as_nobody(f"{CONNECT}({str(base / 's')!r})") == 0
            order = Order(command=[*NOBODY, FORWARD_STDIO, str(base / "s")], key="k", results=base / "r", steps="")
            channel = CommandChannel(order)
            for call in (
                AgentStub(channel).Hello(agent_pb2.HelloRequest()),
                read_chunks(StepRunnerStub(channel), "victim"),
            ):
                with pytest.raises(GRPCError) as caught:
                    await call
                assert caught.value.status is Status.PERMISSION_DENIED
            await channel.end()
            # Calls over a connection from a process that has ended are refused, too.
            order = Order(
                command=["/usr/bin/python3", "-c", HAND_OVER_CONNECTION + FORWARD_STDIO, str(base / "s")],
                key="k",
                results=base / "r",
                steps="",
            )
            channel = CommandChannel(order)
            with pytest.raises(GRPCError, match="its own user only"):
                await AgentStub(channel).Hello(agent_pb2.HelloRequest())
            await channel.end()


NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c")
CONNECT = "import socket; socket.socket(socket.AF_UNIX).connect"
HAND_OVER_CONNECTION = """
import os, socket, sys
ours, theirs = socket.socketpair()
if os.fork() == 0:
    os.setresuid(65534, 65534, 65534)
    made = socket.socket(socket.AF_UNIX)
    made.connect(sys.argv[1])
    socket.send_fds(theirs, [b"!"], [made.fileno()])
    os._exit(0)
os.wait()
s = socket.socket(fileno=socket.recv_fds(ours, 1, 1)[1][0])
"""
FORWARD_STDIO = """
import os, socket, sys, threading
if "s" not in globals():
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
def up():
    while data := os.read(0, 65536):
        s.sendall(data)
    os._exit(0)
threading.Thread(target=up, daemon=True).start()
while data := s.recv(65536):
    os.write(1, data)
"""


async def exit_code_as_nobody(text: str) -> int:
    process = await asyncio.create_subprocess_exec(*NOBODY, text, stderr=asyncio.subprocess.DEVNULL)
    return await process.wait()


ATTEMPT_CALLS = """
import asyncio, json, os, socket, sys
from grpclib import GRPCError
from grpclib.client import Channel
from remuda.wire.proto import step_runner_pb2 as pb
from remuda.wire.proto.step_runner_grpc import StepRunnerStub

async def read(stub):
    async with stub.FollowLogs.open() as stream:
        await stream.send_message(pb.FollowLogsRequest(id="victim"), end=True)
        async for answer in stream:
            print(answer.data)
            return

class HandedOverChannel(Channel):
    async def _create_connection(self):
        ours, theirs = socket.socketpair()
        child = os.fork()
        if child == 0:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self._path)
            socket.send_fds(theirs, [b"!"], [connection.fileno()])
            os._exit(0)
        os.waitpid(child, 0)
        made = socket.socket(fileno=socket.recv_fds(ours, 1, 1)[1][0])
        loop = asyncio.get_running_loop()
        return (await loop.create_unix_connection(self._protocol_factory, sock=made))[1]

async def main():
    answers = {}
    async with (HandedOverChannel if "--hand-over" in sys.argv else Channel)(path=sys.argv[1]) as channel:
        stub = StepRunnerStub(channel)
        for name, call in (
            ("list", stub.Status(pb.StatusRequest())),
            ("read", read(stub)),
            ("cancel", stub.Cancel(pb.CancelRequest(id="victim"))),
            ("close", stub.Close(pb.CloseRequest(id="victim"))),
        ):
            try:
                await call
                answers[name] = "OK"
            except GRPCError as error:
                answers[name] = error.status.name
    print(json.dumps(answers))

asyncio.run(main())
"""


async def test_agent_restart_keeps_jobs_and_logs(agent: AgentProcess, tmp_path: Path) -> None:
    async with step_runner(agent) as stub:
        await stub.Run(run_request(tmp_path, "echo before; while [ ! -e go ]; do sleep 0.05; done; echo after; exit 5"))
        await until((tmp_path / "data" / "agent.sock").exists)
    await agent.stop()
    await agent.start()
    await agent.kill()
    await agent.start()
    (tmp_path / "go").touch()
    async with step_runner(agent) as stub:
        log = b"".join(await read_chunks(stub, "7"))
        assert Seen(log=log).lines == [b"before", b"after"]
        assert (await get_status(stub)).message.endswith("exit status 5")


async def test_serve_replaces_a_stale_socket(agent: AgentProcess, tmp_path: Path) -> None:
    await agent.kill()
    assert (agent.data / "agent.sock").is_socket()
    await agent.start()
    async with agent.client() as client:
        assert (await client.hello()).pid == agent.pid
    # A file that is not a socket is not replaced.
    (tmp_path / "thesis").write_text("text")
    await agent.stop()
    with pytest.raises(RuntimeError, match="ended with 1"):
        await agent.start("--socket", str(tmp_path / "thesis"))
    assert (tmp_path / "thesis").read_text() == "text"


async def test_client_reconnects_and_resumes(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    """After every chunk the client closes its connection, and continues from its own offset."""
    job = a_job(script=f"for n in $(seq 1 40); do echo line $n; sleep 0.02; done; touch {tmp_path}/done")
    seen = Seen()
    async with agent.client() as client:
        await client.start(job)
    while not (tmp_path / "done").exists():
        async with agent.client() as client, client.watch() as watch:
            await watch.subscribe(job.id, log_offset=len(seen.log))
            async for event in watch:
                if isinstance(event, LogChunk):
                    assert event.offset == len(seen.log)
                    seen.log += event.data
                    break
    async with agent.client() as client:
        seen = await follow(client, job.id, seen)
    seen.check()
    assert seen.lines == [f"line {n}".encode() for n in range(1, 41)]


async def test_long_socket_path_falls_back(tmp_path: Path) -> None:
    """If the path in `--socket` is too long, the agent uses a shorter one."""
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start("--socket", str(tmp_path / ("s" * 120)))
        socket = socket_of(agent.data)
        assert socket is not None
        assert len(os.fsencode(socket)) <= 100
        async with agent.client() as client:
            assert (await client.hello()).protocol == 1


async def test_payload_above_4_mib_is_handled(agent: AgentProcess, tmp_path: Path) -> None:
    async with step_runner(agent) as stub:
        await stub.Run(run_request(tmp_path, f": {'x' * 6_000_000}\necho ok"))
        assert Seen(log=b"".join(await read_chunks(stub, "7"))).lines == [b"ok"]


@pytest.mark.parametrize("code", [1, 69, 75, 111, 125, 126, 127, 128, 137, 143, 255])
async def test_job_cannot_forge_a_system_failure(agent: AgentProcess, a_job: Build, code: int) -> None:
    """Exit codes, output and files in the job's folder count as the script's failure."""
    script = f"echo 'ERROR: runner_system_failure'; echo 0 >step-0.exit; echo end >end; exit {code}"
    end = (await run_job(agent, a_job(script=script))).check()
    assert (end.status, end.reason, end.exit_code) == ("failure", "script_failure", code)


@pytest.mark.parametrize("script", ["kill -9 $PPID", 'rm -f "$(dirname "$(dirname "$REMUDA_OUTPUTS")")"/step-*.pid'])
async def test_job_cannot_forge_a_system_failure_by_its_shim(agent: AgentProcess, a_job: Build, script: str) -> None:
    seen = await run_job(agent, a_job(script=script))
    assert (seen.check().status, seen.check().reason) == ("failure", "script_failure")


async def test_a_too_long_command_is_a_user_error(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/func.yml").write_text(f'spec:\n---\nexec: {{command: [echo, "{"x" * 200_000}"]}}\n')
    seen = await run_job(agent, a_job(steps=steps_text({"name": "it", "step": "."})))
    assert seen.check().reason == "script_failure"
    assert "Argument list too long" in seen.check().message


async def test_a_client_of_the_agents_user_is_served_while_a_job_runs(agent: AgentProcess, a_job: Build) -> None:
    async with agent.client() as client:
        await client.start(a_job(script="sleep 60"))
        assert (await client.usage()).jobs.keys() == {"1"}
        with pytest.raises(AgentRefusedError):
            await client.start(a_job("", script="echo"))
