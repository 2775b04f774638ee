"""What the author of a plugin writes: a class with these methods.

Order for a job: `acquire`, `prepare`, `before`, work through the agent behind `connect`, `after`, `clean_up`. Calls for
different jobs overlap. Each may be repeated, also in a new process: what a plugin must remember over its own end it
keeps in `folder`, or can find out again. After a restart `adopt` comes for every job that has a machine. A call may be
cancelled at any time: an `acquire` that is cancelled holds nothing.
"""

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
    """Bytes to and from an agent."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    close: Callable[[], Awaitable[None]]


class Plugin:
    """A kind of environment."""

    versions: Sequence[int] = VERSIONS
    """Protocol versions that this plugin speaks. One without hooks and usage speaks (1,)."""

    async def open(self, config: dict[str, Any], folder: Path) -> None:
        """Once, first: `config` of the runner, and a folder on the manager's machine. ConfigurationError."""

    def capacity(self) -> int | None:
        """Jobs that can be here at the same time; None: no limit. Asked often."""
        return None

    async def acquire(self, place: Place) -> str:
        """The machine for a job, the same one for the same key; waits until there is one."""
        raise NotImplementedError

    async def adopt(self, place: Place, machine: str) -> None:
        """A job of an earlier process has this machine."""
        raise NotImplementedError

    async def prepare(self, place: Place, machine: str) -> Folders:
        """The job's working directory, and one beside it with `.tmp` behind its name for this job alone."""
        raise NotImplementedError

    async def before(self, place: Place, machine: str) -> str:
        """Run `place.before_job` on the machine, outside the job; its output. LostError when it fails."""
        raise NotImplementedError

    async def after(self, place: Place, machine: str) -> str:
        """The same with `place.after_job`."""
        raise NotImplementedError

    async def connect(self, machine: str) -> Connection:
        """A new connection to the machine's agent, which is started first where none runs; see `through`."""
        raise NotImplementedError

    async def recover(self) -> Sequence[str]:
        """Machines in which jobs of an earlier process may be found."""
        raise NotImplementedError

    async def usage(self) -> int:
        """Bytes that are free on the disk of the machines that get the next job."""
        raise NotImplementedError

    async def clean_up(self, place: Place, machine: str) -> None:
        """A job is over: release its machine, remove what no later job can use."""
        raise NotImplementedError

    async def close(self) -> None:
        """The manager ends. Machines, agents and jobs stay."""


async def through(*words: str) -> Connection:
    """A connection through stdin and stdout of a command: `remuda-agent proxy --start`, here or behind `ssh HOST`."""
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
