"""Makes the first call to an agent, which checks that it answers and speaks the manager's protocol version."""

import asyncio

from remuda.manager.errors import EnvironmentTemporaryError
from remuda.wire.agent_client import AgentClient, AgentRefusedError, AgentUnavailableError

PROTOCOL = 1
"""Version of the agent's service that this manager speaks."""
NO_ANSWER = (AgentUnavailableError, AgentRefusedError, TimeoutError)
"""Errors of `greet` if the agent gives no usable answer."""


class OtherProtocolError(EnvironmentTemporaryError):
    """The agent speaks another version of the protocol than this manager, so the manager cannot use it."""


async def greet(client: AgentClient, *, seconds: float) -> None:
    """Check that the agent answers within `seconds`, with this protocol version. If not, close the client and raise an
    error: OtherProtocolError for another version, or one of those in NO_ANSWER if there is no usable answer."""
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
