"""A real agent in a separate process, for tests that observe, kill and restart it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from remuda.wire.agent_client import (
    AgentClient,
    AgentUnavailableError,
    JobEnded,
    JobStart,
    LogChunk,
    StepResultEvent,
    UnknownJob,
    channel_of,
)

READY = b"step-runner is listening on socket "
PROGRAM = (sys.executable, "-m", "remuda.steps")
HEADER_BYTES = 32


@dataclass(slots=True)
class Seen:
    """Everything that a client has received about one job: its log, its step results, and how it ended."""

    log: bytes = b""
    results: list[dict[str, Any]] = field(default_factory=list)
    """Results of the job's steps."""
    used: list[dict[str, Any]] = field(default_factory=list)
    """Results that have the resource usage of the job."""
    end: JobEnded | None = None

    @property
    def lines(self) -> list[bytes]:
        return plain_lines(self.log, b"01O")

    @property
    def agent_lines(self) -> list[bytes]:
        """The log lines that the agent itself wrote, not the job's commands."""
        return plain_lines(self.log, b"00O")

    @property
    def statuses(self) -> dict[str, str]:
        return {event["name"]: event["status"] for event in self.results if event["event"] == "finished"}

    def result_of(self, path: str) -> dict[str, Any]:
        """The `finished` event of the step at `path`. Fails if there is not exactly one, such as after a retry."""
        [event] = [event for event in self.results if event["event"] == "finished" and event["path"] == path]
        return event

    @property
    def next_seq(self) -> int:
        return len(self.results) + len(self.used) + 1

    def check(self) -> JobEnded:
        """Assert that the job has ended, with complete log and results and no duplicates."""
        assert self.end is not None
        numbers = sorted(event["seq"] for event in (*self.results, *self.used))
        assert numbers == list(range(1, self.end.results + 1))
        assert len(self.log) == self.end.log_bytes
        assert self.end.log_checksum == f"crc32:{crc32(self.log):08x}"
        return self.end


class AgentProcess:
    """An agent process with a data folder, as an async context manager. Entering it starts nothing; call `start`."""

    def __init__(self, data: Path, program: Sequence[str] = PROGRAM) -> None:
        self.data = data
        self._program = program
        self._process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()

    async def __aenter__(self) -> "AgentProcess":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Start the agent again if it is dead, close every job, so that no process is left, and stop the agent."""
        if self._process is None or self._process.returncode is not None:
            await self.start()
        async with self.client() as client:
            for job_id in (await client.hello()).jobs:
                await client.close_job(job_id)
        await self.stop()

    async def start(self, *options: str, kill_point: str = "", env: dict[str, str] | None = None) -> None:
        """Start the agent and wait until it is ready. `options` are for its command line. At `kill_point`, a named
        place in its code, the process kills itself once."""
        variables = {key: value for key, value in os.environ.items() if not key.startswith("REMUDA_KILL")}
        if kill_point:
            mark = self.data.with_name(f"{self.data.name}.{kill_point}")
            variables |= {"REMUDA_KILL_POINT": kill_point, "REMUDA_KILL_MARK": str(mark)}
        self._process = await asyncio.create_subprocess_exec(
            *self._program,
            "serve",
            "--data",
            str(self.data),
            *options,
            stderr=asyncio.subprocess.PIPE,
            env=variables | (env or {}),
        )
        assert self._process.stderr is not None
        line = b""
        async with asyncio.timeout(20):
            while not line.startswith(READY):
                line = await self._process.stderr.readline()
                if not line:
                    raise RuntimeError(f"the agent ended with {await self._process.wait()} before it was ready")
        self.ready.set()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def client(self) -> AgentClient:
        channel = channel_of(self.data)
        assert channel is not None
        return AgentClient(channel)

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        assert await self._end(signal.SIGTERM) == 0

    async def wait(self) -> int:
        assert self._process is not None
        async with asyncio.timeout(20):
            return await self._process.wait()

    async def _end(self, number: int) -> int:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self.wait()


async def follow(client: AgentClient, job_id: str, seen: Seen | None = None) -> Seen:
    """Read log and results of a job until it ends. If `seen` is given, continues after what it has, and adds to it."""
    seen = seen or Seen()
    async with client.watch() as watch:
        await watch.subscribe(job_id, log_offset=len(seen.log), result_seq=seen.next_seq)
        async for event in watch:
            match event:
                case LogChunk(offset=offset, data=data):
                    assert offset == len(seen.log)
                    seen.log += data
                case StepResultEvent(json=text):
                    result = json.loads(text)
                    (seen.used if result["event"] == "used" else seen.results).append(result)
                case JobEnded():
                    seen.end = event
                    break
                case UnknownJob():
                    raise LookupError(job_id)
    return seen


async def run_job(agent: AgentProcess, job: JobStart) -> Seen:
    """Start a job, read it to its end, and check that nothing is missing."""
    async with agent.client() as client:
        await client.start(job)
        seen = await follow(client, job.id)
    seen.check()
    return seen


async def through_deaths(agent: AgentProcess, job: JobStart, **restart: Any) -> Seen:
    """Run a job with an agent that may die, for example at a kill point: restart it each time, and read log and results
    until the job ends. `restart`: arguments of `AgentProcess.start` for the restarts."""
    seen, accepted = Seen(), False
    while True:
        try:
            async with agent.client() as client:
                if not accepted:
                    await client.start(job)
                    accepted = True
                await follow(client, job.id, seen)
        except AgentUnavailableError:
            await agent.wait()
            await agent.start(**restart)
        else:
            seen.check()
            return seen


def steps_text(*entries: dict[str, Any], extended: bool = True) -> str:
    """The YAML text of a job that runs these steps. `extended`: allow Remuda's extensions of the step syntax."""
    spec = {"spec": {"remuda": 1}} if extended else {}
    return f"{json.dumps(spec)}\n---\n{json.dumps({'run': list(entries)})}"


def plain_lines(log: bytes, stream: bytes) -> list[bytes]:
    """Lines of a log `stream` (b"01O": number, O or E for stdout or stderr) without headers; split ones are joined."""
    lines: list[bytes] = []
    assert log.endswith(b"\n") or not log
    for line in log.split(b"\n")[:-1]:
        head, text = line[:HEADER_BYTES], line[HEADER_BYTES:]
        assert head[10:11] == b"T", line
        assert head[26:28] == b"Z ", line
        if head[28:31] == stream:
            if head[31:] == b"+":
                lines[-1] += text
            else:
                lines.append(text)
    return lines
