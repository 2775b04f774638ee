"""Runs the cell (the CI server) of `remuda run` in a child process: parent and child import their modules in parallel,
which otherwise takes most of the time until the first job. The child is forked, imports its modules, waits for its
settings, serves, and exits when the connection to its parent closes, so that a killed run leaves no process. Messages
are pickled values with a length prefix: one `Task` to the child; to the parent `Serving` when the cell is ready,
`Failed` if it stops with an error, and any number of `Said`."""

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

from remuda.lib import event_loop
from remuda.lib.exits import CommandError
from remuda.lib.signals import STOPPING

if TYPE_CHECKING:
    from remuda.cell.settings import CellSettings
    from remuda.localrun.embedded import Cell

STOP_SECONDS = 10.0
"""How long the cell may take to stop before it is killed."""
SHARED = (
    *("remuda.pipeline", "remuda.wire.user_api", "remuda.wire.runner_api", "remuda.localrun.service_log"),
    *("remuda.lib.sqlite_writer", "yaml"),
)
"""Modules that both processes need, imported before the fork."""
_MODULES = ("remuda.cell.service", "remuda.localrun.client_file", "uvicorn.lifespan.off", "encodings.idna")
_SIZE = struct.Struct("!I")
_ORDERLY_END = b"."
"""The last byte that the parent sends, unless it was killed."""


class Task(NamedTuple):
    """Message to the child: the settings of the cell that the child serves."""

    folder: Path
    """The platform's data folder, which has the administrator's token."""
    settings: "CellSettings"
    log: Path
    log_level: str
    ends_with_run: bool
    """The cell's data is not used after the run."""


class Said(NamedTuple):
    """Message to the parent: a text to show to the user."""

    text: str


class Serving(NamedTuple):
    """Message to the parent: URL and administrator's token of the cell, which now accepts requests."""

    url: str
    token: str


class Failed(NamedTuple):
    """Message to the parent: the error that stopped the cell, at its start or later."""

    error: Exception


class CellProcess:
    """The parent's handle of the child process in which the cell runs."""

    def __init__(self) -> None:
        for name in SHARED:
            import_module(name)
        self._connection, theirs = socket.socketpair()
        self._is_reaped = False
        self._pid = os.fork()
        if self._pid == 0:
            self._connection.close()
            _run_child(theirs)
        theirs.close()

    @asynccontextmanager
    async def serve(self, task: Task, say: Callable[[str], None]) -> AsyncIterator["Cell"]:
        """Start the cell, and stop it at the end of the `async with` block. `say` gets texts for the user. If the cell
        stops early, the block is cancelled, and an exception group with the cell's error or a CommandError is raised.
        Can be called once."""
        reader, writer = await asyncio.open_connection(sock=self._connection)
        writer.write(_frame(task))
        # Imported while the cell starts.
        from remuda.localrun.embedded import Cell
        from remuda.wire.user_client import UserClient

        serving: asyncio.Future[Serving] = asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as group:
            listener = group.create_task(_listen(reader, serving, say, task.log), name="cell process")
            try:
                address = await serving
                async with UserClient(address.url, address.token) as client:
                    yield Cell(url=address.url, token=address.token, client=client)
            finally:
                listener.cancel()
                # OSError: the timeout, or a process that is already gone.
                with suppress(OSError):
                    writer.write(_ORDERLY_END)
                    writer.write_eof()
                    async with asyncio.timeout(STOP_SECONDS):
                        await asyncio.wait([listener])
                        while await reader.read(65536):
                            pass
                writer.close()
                self.end()

    def end(self) -> None:
        """Kill the process; a second call does nothing. The cell's data survives a kill at any time."""
        self._connection.close()
        # A process that is reaped must not be killed again: its id may belong to another process.
        if not self._is_reaped:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            self._is_reaped = True


async def _listen(
    reader: asyncio.StreamReader, serving: "asyncio.Future[Serving]", say: Callable[[str], None], log: Path
) -> NoReturn:
    """Handle messages from the cell until this task is cancelled; sets `serving` when the cell accepts requests. Raises
    the error that the cell reports, or CommandError, which names the file `log`, if it exits without a report."""
    while True:
        try:
            (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
            message = pickle.loads(await reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError):
            raise CommandError(
                f"the cell has ended, so the run cannot continue; to find out why, run it again with --keep and read "
                f"{log.name} in the folder that is kept"
            ) from None
        match message:
            case Said():
                say(message.text)
            case Serving():
                serving.set_result(message)
            case Failed():
                raise message.error


def _run_child(connection: socket.socket) -> NoReturn:
    code = 1
    try:
        # Ctrl-C must reach the parent only, which needs the cell to cancel the pipeline.
        os.setsid()
        for number in STOPPING:
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        _load()
        with connection.makefile("rb") as stream:
            if head := stream.read(_SIZE.size):
                task: Task = pickle.loads(stream.read(*_SIZE.unpack(head)))
                event_loop.run(_serve(task, connection))
        code = 0
    except BaseException as error:  # noqa: BLE001 - the child must end here and not continue as its parent
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(code)


def _load() -> None:
    """Import all modules that serving needs, while the parent parses its options."""
    _skip_package_init("uvicorn", {"Config": "uvicorn.config", "Server": "uvicorn.server"})
    for name in _MODULES:
        import_module(name)
    from starlette.routing import compile_path

    from remuda.cell.http.edge.app import ENDPOINTS

    for endpoint in ENDPOINTS:
        # Fills the cache of compiled regular expressions.
        compile_path(endpoint.path)
    gc.freeze()
    gc.enable()


def _skip_package_init(package: str, places: Mapping[str, str]) -> None:
    """Make a package importable without running its slow `__init__`. `places`: for each name that the cell imports from
    the package, the module that defines it; any other name makes the `__init__` run after all. Used for uvicorn, whose
    `__init__` also imports its command line and supervisor: a tenth of the time that the cell needs for its imports.
    Saves 13 % of the time of a run with one short job (21 pairs of runs; quartiles 4 and 31 %)."""
    spec = find_spec(package)
    if package in sys.modules or spec is None or spec.loader is None:
        return
    loader, module = spec.loader, module_from_spec(spec)

    def load_name(name: str) -> Any:
        if name not in places:
            del module.__dict__["__getattr__"]
            loader.exec_module(module)
            return getattr(module, name)
        return getattr(import_module(places[name]), name)

    module.__dict__["__getattr__"] = load_name
    sys.modules[package] = module


async def _serve(task: Task, connection: socket.socket) -> None:
    """Serve until the parent says that the run has ended, or the connection closes."""
    import msgspec

    from remuda.cell.service import CellService
    from remuda.lib.files import disable_sync, open_private
    from remuda.localrun.client_file import ensure_token
    from remuda.localrun.containers import remove_containers
    from remuda.localrun.service_log import service_log
    from remuda.telemetry import logs

    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def send(message: object) -> None:
        # The parent may have closed the connection; `leave` handles that.
        with suppress(OSError):
            connection.sendall(_frame(message))

    def leave() -> None:
        loop.remove_reader(connection)
        try:
            is_orderly = connection.recv(1) == _ORDERLY_END
        except ConnectionError:
            is_orderly = False
        if not is_orderly:
            # The run was killed: nobody else removes the containers of its jobs. The id of the parent does not tell
            # this: a killed process closes its connections before its children get another parent.
            remove_containers(task.folder, os.environ)
        if task.ends_with_run and not _has_children():
            # An orderly stop takes longer than a short job, and the data is not used after the run.
            os._exit(0)
        stop.set()

    if task.ends_with_run:
        disable_sync()
    with open_private(task.log) as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
        logs.configure(stream=service_log(log, lambda text: send(Said(text=text))), level=task.log_level)
        loop.add_reader(connection, leave)
        try:
            token = ensure_token(task.folder)
            service = CellService(msgspec.structs.replace(task.settings, admin_token=token))
            await service.run(stop, ready=lambda url: send(Serving(url=url, token=token)))
        except Exception as error:
            send(Failed(error=error))
            raise


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _frame(message: Any) -> bytes:
    data = pickle.dumps(message)
    return _SIZE.pack(len(data)) + data
