"""Base class of an environment plugin.

Order of calls for a job: `acquire`, `connect` (unless the machine's agent is connected), `prepare`, `before`, work
through the agent, `after`, `clean_up`. Calls for different jobs are concurrent. Each call may be repeated, also in a
new process, so a plugin stores what it needs in `folder`. After a restart `adopt` is called for every job that has a
machine. A call may be cancelled at any time; a cancelled `acquire` must keep no machine."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.environments.errors import TemporaryError
from remuda.environments.handshake import VERSIONS
from remuda.environments.values import Folders, Place
from remuda.lib.processes import reap

END_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A byte stream to and from an agent."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    close: Callable[[], Awaitable[None]]


class Plugin:
    """One kind of environment. Methods that raise NotImplementedError here are not supported unless overridden."""

    versions: Sequence[int] = VERSIONS
    """Protocol versions of this plugin. One without hooks and usage has (1,)."""

    async def open(self, config: dict[str, Any], folder: Path) -> None:
        """Called once, first, with `config` of the runner and a folder on the manager's machine for state. Raise
        ConfigurationError for a wrong setting."""

    def capacity(self) -> int | None:
        """Return the limit on concurrent jobs; None: no limit. Called often, so it must be fast."""
        return None

    async def acquire(self, place: Place) -> str:
        """Wait for a machine for a job and return the machine's name. A second call for the same job (`place.key`) must
        return the same machine."""
        raise NotImplementedError

    async def adopt(self, place: Place, machine: str) -> None:
        """Record that a job already has this machine. Called for such jobs after each start of the plugin's process."""
        raise NotImplementedError

    async def prepare(self, place: Place, machine: str) -> Folders:
        """Create the job's working directory, and a second one with the suffix `.tmp` for this job alone. Return the
        paths of the job's folders."""
        raise NotImplementedError

    async def before(self, place: Place, machine: str) -> str:
        """Run the operator's `before_job` on the machine, outside the job; return its output. LostError if it fails."""
        raise NotImplementedError

    async def after(self, place: Place, machine: str) -> str:
        """Run the operator's `after_job` on the machine, outside the job; return its output. LostError is logged."""
        raise NotImplementedError

    async def connect(self, machine: str) -> Connection:
        """Return a connection to the machine's agent, started if it does not run. LostError if the machine is gone."""
        raise NotImplementedError

    async def recover(self) -> Sequence[str]:
        """Return the names of machines whose agents may have jobs of an earlier process of the manager."""
        raise NotImplementedError

    async def usage(self) -> int:
        """Return the smallest free disk space, in bytes, among the machines that may get the next job."""
        raise NotImplementedError

    async def clean_up(self, place: Place, machine: str) -> None:
        """Release the machine of a job that has ended, and remove files that no later job can use."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop the plugin, because the manager stops. Machines, agents and jobs must stay."""


async def through(*words: str) -> Connection:
    """Return a connection through stdin and stdout of a command, such as `ssh HOST remuda-agent proxy --start`. Raises
    TemporaryError if the command cannot be started."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise TemporaryError(f"{words[0]} cannot be started: {error.strerror}") from error
    reader, writer = process.stdout, process.stdin
    assert reader is not None
    assert writer is not None

    async def close() -> None:
        writer.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await reap(process)

    return Connection(reader=reader, writer=writer, close=close)
