"""The manager's control socket: the server in the manager, and the client functions for commands.

It is a UNIX socket in the data folder that only the manager's user can use. A command is one line of JSON, and so is
its answer. After `drain` the connection stays open until the manager ends, and a last line says how many jobs are left.
If the socket file is deleted, the manager creates it again."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from remuda.lib.clock import Clock
from remuda.lib.files import file_identity
from remuda.manager.errors import ManagerError
from remuda.manager.process.status import ManagerStatus
from remuda.telemetry.logs import logger

T = TypeVar("T")
NAME = "control.sock"
LOOK_SECONDS = 1.0
"""Interval of the checks whether the socket still exists."""
ANSWER_SECONDS = 10.0
_MOST_BYTES = 64 << 20
"""Longest line: the status of thousands of jobs."""
_LONGEST_PATH = 100
"""A UNIX socket address has at most 108 bytes."""


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    command: str
    runner: str = ""
    """Name or short token of a runner; empty: all."""
    remove: bool = False
    """For `sweep`: remove what is found."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a command that failed; `refused` is the message for the user."""

    refused: str


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to the command `drain`: the number of jobs that the manager still has, or had when it ended."""

    jobs: int


class NoManagerError(ManagerError):
    """No manager answers at the control socket."""


class Control:
    """The control socket's server, which runs in the manager."""

    def __init__(
        self,
        folder: Path,
        *,
        status: Callable[[], ManagerStatus],
        drain: Callable[[], None],
        clock: Clock,
        others: Mapping[str, Callable[[Command], Awaitable[msgspec.Struct]]] | None = None,
    ) -> None:
        """`drain` makes the manager request no more jobs and end after the running ones. `others` has the handlers of
        further commands by name; the client gets the text of their ManagerError."""
        self._others = others or {}
        self._folder = folder
        self._status = status
        self._drain = drain
        self._clock = clock
        self._waiting: set[asyncio.StreamWriter] = set()
        self._log = logger("manager")

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as self._commands:
                while True:
                    await self._serve()
        finally:
            for writer in self._waiting:
                writer.write(_line(Drained(jobs=len(self._status().jobs))))
                writer.close()

    async def _serve(self) -> None:
        """Create the socket and serve clients until its file is deleted or replaced."""
        try:
            listening = _listen(self._folder / NAME)
        except OSError as error:
            self._log.debug("cannot create the control socket; trying again", cause=str(error))
            await self._clock.sleep(LOOK_SECONDS)
            return
        own = file_identity(self._folder / NAME)
        server = await asyncio.start_unix_server(self._answer, sock=listening, limit=_MOST_BYTES)
        try:
            while file_identity(self._folder / NAME) == own:
                await self._clock.sleep(LOOK_SECONDS)
        finally:
            # Without waiting for connections, as `async with` does from Python 3.12 on: `drain` clients stay connected.
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                command = msgspec.json.decode(await reader.readline(), type=Command)
            match command.command:
                case "status":
                    writer.write(_line(self._status()))
                case "drain":
                    self._drain()
                    writer.write(_line(Drained(jobs=len(self._status().jobs))))
                    await writer.drain()
                    self._waiting.add(writer)
                    await reader.read()  # until the other end goes away
                case other if other in self._others:
                    # In the task group, so that it ends with the manager.
                    task = self._commands.create_task(self._execute(command), name=f"command {other}")
                    await asyncio.wait({task})
                    refusal = Refused(refused="the manager is stopping; try again when it runs")
                    writer.write(_line(refusal if task.cancelled() else task.result()))
            await writer.drain()
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            self._log.debug("invalid command on the control socket; closing the connection", cause=str(error))
        finally:
            self._waiting.discard(writer)
            writer.close()

    async def _execute(self, command: Command) -> msgspec.Struct:
        try:
            return await self._others[command.command](command)
        except ManagerError as error:
            return Refused(refused=str(error))
        except Exception as error:  # noqa: BLE001 - the client must get an answer
            self._log.error(
                "unexpected error in a control command; answered that the manager failed",
                command=command.command,
                exc_info=error,
            )
            return Refused(refused=f"the manager failed ({type(error).__name__}); its log says why")


async def ask_status(folder: Path) -> ManagerStatus:
    """Ask the manager that uses this data folder for its status. Raises NoManagerError if none runs."""
    async with _connect(folder) as (reader, writer):
        return await _ask(folder, reader, writer, Command(command="status"), ManagerStatus)


async def ask(folder: Path, command: Command, answer: type[T], *, seconds: float = ANSWER_SECONDS) -> T:
    """Send a command to the manager that uses this data folder, and return its answer, decoded as the type `answer`.
    Raises ManagerError if the command failed or took longer than `seconds`, NoManagerError if no manager runs."""
    async with _connect(folder) as (reader, writer):
        return await _ask(folder, reader, writer, command, answer, seconds=seconds)


async def ask_drain(folder: Path, *, on_begin: Callable[[int], None], waits: bool) -> int:
    """Tell the manager to request no more jobs, and to end after the running ones. Returns the number of jobs left;
    with `waits`, only after the manager has ended. `on_begin` is called with the number when the drain begins."""
    async with _connect(folder) as (reader, writer):
        drained = await _ask(folder, reader, writer, Command(command="drain"), Drained)
        on_begin(drained.jobs)
        if not waits:
            return drained.jobs
        line = await reader.readline()
        if not line:
            raise ManagerError(
                "the manager ended without an answer; it may have been killed. Its jobs continue with their agents; "
                "the next start finds them"
            )
        return msgspec.json.decode(line, type=Drained).jobs


async def _ask(
    folder: Path,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    command: Command,
    answer: type[T],
    *,
    seconds: float = ANSWER_SECONDS,
) -> T:
    writer.write(_line(command))
    try:
        async with asyncio.timeout(seconds):
            line = await reader.readline()
        if line.startswith(b'{"refused":'):
            raise ManagerError(msgspec.json.decode(line, type=Refused).refused)
        return msgspec.json.decode(line, type=answer)
    except TimeoutError:
        raise ManagerError(
            f"the manager of {folder} does not answer; its log says what it does. Try again, or stop it with SIGTERM"
        ) from None
    except msgspec.MsgspecError:
        raise ManagerError(
            f"the answer of the manager of {folder} cannot be read; use the version of remuda that it was started with"
        ) from None


def is_served(folder: Path) -> bool:
    """True if a manager uses this data folder. Connects to the socket, because its file outlives the manager."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            with _address(folder / NAME) as address:
                probe.connect(address)
        except PermissionError:
            return True
        except OSError:
            return False
    return True


@asynccontextmanager
async def _connect(folder: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    try:
        with _address(folder / NAME) as address:
            reader, writer = await asyncio.open_unix_connection(address, limit=_MOST_BYTES)
    except PermissionError:
        raise ManagerError(
            f"{folder / NAME}: permission denied; run this as the user that the manager runs as"
        ) from None
    except OSError:
        raise NoManagerError(
            f"no manager uses the data folder {folder}. Start one with: remuda manager run --config FILE; "
            "or name the folder of another one with --data"
        ) from None
    try:
        yield reader, writer
    finally:
        writer.close()


def _listen(path: Path) -> socket.socket:
    """Create a UNIX socket that only this user can use. Its file mode is set before it accepts connections."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        with _address(path) as address:
            listener.bind(address)
        path.chmod(0o600)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield the address for a UNIX socket; a path that is too long becomes a short one below `/proc/self/fd`."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _line(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value) + b"\n"
