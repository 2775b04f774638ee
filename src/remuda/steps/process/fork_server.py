"""A fork server: a process that has imported the built-in (standard) steps and forks worker processes that run them.

Importing a step takes longer than most steps run; a fork takes a millisecond. A worker does what the `shim` does: it
leads a session, claims the step by creating its pid file, and writes the exit code there (not if it is killed). So any
agent can take over the step, and the step goes on if the fork server ends, which keeps no state of jobs.

Writing to forked memory is slow, too, so a worker that has run one of the usual steps successfully waits for another
one of the same job. It receives that over its *line*, a socket to its agent, and exits when this socket is closed. If
the fork server does not answer, `spawn` returns None and the agent uses the shim; the claim prevents a second start.

The fork server is forked early: before the agent opens files that it must not inherit, and while there is little memory
to copy. So it has the agent's command line; its process name is `NAME`. `ForkServer` is used in the agent,
`_serve_forks` is the code of the fork server process."""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from remuda.lib.dataclass import dataclass
from remuda.steps.process import shim
from remuda.steps.process.enclosure_entry import enter
from remuda.steps.process.job_processes import LED
from remuda.steps.process.marks import mark_this_process
from remuda.steps.process.step_files import StepFiles

NAME = "remuda-standby"
"""Name of the process in a list of processes."""
ANSWER_SECONDS = 5.0
"""How long a fork may take before the shim is used instead."""
_PROGRAM = "remuda.stdsteps.__main__"
_SIZE, _STARTED = struct.Struct("!I"), struct.Struct("!QQ")
_PR_SET_PDEATHSIG = 1
_LOOK_SECONDS = 0.001
_MARK = b"\0"
"""The byte that is sent together with the descriptor of a line."""
WAITS = b"\n"
"""What a worker sends over its line when it has run a step and waits for another one."""
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A forked process that runs built-in steps, as the agent knows it: process id, start time and the socket to it."""

    pid: int
    start: int
    line: int
    """The agent's end of the line to it."""

    def take(self, request: Mapping[str, Any]) -> bool:
        """Send a waiting worker its next step. Returns False, and closes the socket, if the worker has died."""
        with socket.socket(fileno=os.dup(self.line)) as line:
            line.settimeout(ANSWER_SECONDS)
            try:
                line.sendall(_frame(request))
            except OSError:
                self.leave()
                return False
            # Blocking mode is shared by all duplicates of a socket.
            line.setblocking(False)
        return True

    def lives(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            # If the fork server is gone, it is the agent's child.
            os.waitpid(self.pid, os.WNOHANG)
        return shim.start_time(self.pid) == self.start

    def leave(self) -> None:
        """Close the socket to the worker, so that it exits: at once if it waits, otherwise after its step."""
        os.close(self.line)


def build_request(
    files: StepFiles,
    program: Sequence[str],
    *,
    work_dir: Path | str,
    env: Mapping[str, str],
    open_files: int,
    enclosure: Mapping[str, Any] | None = None,
    key: str = "",
) -> dict[str, Any]:
    """Return the request with which a worker runs a built-in step. `program`: name and arguments of the step.
    `enclosure`: limits and user to set first (`enclosure_entry.enter`). `key`: the job's key, to mark its processes."""
    return {
        "base": str(files.base),
        "program": list(program),
        "work_dir": str(work_dir),
        "env": dict(env),
        "open_files": open_files,
        "enclosure": dict(enclosure or {}),
        "key": key,
    }


class ForkServer:
    """The agent's connection to the fork server, which the constructor forks. It answers after importing the steps."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair()
        self._connection.settimeout(ANSWER_SECONDS)
        self._parting: list[Worker] = []
        agent = os.getpid()
        self._pid: int | None = os.fork()
        if self._pid == 0:
            self._connection.close()
            _serve_forks(theirs, agent)
        LED.add(self._pid)
        theirs.close()

    def spawn(self, request: Mapping[str, Any]) -> Worker | None:
        """Fork a worker for this request of `build_request`. None if the fork server fails: then use the shim."""
        if self._pid is None:
            return None
        line, theirs = socket.socketpair()
        with theirs:
            line.setblocking(False)
            try:
                socket.send_fds(self._connection, [_MARK], [theirs.fileno()])
                self._connection.sendall(_frame(request))
                answer = _receive(self._connection, _STARTED.size)
            except OSError:
                answer = b""
        if not answer:
            line.close()
            self.close()
            return None
        pid, start = _STARTED.unpack(answer)
        return Worker(pid=pid, start=start, line=line.detach())

    def part(self, worker: Worker) -> None:
        """Make a worker exit that waits for a step. `close` waits for its exit."""
        worker.leave()
        self._parting = [other for other in self._parting if other.lives()] + [worker]

    def close(self) -> None:
        """Wait up to `ANSWER_SECONDS` for the workers of `part`, then kill the fork server. Running steps continue."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while any(worker.lives() for worker in self._parting) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        self._connection.close()
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            LED.discard(self._pid)
            self._pid = None


def _serve_forks(connection: socket.socket, agent: int) -> NoReturn:
    """Main function of the fork server: fork a worker per request, until the process `agent` has ended."""
    try:
        os.setsid()
        # If the agent is killed during its start, this process dies, too, even before its imports are done.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != agent:
            os._exit(0)
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text(NAME)
        for number in (*_ENDING, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # The parent may have replaced them.
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        # Children share this memory until it is written to, and collecting garbage writes to all of it.
        gc.disable()
        program = importlib.import_module(_PROGRAM)
        program.load()
        gc.freeze()
        # The kernel reaps the children: their exit codes are not needed.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while ends := socket.recv_fds(connection, len(_MARK), 1)[1]:
            line = socket.socket(fileno=ends[0])
            request = _read(connection)
            if not request:
                break
            pid = os.fork()
            if pid == 0:
                connection.close()
                _serve_steps(request, line, program)
            line.close()
            connection.sendall(_STARTED.pack(pid, shim.start_time(pid) or 0))
    except OSError:
        pass
    except BaseException:  # noqa: BLE001 - the child must not go on as its parent
        traceback.print_exc()
    finally:
        os._exit(0)


def _frame(request: Mapping[str, Any]) -> bytes:
    data = json.dumps(request).encode()
    return _SIZE.pack(len(data)) + data


def _read(connection: socket.socket) -> dict[str, Any]:
    """Read a request; an empty dict if the peer has closed the connection."""
    head = _receive(connection, _SIZE.size)
    data = _receive(connection, *_SIZE.unpack(head)) if head else b""
    return json.loads(data) if data else {}


def _receive(connection: socket.socket, size: int) -> bytes:
    """Read exactly `size` bytes; empty if the peer closes the connection before all have arrived."""
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return b""
        data += part
    return data


def _serve_steps(request: dict[str, Any], line: socket.socket, standard_steps: Any) -> NoReturn:
    """Main function of a worker process: run a step as the leader of a new session, then further ones whose requests
    arrive over the socket `line`. Exits when `line` is closed, or after a step that failed, had limits or another user,
    or is not in `USUAL` of the module `standard_steps`."""
    code = 1
    try:
        os.set_inheritable(line.fileno(), False)
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        before = (0.0, 0.0)
        while request:
            code = _run(request, standard_steps.main, before)
            if code or request["enclosure"] or request["program"][0] not in standard_steps.USUAL:
                break
            _reset_worker()
            line.sendall(WAITS)
            request = _read(line)
            before = _measure_usage()[:2]
            with contextlib.suppress(OSError):
                # Reset the peak memory for the next step.
                Path("/proc/self/clear_refs").write_text("5")
    except (OSError, _EndedError):
        pass
    finally:
        os._exit(code)


def _reset_worker() -> None:
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    os.environ.clear()


def _measure_usage() -> tuple[float, float, int]:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return (
        sum(usage.ru_utime for usage in used),
        sum(usage.ru_stime for usage in used),
        max(usage.ru_maxrss for usage in used),
    )


def _run(request: dict[str, Any], main: Any, before: tuple[float, float]) -> int:
    """Create the step's pid file, run the step by `main`, write exit code and usage to that file, and return the exit
    code. If the file exists, another process runs the step: exit. `before`: CPU seconds (user, system) used before."""
    for number in _ENDING:
        signal.signal(number, _end)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (request["open_files"], hard))
    mark_this_process(request["key"])
    base = request["base"]
    try:
        claim = os.open(f"{base}.pid", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except OSError:
        os._exit(shim.LOST_CLAIM)
    os.write(claim, f"{os.getpid()} {shim.start_time(os.getpid()) or 0}\n".encode())
    os.close(claim)
    code = _run_enclosed(request, main) if request["enclosure"] else _run_program(request, main)
    user, system, most = _measure_usage()
    # The shim's format, with the usage that a shell cannot measure.
    with open(f"{base}.pid", "a") as file:
        file.write(f"{code} {user - before[0]:.6f} {system - before[1]:.6f} {most}\n")
    return code


def _run_enclosed(request: dict[str, Any], main: Any) -> int:
    """Run the step by `main` in a child with its limits and user; only this process can write the exit code."""
    # Signals reach the whole group: the child handles them, this process waits for its end.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            code = _run_program(request, main)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _run_program(request: dict[str, Any], main: Any) -> int:
    """Run the step by `main` in this process, with its variables, working directory and output. Prints exceptions."""
    code = 1
    try:
        for place, descriptor in (
            (os.open(os.devnull, os.O_RDONLY), 0),
            (os.open(f"{request['base']}.raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 1),
        ):
            os.dup2(place, descriptor)
            os.close(place)
        os.dup2(1, 2)
        os.environ.clear()
        os.environ.update(request["env"])
        if request["enclosure"]:
            os.environ.update(enter(request["enclosure"]))
        os.chdir(request["work_dir"])
        code = main(request["program"])
    except _EndedError as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - the child must not go on as its parent
        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    return code


class _EndedError(BaseException):
    """Raised in a worker when its step receives SIGTERM, SIGINT or SIGHUP. `code` is the exit code."""

    def __init__(self, code: int) -> None:
        self.code = code


def _end(number: int, _frame: object) -> NoReturn:
    """Signal handler: raise _EndedError once, then ignore the signal, which must not interrupt the step's cleanup."""
    signal.signal(number, signal.SIG_IGN)
    raise _EndedError(128 + number)
