"""The first call on a new connection to an agent: whether it answers, and in which protocol."""

import asyncio

from remuda.manager.errors import EnvironmentTemporaryError
from remuda.wire.agent_client import AgentClient, AgentRefusedError, AgentUnavailableError

PROTOCOL = 1
"""Version of the agent's service that this manager speaks."""
NO_ANSWER = (AgentUnavailableError, AgentRefusedError, TimeoutError)
"""Errors of `greet` if the agent does not answer."""


class OtherProtocolError(EnvironmentTemporaryError):
    """The agent speaks another protocol version."""


async def greet(client: AgentClient, *, seconds: float) -> None:
    """Return when the agent has answered. NO_ANSWER, OtherProtocolError: the client is closed."""
    try:
        async with asyncio.timeout(seconds):
            hello = await client.hello()
        if hello.protocol != PROTOCOL:
            raise OtherProtocolError(
                f"the agent (process {hello.pid}) speaks protocol {hello.protocol}, this manager {PROTOCOL}; stop that "
                "agent when its jobs are over, or use the Remuda that started it"
            )
    except BaseException:
        client.close()
        raise
