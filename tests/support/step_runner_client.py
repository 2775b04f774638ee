"""The agent's service as GitLab's own client sees it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from grpclib.client import Channel

from remuda.testing.agent_process import AgentProcess
from remuda.wire.agent_client import socket_of
from remuda.wire.proto.step_runner_grpc import StepRunnerStub


@asynccontextmanager
async def step_runner(agent: AgentProcess) -> AsyncIterator[StepRunnerStub]:
    """Connect to a running agent."""
    async with Channel(path=str(socket_of(agent.data))) as channel:
        yield StepRunnerStub(channel)
