"""The cell of a run: a process of its own, which begins to import what it is made of before the run is known.

A run's start is a matter of imports, and this way two processors share them. The process is forked, so that it has
what is imported already; it waits for its settings, serves, and stops when the connection to its parent ends, however
that comes about: a run that was killed leaves no cell. What it keeps is decided by its settings.

`beginning` starts and ends it, `local_run` is the user. Over the connection go pickled values, each after its length:
a `Task` to the cell, then to the parent any number of `Said` and one `Serving` or `Failed`.
"""

import asyncio
import gc
import os
import pickle
import signal
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from remuda.cli.exits import CommandError

if TYPE_CHECKING:
    from remuda.cell.settings import CellSettings
    from remuda.localrun.embedded import Cell

STOP_SECONDS = 10.0
"""How long it may take to stop before it is killed."""
SHARED = (
    *("remuda.pipeline", "remuda.wire.user_api", "remuda.wire.runner_api", "remuda.localrun.service_log"),
    *("remuda.lib.sqlite_writer", "yaml"),
)
"""What both processes need is imported before they part."""
_MODULES = ("remuda.cell.service", "remuda.cli.cell_access", "uvicorn.lifespan.off", "encodings.idna")
_SIZE = struct.Struct("!I")


class Task(NamedTuple):
    """What to serve."""

    folder: Path
    """The platform's: the administrator's token is kept there."""
    settings: "CellSettings"
    log: Path
    log_level: str
    ends_with_run: bool
    """Nothing of what it keeps is looked at after the run."""


class Said(NamedTuple):
    """Something that the person who watches should read."""

    text: str


class Serving(NamedTuple):
    """The cell can be called."""

    url: str
    token: str


class Failed(NamedTuple):
    """It cannot begin."""

    error: Exception


class CellProcess:
    """The process, seen from its parent."""

    def __init__(self) -> None:
        for name in SHARED:
            import_module(name)
        self._connection, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            self._connection.close()
            _live(theirs)
        theirs.close()

    @asynccontextmanager
    async def serving(self, task: Task, say: Callable[[str], None]) -> AsyncIterator["Cell"]:
        """The cell, from the moment it serves; it stops when this is left."""
        reader, writer = await asyncio.open_connection(sock=self._connection)
        writer.write(_framed(task))
        # It starts meanwhile.
        from remuda.localrun.embedded import Cell
        from remuda.wire.user_client import UserClient

        told: asyncio.Future[Serving] = asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as group:
            listener = group.create_task(_listen(reader, told, say, task.log), name="cell process")
            try:
                there = await told
                async with UserClient(there.url, there.token) as client:
                    yield Cell(url=there.url, token=there.token, client=client)
            finally:
                listener.cancel()
                # Its timeout is an OSError, and so is a process that is gone already.
                with suppress(OSError):
                    writer.write_eof()
                    async with asyncio.timeout(STOP_SECONDS):
                        await asyncio.wait([listener])
                        while await reader.read(65536):
                            pass
                writer.close()
                self.end()

    def end(self) -> None:
        """Whatever it does, it is gone afterwards. What it keeps is safe at any moment."""
        self._connection.close()
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


async def _listen(
    reader: asyncio.StreamReader, told: "asyncio.Future[Serving]", say: Callable[[str], None], log: Path
) -> NoReturn:
    """Pass on what the cell tells, until it is asked to stop; its end before that is the end of the run."""
    while True:
        try:
            (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
            message = pickle.loads(await reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError):
            raise CommandError(
                f"the cell has ended, and with it the run; run it again with --keep, and {log.name} in the folder that "
                "is kept may say why"
            ) from None
        match message:
            case Said():
                say(message.text)
            case Serving():
                told.set_result(message)
            case Failed():
                raise message.error


def _live(connection: socket.socket) -> NoReturn:
    """The process, from the fork to its end."""
    code = 1
    try:
        # Ctrl-C is for the parent, which needs the cell to cancel the pipeline.
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        _load()
        with connection.makefile("rb") as stream:
            if head := stream.read(_SIZE.size):
                task: Task = pickle.loads(stream.read(*_SIZE.unpack(head)))
                asyncio.run(_serve(task, connection))
        code = 0
    except BaseException as error:  # noqa: BLE001 - this is the end of the process, which must not go on as its parent
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(code)


def _load() -> None:
    """Do all that takes time and needs no settings."""
    _put_bare("uvicorn", {"Config": "uvicorn.config", "Server": "uvicorn.server"})
    for name in _MODULES:
        import_module(name)
    from starlette.routing import compile_path

    from remuda.cell.http.edge.app import ENDPOINTS

    for endpoint in ENDPOINTS:
        # Patterns of paths: Python remembers those that it has compiled.
        compile_path(endpoint.path)
    gc.freeze()
    gc.enable()


def _put_bare(package: str, places: Mapping[str, str]) -> None:
    """Let modules of a package be imported without all that the package itself imports: it becomes whole only when a
    name is asked of it whose module is not among the `places`.

    uvicorn brings its command line and what starts processes, a tenth of all that a cell imports.
    """
    spec = find_spec(package)
    if package in sys.modules or spec is None or spec.loader is None:
        return
    loader, module = spec.loader, module_from_spec(spec)

    def found(name: str) -> Any:
        if name not in places:
            del module.__dict__["__getattr__"]
            loader.exec_module(module)
            return getattr(module, name)
        return getattr(import_module(places[name]), name)

    module.__dict__["__getattr__"] = found
    sys.modules[package] = module


async def _serve(task: Task, connection: socket.socket) -> None:
    import msgspec

    from remuda.cell.service import CellService
    from remuda.cli.cell_access import ensure_token
    from remuda.lib.files import forgo_disk, open_private
    from remuda.localrun.service_log import service_log
    from remuda.telemetry import logs

    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def tell(message: object) -> None:
        # Where nobody listens any more, the end is near, and known otherwise.
        with suppress(OSError):
            connection.sendall(_framed(message))

    def leave() -> None:
        loop.remove_reader(connection)
        if task.ends_with_run and not _has_children():
            # To stop in order takes longer than many a job, and nobody looks at what it leaves.
            os._exit(0)
        stop.set()

    if task.ends_with_run:
        forgo_disk()
    with open_private(task.log) as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
        logs.configure(stream=service_log(log, lambda text: tell(Said(text=text))), level=task.log_level)
        loop.add_reader(connection, leave)
        try:
            token = ensure_token(task.folder)
            service = CellService(msgspec.structs.replace(task.settings, admin_token=token))
            await service.run(stop, ready=lambda url: tell(Serving(url=url, token=token)))
        except Exception as error:
            tell(Failed(error=error))
            raise


def _has_children() -> bool:
    """Whether a process of git, say, would be left behind."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _framed(message: Any) -> bytes:
    data = pickle.dumps(message)
    return _SIZE.pack(len(data)) + data
