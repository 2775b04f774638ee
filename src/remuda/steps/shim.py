"""The few lines of shell that every step's command runs under, and reading the files they leave.

The shim outlives the agent. It is the leader of a session of its own, so that one signal reaches everything the step
started, and it ignores the signals that end its command, so that it can still write down how that ended.

Whoever makes the pid file, exclusively, runs the step, and adds to it how that ended. So an agent that does not know
whether its predecessor started a step starts it again: the second shim finds the file and goes. `forbid` makes the same
claim for nobody.
The environment is given to the shim itself, nothing secret is an argument, and it needs only the shell and `cat`.

What a command prints goes through a pipe: one that opens its own output anew (`>/dev/stderr`) would empty a file. Where
there is no `cat`, or no pipe can be made, it is the file after all. Our own programs always have the file.
"""

import os
import re
import shutil
import signal
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from remuda.steps.files import StepFiles

SHELL = "/bin/sh"
LOST_CLAIM = 111
"""Exit code of a shim that found the step already started."""

# Names begin with _remuda_ because assigning to a name that is in the environment would change it for the step.
# Only the subshell writes to the raw file, or the shell's remark about a killed command would stand there too. And only
# the subshell joins the step's control groups: what is killed there for its memory must not be the shim.
_TEXT = r"""
trap : TERM INT HUP
_remuda_base=$1
_remuda_work=$2
ulimit -S -n "$3" 2>/dev/null
_remuda_cat=$4
shift 4
_remuda_start() { shift 21; _remuda_stat=$1; }
read -r _remuda_stat 2>/dev/null </proc/$$/stat && _remuda_start $_remuda_stat
set -C
{ echo "$$ ${_remuda_stat:-0}" >"$_remuda_base.pid"; } 2>/dev/null || exit 111
set +C
exec </dev/null >/dev/null 2>&1
_remuda_out=$_remuda_base.raw
if [ -n "$_remuda_cat" ] && [ -p "$_remuda_base.pipe" ]; then
(trap "" TERM INT HUP; exec "$_remuda_cat" <"$_remuda_base.pipe" >>"$_remuda_base.raw") &
_remuda_out=$_remuda_base.pipe
fi
(
exec >>"$_remuda_out" 2>&1
while [ "$1" != -- ]; do echo 0 >"$1" || exit 125; shift; done
shift
cd "$_remuda_work" && exec "$@"
)
echo "$?" >>"$_remuda_base.pid"
"""
_CLAIM = re.compile(rb"(\d{1,10}) (\d{1,20})\n")
_ENDED = re.compile(rb"(\d{1,3})(?: (\d+(?:\.\d+)?) (\d+(?:\.\d+)?) (\d+))?\n")
_LAST_PID = 2**22
"""No kernel gives a process a larger number."""
_CAT = shutil.which("cat", path="/usr/local/bin:/usr/bin:/bin") or ""
"""Not looked for in the step's own PATH, which may be anything."""
RESET = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ)


def make_pipe(files: StepFiles) -> None:
    """For a step whose output is to go through one; an earlier agent may have made it, and started a shim with it."""
    with suppress(OSError):
        os.mkfifo(files.own(".pipe"), 0o600)


def spawn(
    files: StepFiles,
    command: Sequence[str],
    *,
    work_dir: Path | str,
    env: Mapping[str, str],
    open_files: int,
    joins: Sequence[str] = (),
    piped: bool = False,
) -> int:
    """Start a shim for a prepared step; its process number. `joins`: control groups that the command is to be in.

    `piped`: the output is the pipe that `make_pipe` has made, if it has. What copies it is of the step's session, does
    not go by the signals that end the step, and may end after the shim.
    """
    arguments = [SHELL, "-c", _TEXT, "remuda-shim", str(files.base), str(work_dir), str(open_files)]
    arguments.append(_CAT if piped else "")
    arguments += [*joins, "--", *command]
    return os.posix_spawn(SHELL, arguments, dict(env), setsid=True, setsigmask=(), setsigdef=RESET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What stands in the file of a step that was claimed: who runs it, and how it ended if it has."""

    pid: int
    start: int
    exit_code: int | None = None
    """None while it runs, and where the shim did not come to write it."""
    usage: tuple[float, float, int] | None = None
    """Seconds of user and system time and KiB of memory, where whoever ran the step could tell."""
    ended_at: float | None = None


def record(files: StepFiles) -> Record | None:
    """What is known of the shim that runs the step; None while there is none, and where the file is not as shims
    write it: a job of the agent's own user can reach it."""
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
    found = _CLAIM.match(data)
    if found is None:
        return None
    pid, start = int(found[1]), int(found[2])
    if not 1 < pid <= _LAST_PID:
        return None
    rest = data[found.end() :]
    if b"\n" not in rest:
        return Record(pid=pid, start=start)
    ended = _ENDED.match(rest)
    if ended is None or (code := int(ended[1])) > 255:
        return None
    usage = (float(ended[2]), float(ended[3]), int(ended[4])) if ended[2] else None
    return Record(pid=pid, start=start, exit_code=code, usage=usage, ended_at=written_at)


def claimed(files: StepFiles) -> tuple[int, int] | None:
    """Process number and start time of the shim that runs the step; None while there is none."""
    found = record(files)
    return None if found is None else (found.pid, found.start)


def forbid(files: StepFiles) -> bool:
    """Make sure that no shim starts this step from now on; False when one already did."""
    try:
        os.close(os.open(files.claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    except FileNotFoundError:
        pass
    return True


def start_time(pid: int) -> int | None:
    """The kernel's start time of a process, which tells a reused number from the process that had it before."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[19])
