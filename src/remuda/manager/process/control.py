"""The manager's control socket, both ends: how it stands, and the order to take no more jobs.

A UNIX socket in the data folder that only the manager's user can use. One line of JSON asks, one line answers: `status`
gets the document of `status.py`; `drain` does what SIGQUIT does, and then the connection stays open until the manager
is over, with a last line that says how many jobs it left behind; what else can be asked for is `others`' business.

The folder may be removed under the manager; the socket is made anew where it is gone. The caller of the other end is
`remuda.cli.manager.status`.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from remuda.lib.clock import Clock
from remuda.manager.errors import ManagerError
from remuda.manager.process.status import ManagerStatus
from remuda.telemetry.logs import logger

T = TypeVar("T")
NAME = "control.sock"
LOOK_SECONDS = 1.0
"""How often is looked whether the socket is still there."""
ANSWER_SECONDS = 10.0
_MOST_BYTES = 64 << 20
"""Of a line: the status of thousands of jobs."""
_LONGEST_PATH = 100
"""Addresses of sockets have 108 bytes."""


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is asked for."""

    command: str
    runner: str = ""
    """Which one it is about: its name or short token; empty: all."""
    remove: bool = False
    """Whether something is to be done about what is found."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """An order that cannot be carried out."""

    refused: str


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs the manager has, or left to their agents when it ended."""

    jobs: int


class NoManagerError(ManagerError):
    """Nobody answers at the socket."""


class Control:
    """The manager's end."""

    def __init__(
        self,
        folder: Path,
        *,
        status: Callable[[], ManagerStatus],
        drain: Callable[[], None],
        clock: Clock,
        others: Mapping[str, Callable[[Order], Awaitable[msgspec.Struct]]] | None = None,
    ) -> None:
        """`others` answer further commands; a ManagerError of theirs is told as it is."""
        self._others = others or {}
        self._folder = folder
        self._status = status
        self._drain = drain
        self._clock = clock
        self._waiting: set[asyncio.StreamWriter] = set()
        self._log = logger("manager")

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._orders:
                while True:
                    await self._serve()
        finally:
            for writer in self._waiting:
                writer.write(_line(Drained(jobs=len(self._status().jobs))))
                writer.close()

    async def _serve(self) -> None:
        """Until the socket is gone."""
        try:
            listening = _listen(self._folder / NAME)
        except OSError as error:
            self._log.debug("the control socket cannot be made", cause=str(error))
            await self._clock.sleep(LOOK_SECONDS)
            return
        own = _identity(self._folder / NAME)
        server = await asyncio.start_unix_server(self._answer, sock=listening, limit=_MOST_BYTES)
        try:
            while _identity(self._folder / NAME) == own:
                await self._clock.sleep(LOOK_SECONDS)
        finally:
            # Not waited for, as `async with` does from Python 3.12 on: whoever waits for the end is still connected.
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                order = msgspec.json.decode(await reader.readline(), type=Order)
            match order.command:
                case "status":
                    writer.write(_line(self._status()))
                case "drain":
                    self._drain()
                    writer.write(_line(Drained(jobs=len(self._status().jobs))))
                    await writer.drain()
                    self._waiting.add(writer)
                    await reader.read()  # until the other end goes away
                case other if other in self._others:
                    # It must not outlive what it is about.
                    task = self._orders.create_task(self._carried_out(order), name=f"order {other}")
                    await asyncio.wait({task})
                    ended = Refused(refused="the manager ends; ask again when it runs")
                    writer.write(_line(ended if task.cancelled() else task.result()))
            await writer.drain()
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            self._log.debug("an order cannot be read", cause=str(error))
        finally:
            self._waiting.discard(writer)
            writer.close()

    async def _carried_out(self, order: Order) -> msgspec.Struct:
        try:
            return await self._others[order.command](order)
        except ManagerError as error:
            return Refused(refused=str(error))
        except Exception as error:  # noqa: BLE001 - who asked should not have to guess from silence
            self._log.error("an order could not be carried out", order=order.command, exc_info=error)
            return Refused(refused=f"the manager failed over this ({type(error).__name__}); its log says how")


async def ask_status(folder: Path) -> ManagerStatus:
    """How the manager of a data folder stands. NoManagerError: there is none."""
    async with _connected(folder) as (reader, writer):
        return await _asked(folder, reader, writer, Order(command="status"), ManagerStatus)


async def ask(folder: Path, order: Order, answer: type[T], *, seconds: float = ANSWER_SECONDS) -> T:
    """What one of the `others` says. ManagerError: it refuses. NoManagerError: there is none."""
    async with _connected(folder) as (reader, writer):
        return await _asked(folder, reader, writer, order, answer, seconds=seconds)


async def ask_drain(folder: Path, *, begun: Callable[[int], None], waits: bool) -> int:
    """Have it take no more jobs; `begun` is told how many it has. With `waits` returns when it is over, else at once.

    The number of jobs that it still has, or has left to their agents.
    """
    async with _connected(folder) as (reader, writer):
        told = await _asked(folder, reader, writer, Order(command="drain"), Drained)
        begun(told.jobs)
        if not waits:
            return told.jobs
        line = await reader.readline()
        if not line:
            raise ManagerError(
                "the manager ended without a word, as a process that is killed does; its jobs go on with their agents, "
                "and the next start finds them"
            )
        return msgspec.json.decode(line, type=Drained).jobs


async def _asked(
    folder: Path,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    order: Order,
    answer: type[T],
    *,
    seconds: float = ANSWER_SECONDS,
) -> T:
    writer.write(_line(order))
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
            f"the manager of {folder} answered what this version cannot read; use the remuda that it was started with"
        ) from None


def is_served(folder: Path) -> bool:
    """Whether a manager runs over a folder; one that has ended leaves its socket behind."""
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
async def _connected(folder: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    try:
        with _address(folder / NAME) as address:
            reader, writer = await asyncio.open_unix_connection(address, limit=_MOST_BYTES)
    except PermissionError:
        raise ManagerError(
            f"{folder / NAME}: you may not use it; run this as the user that the manager runs as"
        ) from None
    except OSError:
        raise NoManagerError(
            f"no manager runs over {folder}. Start one with: remuda manager run --config FILE; "
            "or name the folder of another one with --data"
        ) from None
    try:
        yield reader, writer
    finally:
        writer.close()


def _listen(path: Path) -> socket.socket:
    """A socket that only this user can connect to: its mode is set before anybody can."""
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX)
    try:
        with _address(path) as address:
            made.bind(address)
        path.chmod(0o600)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """The path, or a short one for the same place where it is too long for an address."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _line(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value) + b"\n"
