"""A client of the gRPC service that the agent has in common with GitLab's step runner."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from grpclib.client import Channel

from remuda.testing.agent_process import AgentProcess
from remuda.wire.agent_client import socket_of
from remuda.wire.proto.step_runner_grpc import StepRunnerStub


@asynccontextmanager
async def step_runner(agent: AgentProcess) -> AsyncIterator[StepRunnerStub]:
    async with Channel(path=str(socket_of(agent.data))) as channel:
        yield StepRunnerStub(channel)
