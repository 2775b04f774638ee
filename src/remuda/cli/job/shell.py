"""`remuda job shell` and `remuda job release`: open a shell in a job, and stop keeping a failed job for debugging.

While a shell is open, the local terminal is in raw mode; `~.` at the beginning of a line disconnects. Bytes go
through the cell at exact offsets, so that after a broken connection none is lost or repeated."""

import asyncio
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, TextIO, TypeVar

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress
from remuda.cli.job.listing import JobNumber
from remuda.lib.exits import CommandError
from remuda.lib.waiting import unwrap_group_error
from remuda.localrun.render.words import on_one_line

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

QUIET_SECONDS = 1.0
"""If the shell is not open after this time, a message tells the user what the command waits for."""
RETRY_SECONDS = 1.0
PATIENCE_SECONDS = 60.0
"""How long to retry without a connection. After this time the cell has ended the shell anyway."""
READ_BYTES = 16 * 1024
PIECE_BYTES = 256 * 1024
HUNG_UP = 128 + signal.SIGHUP
_T = TypeVar("_T")


def shell(
    job: JobNumber,
    /,
    *command: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="A command to run instead of a shell, after `--`.")
    ],
    cell: CellAddress = USUAL_CELL,
) -> int:
    """Open a shell in the environment of a job that runs, or that failed and is kept for debugging.

    The shell has the job's variables. If the command runs on a terminal, the shell gets a terminal, too, and `~.` at
    the beginning of a line disconnects. Otherwise input and output are passed on unchanged, for use in scripts. The
    exit code is that of the shell or command. Only for maintainers of the project, if the runner allows it.

    Try:

        remuda job shell 7
        remuda job shell 7 -- ps aux
        remuda job shell 7 -- cat build/test.log > test.log
        tar c fixes | remuda job shell 7 -- tar x
    """
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return cell.ask(lambda client: _open_shell(client, job, command, terminal=terminal))


def release(job: JobNumber, /, *, cell: CellAddress = USUAL_CELL) -> None:
    """Stop keeping a failed job for debugging: its environment is closed, and its runner can take another job.

    Try:

        remuda job list --held
        remuda job release 7
    """
    path = f"/api/remuda/v1/jobs/{job}/release"
    cell.ask(lambda client: client.call("POST", path))
    print(f"job {job} is released")


class Escape:
    """Finds the escape sequence `~.` at the beginning of an input line; `~~` there stands for one `~`."""

    def __init__(self) -> None:
        self._at_start = True
        self._tilde = False

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """Process input. Returns the bytes to send, and True if `~.` was found, which disconnects the shell."""
        sent = bytearray()
        for byte in data:
            if self._tilde:
                self._tilde = False
                if byte == ord("."):
                    return bytes(sent), True
                sent += b"~" if byte == ord("~") else bytes((ord("~"), byte))
            elif self._at_start and byte == ord("~"):
                self._tilde = True
                continue
            else:
                sent.append(byte)
            self._at_start = byte in b"\r\n"
        return bytes(sent), False


async def _open_shell(client: "UserClient", job: int, command: tuple[str, ...], *, terminal: bool) -> int:
    size = _terminal_size()
    request = {
        "command": list(command),
        "terminal": terminal,
        "columns": size.columns,
        "rows": size.lines,
        "term": os.environ.get("TERM", "") if terminal else "",
    }
    answer = await client.call("POST", f"/api/remuda/v1/jobs/{job}/shells", request)
    shell_id = str(answer["id"])
    async with _close_at_end(client, job, shell_id):
        return await _Shell(client, job, shell_id, connected=bool(answer.get("connected")), terminal=terminal).run()


@asynccontextmanager
async def _close_at_end(client: "UserClient", job: int, shell_id: str) -> AsyncIterator[None]:
    from remuda.wire.user_client import UserApiError

    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        with suppress(UserApiError, TimeoutError):
            async with asyncio.timeout(2):
                await client.call("DELETE", f"/api/remuda/v1/jobs/{job}/shells/{shell_id}")


@contextmanager
def _raw_terminal() -> Iterator[None]:
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _terminal_size() -> os.terminal_size:
    """Return the current size of the terminal. The variables COLUMNS and LINES are ignored."""
    try:
        return os.get_terminal_size(0)
    except OSError:
        return os.terminal_size((80, 24))


class _Shell:
    def __init__(self, client: "UserClient", job: int, shell_id: str, *, connected: bool, terminal: bool) -> None:
        self._client = client
        self._job = job
        self._id = shell_id
        self._is_connected = connected
        self._terminal = terminal
        self._input = bytearray()
        self._has_input, self._has_room, self._hung_up = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._is_open = False

    async def run(self) -> int:
        """Forward input and output to the end; return the exit code, 129 if disconnected. CommandError if none came."""
        with _raw_terminal() if self._terminal else nullcontext():
            async with unwrap_group_error(), asyncio.TaskGroup() as tasks:
                receiving = tasks.create_task(self._receive(), name="shell output")
                others = [
                    tasks.create_task(self._hung_up.wait(), name="shell hung up"),
                    tasks.create_task(self._send(), name="shell input"),
                    tasks.create_task(self._report_wait(), name="shell waits"),
                ]
                self._start_reading()
                await asyncio.wait({receiving, others[0]}, return_when=asyncio.FIRST_COMPLETED)
                code = receiving.result() if receiving.done() else HUNG_UP
                for task in (receiving, *others):
                    task.cancel()
                return code

    async def _report_wait(self) -> None:
        await asyncio.sleep(QUIET_SECONDS)
        if not self._is_open:
            why = "" if self._is_connected else ", which is not connected to the cell at the moment"
            self._say(f"waiting for the runner manager of job {self._job}{why}")

    def _say(self, text: str) -> None:
        end = "\r\n" if self._terminal else "\n"
        _write(sys.stderr, f"remuda: {on_one_line(text)}{end}".encode())

    async def _state(self) -> tuple[str, str]:
        answer = await self._client.call("GET", f"/api/remuda/v1/jobs/{self._job}/shells/{self._id}")
        return str(answer.get("state")), on_one_line(str(answer.get("reason")))

    async def _receive(self) -> int:
        from remuda.wire.shell import DATA, ERRORS, EXIT, FROM_COMMAND, OPENED, REFUSED, FrameError, Frames, code_of

        offset, frames = 0, Frames(FROM_COMMAND)
        while True:
            part = await self._retry(partial(self._client.shell_output, self._job, self._id, offset))
            offset += len(part.data)
            try:
                for kind, data in frames.feed(part.data):
                    if kind == OPENED:
                        self._is_open = True
                    elif kind == DATA:
                        _write(sys.stdout, data)
                    elif kind == ERRORS:
                        _write(sys.stderr, data)
                    elif kind == EXIT:
                        return code_of(data)
                    elif kind == REFUSED:
                        what = "the shell ended" if self._is_open else "there is no shell"
                        raise CommandError(f"{what}: {on_one_line(data.decode(errors='replace'))}")
            except FrameError as error:
                raise CommandError(
                    f"cannot read the shell's output: {error}; do client, cell and manager have the same version?"
                ) from None
            if part.state == "over" and not part.data:
                raise CommandError(f"the shell ended: {(await self._state())[1]}")

    def _start_reading(self) -> None:
        """Start a thread that reads stdin, because stdin may be a file, which an event loop cannot wait for."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read_input, args=(loop,), name="keys", daemon=True).start()
        if self._terminal:
            loop.add_signal_handler(signal.SIGWINCH, self._send_size)

    def _read_input(self, loop: asyncio.AbstractEventLoop) -> None:
        from remuda.wire.shell import DATA, END, frame

        escape = Escape()
        with suppress(RuntimeError):  # the loop has ended
            while True:
                try:
                    data = os.read(0, READ_BYTES)
                except OSError:
                    data = b""
                keys, is_hung_up = escape.feed(data) if self._terminal else (data, False)
                message = frame(DATA, keys) if keys else b""
                if not data:
                    is_hung_up, message = self._terminal, b"" if self._terminal else frame(END)
                if message:
                    asyncio.run_coroutine_threadsafe(self._put(message), loop).result()
                if is_hung_up:
                    loop.call_soon_threadsafe(self._hung_up.set)
                if not data or is_hung_up:
                    return

    def _send_size(self) -> None:
        from remuda.wire.shell import size_frame

        size = _terminal_size()
        self._input += size_frame(size.columns, size.lines)
        self._has_input.set()

    async def _put(self, data: bytes) -> None:
        while len(self._input) > PIECE_BYTES:
            self._has_room.clear()
            await self._has_room.wait()
        self._input += data
        self._has_input.set()

    async def _send(self) -> None:
        from remuda.wire.user_client import RefusedError

        place = 0
        while True:
            await self._has_input.wait()
            self._has_input.clear()
            while self._input:
                piece = bytes(self._input[:PIECE_BYTES])
                try:
                    await self._retry(partial(self._client.shell_input, self._job, self._id, place, piece))
                except RefusedError as error:
                    if error.status != 416:
                        raise
                    if (await self._state())[0] == "over":
                        return  # `_receive` reports why
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                place += len(piece)
                del self._input[: len(piece)]
                self._has_room.set()

    async def _retry(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Repeat a call while the cell cannot be reached, for `PATIENCE_SECONDS`. Then raises the last error."""
        from remuda.wire.user_client import RefusedError, UserApiError

        loop = asyncio.get_running_loop()
        since: float | None = None
        while True:
            try:
                return await call()
            except RefusedError:
                raise
            except UserApiError as error:
                if since is None:
                    since = loop.time()
                    self._say(f"{error}; trying again")
                if loop.time() - since > PATIENCE_SECONDS:
                    raise
                await asyncio.sleep(RETRY_SECONDS)


def _write(stream: TextIO, data: bytes) -> None:
    stream.buffer.write(data)
    stream.buffer.flush()
