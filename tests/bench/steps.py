"""Measures one agent: steps a second, throughput of logs, and memory of a running job.

Steps that do nothing are compared with processes that plain asyncio starts and reaps; logs, with 20 secrets to mask,
with raw bytes that the same gRPC library streams between processes. `python -m tests.bench.steps`.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from grpclib.client import Channel
from grpclib.server import Server, Stream
from tests.bench.http_calls import memory_of, print_figure

from remuda.lib.masking import TOKEN_PREFIXES
from remuda.testing.agent_process import AgentProcess, follow, steps_text
from remuda.wire.agent_client import CHANNEL_CONFIG, JobEnded, JobStart, JobVariable, LogChunk
from remuda.wire.proto.step_runner_grpc import StepRunnerBase, StepRunnerStub
from remuda.wire.proto.step_runner_pb2 import FollowLogsRequest, FollowLogsResponse

AT_A_TIME = 20
STEPS_PER_JOB = 50
LOG_BYTES = 64 * 1024 * 1024
CHUNK = 64 * 1024
SECRETS = 20
HELD = 1000
LINE = "the build goes on and on, line after line after line, and says what it does to whoever may read it\n"

Show = Callable[..., None]


async def bare_spawns(count: int) -> float:
    """Processes a second that plain asyncio starts and reaps, as many at a time as there are jobs."""
    gate = asyncio.Semaphore(AT_A_TIME)

    async def spawn() -> None:
        async with gate:
            process = await asyncio.create_subprocess_exec("/bin/true")
            await process.wait()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(spawn())
    return count / (time.perf_counter() - began)


def processor_ms(pid: int) -> tuple[float, float]:
    """Processor time of a process, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    times = [int(ticks) * 1000 / os.sysconf("SC_CLK_TCK") for ticks in fields[11:15]]
    return times[0] + times[1], times[2] + times[3]


async def noop_steps(agent: AgentProcess, folder: Path, round_number: int) -> float:
    """Steps a second of jobs with many steps, each of which is a command that does nothing."""
    package = folder / "noop"
    package.mkdir(exist_ok=True)
    (package / "func.yml").write_text('spec:\n---\nexec: {command: ["/bin/true"]}\n')
    entries = [{"name": f"s{number}", "step": "./noop"} for number in range(STEPS_PER_JOB)]
    async with agent.client() as client:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(AT_A_TIME):
                job = JobStart(
                    id=f"noop-{round_number}-{number}", work_dir=str(folder), steps=steps_text(*entries, extended=False)
                )
                await client.start(job)
                group.create_task(follow(client, job.id))
        took = time.perf_counter() - began
        for number in range(AT_A_TIME):
            await client.close_job(f"noop-{round_number}-{number}")
    return AT_A_TIME * STEPS_PER_JOB / took


async def log_rate(agent: AgentProcess, folder: Path, round_number: int) -> float:
    """Bytes a second of a step's output that reach a client."""
    text = folder / "text"
    if not text.exists():
        text.write_text(LINE * (LOG_BYTES // len(LINE)))
    masked = [
        JobVariable(key=f"SECRET_{n}", value=f"secret-{n:02}-{n * 7919:08x}", masked=True) for n in range(SECRETS)
    ]
    job = JobStart(
        id=f"log-{round_number}",
        work_dir=str(folder),
        steps=steps_text({"name": "print", "script": f"exec cat {text}"}),
        variables=masked,
        mask_prefixes=TOKEN_PREFIXES,
    )
    received = 0
    async with agent.client() as client:
        await client.start(job)
        began = time.perf_counter()
        async with client.watch() as watch:
            await watch.subscribe(job.id)
            async for event in watch:
                match event:
                    case LogChunk(data=data):
                        received += len(data)
                    case JobEnded():
                        break
        took = time.perf_counter() - began
        await client.close_job(job.id)
    assert received > text.stat().st_size
    return text.stat().st_size / took


class _Source(StepRunnerBase):
    """A service that streams constant bytes."""

    async def FollowLogs(self, stream: Stream[FollowLogsRequest, FollowLogsResponse]) -> None:  # noqa: N802
        await stream.recv_message()
        data = (LINE * (CHUNK // len(LINE))).encode()
        for _ in range(LOG_BYTES // len(data)):
            await stream.send_message(FollowLogsResponse(data=data))

    Run = Status = Close = Cancel = FollowLogs  # type: ignore[assignment]


async def _serve_source(path: str) -> None:
    server = Server([_Source()])
    await server.start(path=path)
    print("ready", flush=True)
    await server.wait_closed()


async def raw_stream(folder: Path) -> float:
    """Bytes a second that the library streams from another process to this one."""
    path = folder / "source.sock"
    source = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.steps", "--source", str(path), stdout=asyncio.subprocess.PIPE
    )
    assert source.stdout is not None
    await source.stdout.readline()
    received = 0
    channel = Channel(path=str(path), config=CHANNEL_CONFIG)
    began = time.perf_counter()
    async with StepRunnerStub(channel).FollowLogs.open() as call:
        await call.send_message(FollowLogsRequest(id="x"), end=True)
        async for message in call:
            received += len(message.data)
    took = time.perf_counter() - began
    channel.close()
    source.terminate()
    await source.wait()
    path.unlink(missing_ok=True)
    return received / took


async def held_jobs(agent: AgentProcess, folder: Path) -> float:
    """Bytes of the agent's memory per sleeping job."""
    entry = {"name": "sleep", "script": "exec sleep 600"}
    async with agent.client() as client:
        before = memory_of(agent.pid)
        for number in range(HELD):
            await client.start(JobStart(id=f"held-{number}", work_dir=str(folder), steps=steps_text(entry)))
        running = f"{HELD} sleeping jobs"
        deadline = time.monotonic() + 120
        while sum(path.exists() for path in agent.data.glob("jobs/*/step-*.pid")) < HELD:
            assert time.monotonic() < deadline, running
            await asyncio.sleep(0.2)
        grown = memory_of(agent.pid) - before
        for number in range(HELD):
            await client.close_job(f"held-{number}")
    return grown / HELD


async def _steps(folder: Path, show: Show, rounds: int) -> None:
    async with AgentProcess(folder / "agent") as agent:
        await agent.start()
        for number in range(1, rounds + 1):
            marks = [processor_ms(os.getpid())]
            spawns = await bare_spawns(1000)
            marks += [processor_ms(os.getpid()), processor_ms(agent.pid)]
            steps = await noop_steps(agent, folder, number)
            marks.append(processor_ms(agent.pid))
            bare = sum(marks[1]) - sum(marks[0])
            own, below = (after - before for after, before in zip(marks[3], marks[2], strict=True))
            stream = await raw_stream(folder)
            log = await log_rate(agent, folder, number)
            show(f"round {number}: bare spawns", f"{spawns:.0f}/s", f"{AT_A_TIME} at a time")
            show("  no-op steps", f"{steps:.0f}/s", f"{AT_A_TIME} jobs of {STEPS_PER_JOB}")
            show("    of the bare spawns", f"{steps / spawns:.2f}")
            count = AT_A_TIME * STEPS_PER_JOB
            show(
                "    processor time of a step",
                f"{(own + below) / count:.2f} ms",
                f"the agent's own {own / count:.2f} ms",
            )
            show("    of a bare spawn", f"{bare / 1000:.2f} ms", f"a step takes {(own + below) / bare:.2f} of it")
            show("  raw stream of the gRPC library", f"{stream / 1e6:.0f} MB/s")
            show(f"  a step's log, {SECRETS} secrets masked", f"{log / 1e6:.0f} MB/s")
            show("    of the raw stream", f"{log / stream:.2f}")
        show(f"a held job, {HELD} of them", f"{await held_jobs(agent, folder) / 1024:.1f} KiB", "memory of the agent")


def steps(folder: Path, show: Show, *, rounds: int = 3) -> None:
    """Print the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(_steps(folder, show, rounds))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--source"]:
        asyncio.run(_serve_source(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory(prefix="remuda-bench-") as name:
            print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
            steps(Path(name), print_figure)
