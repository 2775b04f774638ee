"""`remuda agent`: replaces this process by the agent's own program, which runs without the rest of Remuda."""

import os
import sys
from typing import Annotated

from cyclopts import Parameter

Rest = Annotated[str, Parameter(allow_leading_hyphen=True, help="Options of the agent. `-- --help` lists them.")]


def serve(*options: Rest) -> None:
    """Serve jobs on a unix socket, or on a loopback port where there are no unix sockets.

    The runner manager starts an agent itself. Start one by hand to examine it, or for other clients of the step runner
    protocol.

    Try:

        remuda agent serve -- --help
        remuda agent serve --data /tmp/agent
    """
    _exec_agent("serve", options)


def proxy(*options: Rest) -> None:
    """Connect stdin and stdout to the agent of this machine.

    A client on another machine starts it through ssh. stdout has only messages of the protocol.

    Try:

        remuda agent proxy -- --help
        ssh HOST remuda-agent proxy --start
    """
    _exec_agent("proxy", options)


def bootstrap(*options: Rest) -> None:
    """Install the agent as a file, on this machine or on another one.

    Examines the machine and chooses a form that runs there: the zip file if the machine has a suitable Python, else the
    frozen agent, a program that needs no Python.

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
    """Replace this process by the agent's program, so that signals reach the agent and its exit code is returned."""
    sys.stdout.flush()
    # -P: modules in the current folder must not shadow ours.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "remuda.steps", command, *options])
