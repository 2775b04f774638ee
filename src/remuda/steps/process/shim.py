"""The shim: a small shell script that runs a step's command and writes its exit code to a file.

It continues if the agent ends, leads a session, so that one signal reaches everything the step started, and ignores the
signals that end its command. Secrets are never arguments. The first shim that creates the step's pid file (exclusively)
*claims* the step: it alone runs the command and appends the exit code. So an agent that does not know whether an
earlier one started a step just starts another shim; `forbid` creates the file so that no shim can.

A command prints into a pipe (`pipes`), which the shim holds open. After its end the shim writes the exit code, reports
over the socket that is its stdin, and waits until the agent has read the pipe. If the agent has died, the shim stops
itself (SIGSTOP), and the next agent ends it. Built-in programs print into the raw file instead, without a socket."""

import os
import re
import signal
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.steps.process.job_processes import start_time as start_time
from remuda.steps.process.marks import mark_children
from remuda.steps.process.step_files import StepFiles

SHELL = "/bin/sh"
NAME = "remuda-shim"
LOST_CLAIM = 111
"""Exit code of a shim that found the step already started."""

# Names begin with _remuda_ because assigning to a name that is in the environment would change it for the step.
# The shim's own stderr is /dev/null, or the shell's message about a killed command would be in the log. Only the
# subshell joins the step's control groups, so that a kill for too much memory never hits the shim. The shim records 0
# as its start time, because finding it would take a tenth of a short step's time: `start_of` recognizes a shim by its
# arguments instead. An error of `exec` itself begins with $0, which is not the shim's name: it is in the job's log.
_TEXT = r"""
shift
trap : TERM INT HUP PIPE
_remuda_base=$1
_remuda_work=$2
set -C
echo "$$ 0" >"$_remuda_base.pid" || exit 111
set +C
ulimit -S -n "$3"
_remuda_out=$4
shift 4
if [ -n "$_remuda_out" ]; then exec >>"$_remuda_out"; fi
(
exec </dev/null 2>&1
while [ "$1" != -- ]; do echo 0 >"$1" || exit 125; shift; done
shift
cd "$_remuda_work" 2>/dev/null || { echo "work_dir $_remuda_work: cannot be entered"; exit 126; }
case $1 in
*/*)
[ -e "$1" ] || { echo "exec: $1: not found"; exit 127; }
[ -x "$1" ] || { echo "exec: $1: permission denied"; exit 126; } ;;
esac
exec "$@"
)
echo "$?" >>"$_remuda_base.pid"
if [ -n "$_remuda_out" ]; then exit 0; fi
echo >&0 && read -r _remuda_out && exit 0
while [ -e "$_remuda_base.pid" ]; do kill -STOP $$; done
"""
_CLAIM = re.compile(rb"(\d{1,10}) (\d{1,20})\n")
_ENDED = re.compile(rb"(\d{1,3})(?: (\d+(?:\.\d+)?) (\d+(?:\.\d+)?) (\d+))?\n")
_LAST_PID = 2**22
"""No kernel gives a process a larger number."""
RESET = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ)


def spawn(
    files: StepFiles,
    command: Sequence[str],
    *,
    work_dir: Path | str,
    env: Mapping[str, str],
    open_files: int,
    joins: Sequence[str] = (),
    key: str = "",
    ends: tuple[int, int] | None = None,
) -> int:
    """Start a shim for a step whose files exist, and return its process id. `open_files`: limit of open files. `joins`:
    the cgroup.procs files that the command joins. `key`: the job's key, to mark all processes. `ends`: descriptors of
    the socket to the agent and of the pipe for output; without them output goes into the raw file."""
    out = "" if ends else files.own_path(".raw")
    arguments = [
        SHELL,
        "-c",
        _TEXT,
        "step",
        NAME,
        files.own_path(""),
        str(work_dir),
        str(open_files),
        out,
        *joins,
        "--",
        *command,
    ]
    null = os.devnull
    actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, 2, null, os.O_WRONLY, 0)]
    if ends is None:
        actions += [(os.POSIX_SPAWN_OPEN, 0, null, os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, null, os.O_WRONLY, 0)]
    else:
        actions += [(os.POSIX_SPAWN_DUP2, ends[0], 0), (os.POSIX_SPAWN_DUP2, ends[1], 1)]
    with mark_children(key):
        return os.posix_spawn(SHELL, arguments, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=RESET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Content of a step's pid file: the process that runs the step and, after its end, exit code and usage."""

    pid: int
    start: int
    """Kernel's start time of the process; 0 for a shim, which does not record it (see `start_of`)."""
    exit_code: int | None = None
    """None while it runs, and if the shim could not write it."""
    usage: tuple[float, float, int] | None = None
    """Seconds of user and system time and KiB of memory, if known."""
    ended_at: float | None = None


def read_record(files: StepFiles) -> Record | None:
    """Read the pid file; None if missing or malformed. Do not trust it: a job with the agent's user can change it."""
    try:
        file = os.open(files.claim, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        data = os.read(file, 4096)
        written_at = os.fstat(file).st_mtime
    finally:
        os.close(file)
    claim = _CLAIM.match(data)
    if claim is None:
        return None
    pid, start = int(claim[1]), int(claim[2])
    if not 1 < pid <= _LAST_PID:
        return None
    rest = data[claim.end() :]
    if b"\n" not in rest:
        return Record(pid=pid, start=start)
    ended = _ENDED.match(rest)
    if ended is None or (code := int(ended[1])) > 255:
        return None
    usage = (float(ended[2]), float(ended[3]), int(ended[4])) if ended[2] else None
    return Record(pid=pid, start=start, exit_code=code, usage=usage, ended_at=written_at)


def read_claim(files: StepFiles) -> tuple[int, int] | None:
    """Return process id and start time of the process (shim or worker) that has created the step's pid file, so that it
    alone runs the step; None if there is none. The start time is 0 if it was not recorded and the process has ended."""
    record = read_record(files)
    return None if record is None else (record.pid, start_of(record, files))


def start_of(record: Record, files: StepFiles) -> int:
    """Return the start time of the process in a pid file, read from /proc if not recorded; 0 if it has ended."""
    if record.start:
        return record.start
    arguments = f"\0{NAME}\0{files.own_path('')}\0".encode("utf-8", "surrogateescape")
    try:
        is_it = arguments in Path(f"/proc/{record.pid}/cmdline").read_bytes()
    except OSError:
        is_it = False
    return (start_time(record.pid) or 0) if is_it else 0


def forbid(files: StepFiles) -> bool:
    """Create the step's pid file, so that nothing can start the step any more. Returns False if the file exists."""
    try:
        os.close(os.open(files.claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    except FileNotFoundError:
        pass
    return True


def withdraw(files: StepFiles) -> bool:
    """Remove an empty pid file, so that the step can start again; a shim leaves one if the disk is full. False if there
    is no empty one. The caller must be certain that no other process has started the step."""
    try:
        if os.lstat(files.claim).st_size:
            return False
        os.unlink(files.claim)
    except OSError:
        return False
    return True
