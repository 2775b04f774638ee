"""The agent as a server: both gRPC services, many jobs, resuming of logs and results, its socket and data folder."""

import asyncio
import os
import resource
import stat
from pathlib import Path

import pytest
from grpclib import GRPCError
from grpclib.client import Channel
from grpclib.const import Status
from tests.support.step_jobs import Build
from tests.support.step_runner_client import step_runner

from remuda.testing.agent_process import PROGRAM, AgentProcess, Seen, follow, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import (
    AgentClient,
    AgentUnavailableError,
    JobEnded,
    LogChunk,
    StepResultEvent,
    UnknownJob,
    Watch,
    socket_of,
    unix_channel,
)
from remuda.wire.proto import step_runner_pb2 as pb
from remuda.wire.proto.step_runner_grpc import StepRunnerStub

STEPS = steps_text({"name": "hello", "script": "echo hello; exit 5"}, extended=False)


async def read_log(stub: StepRunnerStub, job_id: str, offset: int) -> bytes:
    async with stub.FollowLogs.open() as stream:
        await stream.send_message(pb.FollowLogsRequest(id=job_id, offset=offset), end=True)
        return b"".join([answer.data async for answer in stream])


async def test_step_runner_service(agent: AgentProcess, tmp_path: Path) -> None:
    request = pb.RunRequest(
        id="7",
        work_dir=str(tmp_path / "elsewhere"),
        job=pb.Job(build_dir=str(tmp_path / "build"), variables=[pb.Variable(key="T", value="glcbt-x", masked=True)]),
        steps=steps_text({"name": "hello", "script": "pwd; echo $T glpat-abc; exit 5"}, extended=False),
    )
    async with step_runner(agent) as stub:
        await stub.Run(request)
        await stub.Run(pb.RunRequest(id="7", steps="not even parsed"))
        log = await read_log(stub, "7", 0)
        seen = Seen(log=log)
        assert seen.lines == [str(tmp_path / "build").encode(), b"[MASKED] glpat-[MASKED]"]
        (status,) = (await stub.Status(pb.StatusRequest(id="7"))).jobs
        assert (status.status, status.message) == (pb.StepResult.failure, 'step "hello": exit status 5')
        assert status.start_time.seconds <= status.end_time.seconds
        assert len((await stub.Status(pb.StatusRequest())).jobs) == 1
        await stub.Close(pb.CloseRequest(id="7"))
        await stub.Close(pb.CloseRequest(id="7"))
        assert len((await stub.Status(pb.StatusRequest())).jobs) == 0


async def test_step_runner_cancel(agent: AgentProcess, tmp_path: Path) -> None:
    steps = steps_text({"name": "slow", "script": "touch up; sleep 60"}, extended=False)
    async with step_runner(agent) as stub:
        await stub.Run(pb.RunRequest(id="7", work_dir=str(tmp_path), steps=steps))
        await until((tmp_path / "up").exists)
        assert (await stub.Status(pb.StatusRequest(id="7"))).jobs[0].status == pb.StepResult.running
        await stub.Cancel(pb.CancelRequest(id="7"))
        await read_log(stub, "7", 0)
        assert (await stub.Status(pb.StatusRequest(id="7"))).jobs[0].status == pb.StepResult.cancelled


async def test_step_runner_errors_have_codes_and_hold_no_secrets(agent: AgentProcess) -> None:
    async with step_runner(agent) as stub:
        for call in (
            stub.Status(pb.StatusRequest(id="x")),
            stub.Cancel(pb.CancelRequest(id="x")),
            read_log(stub, "x", 0),
        ):
            with pytest.raises(GRPCError) as caught:
                await call
            assert (caught.value.status, caught.value.message) == (Status.NOT_FOUND, 'no job with id "x"')
        secret = pb.Job(variables=[pb.Variable(key="S", value="s3cret", masked=True)])
        with pytest.raises(GRPCError) as caught:
            await stub.Run(pb.RunRequest(id="y", job=secret, steps="{}\n---\ns3cret: 1"))
        assert caught.value.status is Status.INVALID_ARGUMENT
        assert (caught.value.message or "").startswith("loading step: reading steps: ")
        assert "s3cret" not in (caught.value.message or "")
        with pytest.raises(GRPCError) as caught:
            await stub.Status(pb.StatusRequest(id="y"))
        assert caught.value.status is Status.NOT_FOUND
        await stub.Run(pb.RunRequest(id="z", steps=STEPS))
        with pytest.raises(GRPCError) as caught:
            await read_log(stub, "z", -1)
        assert caught.value.status is Status.INVALID_ARGUMENT


async def test_resume_at_any_byte_and_result(agent: AgentProcess, a_job: Build) -> None:
    whole = await run_job(agent, a_job(script="seq 1 20"))
    async with agent.client() as client, client.watch() as watch:
        events = aiter(watch)
        for offset in range(0, len(whole.log) + 1, 7):
            for seq in (1, 2, 3):
                await watch.subscribe("1", log_offset=offset, result_seq=seq)
                log, results = b"", []
                while not isinstance(event := await anext(events), JobEnded):
                    if isinstance(event, LogChunk):
                        assert event.offset == offset + len(log)
                        log += event.data
                    elif isinstance(event, StepResultEvent):
                        results.append(event.seq)
                assert log == whole.log[offset:]
                assert results == list(range(seq, 4))


async def test_watch_unsubscribe_confirm_and_unknown(agent: AgentProcess, a_job: Build) -> None:
    async with agent.client() as client, client.watch() as watch:
        events = aiter(watch)
        await watch.subscribe("nobody")
        assert await anext(events) == UnknownJob(job_id="nobody")
        await client.start(a_job(script="sleep 60"))
        await watch.subscribe("1")
        assert isinstance(await anext(events), StepResultEvent)
        await watch.confirm("1", log_offset=0, result_seq=2)
        await watch.unsubscribe("1")
        await client.close_job("1")
        await watch.subscribe("1")
        while not isinstance(event := await anext(events), UnknownJob):
            pass
        assert event.job_id == "1"


async def test_a_watcher_is_notified_when_its_job_is_closed(agent: AgentProcess, a_job: Build) -> None:
    async with agent.client() as client:
        await client.start(a_job(script="sleep 60"))
        async with client.watch() as watch:
            await watch.subscribe("1")
            await client.close_job("1")
            async for event in watch:
                if isinstance(event, UnknownJob):
                    break


async def test_a_chatty_job_does_not_hide_a_quiet_one(agent: AgentProcess, a_job: Build) -> None:
    loud = a_job("loud", script="head -c 10000000 /dev/zero | tr '\\0' x | fold -w 1000")
    await run_job(agent, loud)
    await run_job(agent, a_job("quiet", script="echo hush"))
    async with agent.client() as client, client.watch() as watch:
        await watch.subscribe("loud")
        await watch.subscribe("quiet")
        received = 0
        async for event in watch:
            if isinstance(event, LogChunk) and event.job_id == "loud":
                received += len(event.data)
                assert len(event.data) <= 65536
            if isinstance(event, JobEnded) and event.job_id == "quiet":
                break
        assert received < 3_000_000


async def test_a_client_that_does_not_read_costs_no_memory(agent: AgentProcess, a_job: Build) -> None:
    def resident_bytes() -> int:
        return int(Path(f"/proc/{agent.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    await run_job(agent, a_job(script="head -c 12000000 /dev/zero | tr '\\0' x | fold -w 1000"))
    before = resident_bytes()
    channel = unix_channel(agent.data / "agent.sock")
    async with AgentClient(channel) as client, client.watch() as watch:
        await watch.subscribe("1")
        await until(lambda: free_window(channel, watch) == 0)
        for _ in range(20):
            await watch.subscribe("1")
            # Other calls get through while the stream is full.
            assert (await client.hello()).jobs == {"1"}
        assert resident_bytes() - before < 8_000_000


def free_window(channel: Channel, watch: Watch) -> int:
    """How many bytes the agent may send before the client reads. Only the connection's private state has this."""
    protocol, stream = channel._protocol, watch._stream._stream
    assert protocol is not None
    assert stream.id is not None
    return protocol.connection._connection.remote_flow_control_window(stream.id)


async def test_concurrent_starts_of_one_id_execute_once(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    async with agent.client() as client:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(20):
                tasks.create_task(client.start(a_job(script="echo run >>runs")))
        await follow(client, "1")
    assert (tmp_path / "work/runs").read_text() == "run\n"


@pytest.mark.long
async def test_200_jobs_at_once(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    script = f"echo run >>runs-$NUMBER; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; seq 1 50; echo $NUMBER"
    ids = [f"job-{number}" for number in range(200)]
    async with agent.client() as client, client.watch() as watch:
        seen = {job_id: Seen() for job_id in ids}
        for job_id in ids:
            await client.start(a_job(job_id, script=script, env={"NUMBER": job_id}))
            await watch.subscribe(job_id)
        work = tmp_path / "work"
        await until(lambda: len(list(work.glob("runs-*"))) == 200, seconds=60)
        (tmp_path / "go").touch()
        running = set(ids)
        async for event in watch:
            if isinstance(event, LogChunk):
                assert event.offset == len(seen[event.job_id].log)
                seen[event.job_id].log += event.data
            elif isinstance(event, JobEnded):
                seen[event.job_id].end = event
                running.remove(event.job_id)
                if not running:
                    break
    for job_id in ids:
        assert seen[job_id].lines == [*(str(n).encode() for n in range(1, 51)), job_id.encode()]
        end = seen[job_id].end
        assert end is not None
        assert end.status == "success"
        assert (work / f"runs-{job_id}").read_text() == "run\n"


async def test_folder_and_socket_are_private(agent: AgentProcess) -> None:
    socket = socket_of(agent.data)
    assert socket == agent.data / "agent.sock"
    assert stat.S_IMODE(agent.data.stat().st_mode) == 0o700
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600


async def test_second_agent_is_refused(agent: AgentProcess) -> None:
    second = await asyncio.create_subprocess_exec(
        *PROGRAM, "serve", "--data", str(agent.data), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await second.communicate()
    assert second.returncode == 75
    assert f"another agent (process {agent.pid}) serves".encode() in errors


async def test_long_socket_path_falls_back(tmp_path: Path, a_job: Build) -> None:
    async with AgentProcess(tmp_path / ("d" * 120)) as agent:
        await agent.start()
        socket = socket_of(agent.data)
        assert socket is not None
        assert len(os.fsencode(socket)) <= 100
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        await agent.kill()
        await agent.start()
        assert not socket.parent.exists()
        assert (await run_job(agent, a_job(script="echo ok"))).lines == [b"ok"]
        last = socket_of(agent.data)
        await agent.stop()
        assert last is not None
        assert not last.parent.exists()
        assert socket_of(agent.data) is None


async def test_long_temporary_folder_leaves_socket_path_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ("t" * 120)).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("t" * 120)))
    async with AgentProcess(tmp_path / ("d" * 120)) as agent:
        await agent.start()
        socket = socket_of(agent.data)
        assert socket is not None
        assert len(os.fsencode(socket)) <= 100
        await agent.stop()
        assert not socket.parent.exists()


async def test_idle_agent_exits_and_a_busy_one_does_not(tmp_path: Path, a_job: Build) -> None:
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start("--idle-exit", "0.5")
        async with agent.client() as client:
            await client.start(a_job(script=f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"))
        assert not await exits_within(agent, 1.2)
        (tmp_path / "go").touch()
        assert await agent.wait() == 0


async def test_agent_whose_folder_is_gone_ends_though_somebody_is_connected(tmp_path: Path, a_job: Build) -> None:
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        async with agent.client() as client:
            script = f"touch {tmp_path}/up; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
            await client.start(a_job(script=script))
            await until((tmp_path / "up").exists)
            (tmp_path / "data").rename(tmp_path / "away")  # a rename is atomic; the agent goes on writing
            with pytest.raises(AgentUnavailableError, match="cannot use its data folder"):
                await client.start(a_job("2", script="true"))
            (tmp_path / "go").touch()  # the agent stays as long as a job runs
            assert await agent.wait() == 0


async def exits_within(agent: AgentProcess, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await agent.wait()
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "text"), [("format", b"has format 2, this agent knows 1"), ("thesis.tex", b"is not an agent's (it has")]
)
async def test_newer_or_foreign_folder_is_refused(tmp_path: Path, name: str, text: bytes) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    (data / name).write_text("2\n")
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "serve", "--data", str(data), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert text in errors
    assert b"Traceback" not in errors
    if name != "format":
        assert [path.name for path in data.iterdir()] == [name]
        assert stat.S_IMODE(data.stat().st_mode) == 0o755


async def test_limit_of_descriptors_is_raised_for_the_agent(agent: AgentProcess) -> None:
    soft, hard = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
    assert soft == hard
