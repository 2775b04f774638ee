"""`remuda agent`: replaces this process by the agent's own program, which runs without the rest of Remuda."""

import os
import sys
from typing import Annotated

from cyclopts import Parameter

Rest = Annotated[str, Parameter(allow_leading_hyphen=True, help="Options of the agent; --help after -- lists them.")]


def serve(*options: Rest) -> None:
    """Serve jobs on a unix socket, or on a loopback port where there are no unix sockets.

    The runner manager starts an agent by itself where it needs one; by hand this is for looking at one, and for other
    clients of the step runner's protocol.

    Try:

        remuda agent serve -- --help
        remuda agent serve --data /tmp/agent
    """
    _exec_agent("serve", options)


def proxy(*options: Rest) -> None:
    """Connect stdin and stdout to the agent of this machine.

    What a client runs at the other end of ssh; stdout holds the protocol and nothing else.

    Try:

        remuda agent proxy -- --help
        ssh HOST remuda-agent proxy --start
    """
    _exec_agent("proxy", options)


def bootstrap(*options: Rest) -> None:
    """Put the agent into a file, here or on another machine.

    Looks at the machine and picks what runs there: the agent for the Python that it has, or the frozen one.

    Try:

        remuda agent bootstrap /opt/remuda-agent
        remuda agent bootstrap --through 'ssh HOST' --frozen build/remuda-agent-linux-x86_64 /opt/remuda-agent
    """
    _exec_agent("bootstrap", options)


def pack(*options: Rest) -> None:
    """Write the agent as one portable file, remuda-agent.pyz.

    Try:

        remuda agent pack -o remuda-agent.pyz
        python3 remuda-agent.pyz serve --help
    """
    _exec_agent("pack", options)


def _exec_agent(command: str, options: tuple[str, ...]) -> None:
    """Replace this process by the agent: same signals, its own exit code."""
    sys.stdout.flush()
    # -P: modules in the current folder must not shadow ours.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "remuda.steps", command, *options])
