"""The agent's data folder: locks it for one agent of one user, and publishes the socket there for clients.

    agent.lock   held by the living agent; the kernel releases it when the agent dies
    format       version of the folder
    agent.sock   the socket, unless this path would be too long for a socket
    socket       the path of the socket; clients read it here
    endpoint     instead of both, if the agent listens on TCP: JSON with host, port and token
    agent.log    warnings and errors of the agent after its start; stderr may be a pipe that nobody reads
    jobs/        a folder for each job; see `journal`
    packages/    fetched packages of steps; see `resolving.cache`
    damaged/     folders of jobs whose files were damaged; see `journal`
    reserve/     disk space that is released when the disk is full; see `disk`

The agent refuses a folder, and does not change it, if it belongs to another user, is shared by all users like /tmp, or
has files of another program in it."""

import json
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from remuda.lib.files import InUseError, hold_lock, write_whole
from remuda.lib.safe_paths import remove_tree
from remuda.steps.errors import AgentError, DataInUseError

FORMAT = 1
TOKEN_KEY = "remuda-token"
"""The metadata of a call in which a client sends the token of an agent that listens on TCP."""
LONGEST_SOCKET_PATH = 100
"""A kernel takes 107 bytes; some clients append a suffix."""
LARGEST_LOG_BYTES = 1024 * 1024
_TEMPORARY = "remuda-agent-"
_BEFORE_FORMAT = ("agent.", "lost+found")
"""A folder without the file `format` may have names that begin like this, from a killed start or on a new disk."""


def default_data(environ: Mapping[str, str]) -> Path:
    if state := environ.get("XDG_STATE_HOME"):
        return Path(state) / "remuda-agent"
    if home := environ.get("HOME"):
        return Path(home) / ".local/state/remuda-agent"
    return Path(tempfile.gettempdir()) / f"remuda-agent-{os.getuid()}"


def socket_in(data: Path) -> Path | None:
    """Read the socket's path from an agent's data folder; None if no agent was started there, or it listens on TCP."""
    try:
        return Path(os.fsdecode((data / "socket").read_bytes().rstrip(b"\n")))
    except FileNotFoundError:
        return None


def temporary_folder(data: Path) -> Path | None:
    """Return the temporary folder made for the agent's socket if other paths were too long; None if there is none."""
    socket = socket_in(data)
    return socket.parent if socket is not None and socket.parent.name.startswith(_TEMPORARY) else None


def endpoint_in(data: Path) -> dict[str, Any] | None:
    """Read host, port and token of an agent that listens on TCP from its data folder; None if the agent does not."""
    try:
        endpoint: dict[str, Any] = json.loads((data / "endpoint").read_bytes())
    except FileNotFoundError:
        return None
    return endpoint


@contextmanager
def occupy(data: Path) -> Iterator[Callable[[], bool]]:
    """Create the data folder if necessary, and lock it during the block. Yields a function that returns False when the
    folder was removed or replaced. Raises DataInUseError if another agent has locked it, AgentError if the folder
    cannot be used."""
    _make_private(data)
    with ExitStack() as stack:
        folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, folder)
        try:
            stack.enter_context(hold_lock(data / "agent.lock"))
        except InUseError as error:
            raise DataInUseError(
                f"another agent (process {error.holder}) serves {data}; use that one, or give another --data"
            ) from None
        _check_format(data / "format")
        stack.enter_context(_log_to(data / "agent.log"))
        yield lambda: _is_still(folder, data)


@contextmanager
def socket_path(data: Path, requested: Path | None) -> Iterator[Path]:
    """Yield the path at which the agent must create its socket: `requested`, by default in `data`; if that path is too
    long for a socket, one in a new temporary folder. Removes the socket after the block."""
    _remove_temporary(data / "socket")
    path = Path(os.path.abspath(requested or data / "agent.sock"))
    temporary: str | None = None
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        # Use /tmp where the path of TMPDIR is too long itself.
        room = LONGEST_SOCKET_PATH - len(f"/{_TEMPORARY}12345678/agent.sock")
        place = tempfile.gettempdir() if len(os.fsencode(tempfile.gettempdir())) <= room else "/tmp"
        temporary = tempfile.mkdtemp(prefix=_TEMPORARY, dir=place)
        path = Path(temporary) / "agent.sock"
    folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield path
    finally:
        # A new folder at the same path may have another agent's socket in it.
        if _is_still(folder, data):
            if path.is_socket():
                path.unlink()
            (data / "socket").unlink(missing_ok=True)
        os.close(folder)
        if temporary is not None:
            remove_tree(temporary, ignore_errors=True)


def _is_still(folder: int, data: Path) -> bool:
    """True if the path `data` still leads to `folder` (an open descriptor), which was not removed or replaced."""
    try:
        return os.path.samestat(os.fstat(folder), os.stat(data))
    except OSError:
        return False


def announce(data: Path, path: Path) -> None:
    write_whole(data / "socket", os.fsencode(path) + b"\n")


def announce_endpoint(data: Path, *, host: str, port: int, token: str) -> None:
    write_whole(data / "endpoint", json.dumps({"host": host, "port": port, "token": token}).encode())


class _PrivateLog(RotatingFileHandler):
    """A rotating log that only its owner can read, because other users may have search permission for its folder."""

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        os.fchmod(stream.fileno(), 0o600)
        return stream

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Ignore write errors: the disk may be full, and a traceback for each line would not help."""


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    handler = _PrivateLog(path, maxBytes=LARGEST_LOG_BYTES, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.setLevel(logging.WARNING)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def _make_private(data: Path) -> None:
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = data.stat()
    if status.st_uid != os.getuid() or status.st_mode & stat.S_ISVTX:
        raise AgentError(f"{data} belongs to somebody else or to everybody; give a folder of your own with --data")
    if not (data / "format").exists():
        names = sorted(path.name for path in data.iterdir())
        foreign = [name for name in names if not name.startswith((".", *_BEFORE_FORMAT))]
        if foreign:
            raise AgentError(
                f"the folder {data} is not an agent's (it has {', '.join(foreign[:3])}); "
                "give an empty or a new one with --data"
            )
    # Keep the search bits: a running step of another user passes through to its own files.
    data.chmod(0o700 | status.st_mode & 0o011)


def _check_format(path: Path) -> None:
    content = path.read_bytes().strip() if path.exists() else b""
    if not content.isdigit():  # missing, or damaged: no agent writes that; each job has its own version
        write_whole(path, f"{FORMAT}\n".encode())
    elif int(content) != FORMAT:
        raise AgentError(
            f"{path.parent} has format {int(content)}, this agent knows {FORMAT}; start the agent that wrote it"
        )


def _remove_temporary(note: Path) -> None:
    if (folder := temporary_folder(note.parent)) is not None and not folder.is_symlink():
        remove_tree(folder, ignore_errors=True)
    note.unlink(missing_ok=True)
