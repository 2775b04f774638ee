"""The few lines of shell that every step's command runs under, and reading the files they leave.

The shim outlives the agent. It is the leader of a session of its own, so that one signal reaches everything the step
started, and it ignores the signals that end its command, so that it can still write down how that ended.

Whoever makes the pid file, exclusively, runs the step. So an agent that does not know whether its predecessor
started a step starts it again: the second shim finds the file and goes. `forbid` makes the same claim for nobody.
The environment is given to the shim itself, nothing secret is an argument, and it needs no program but the shell.
"""

import os
import signal
from collections.abc import Mapping, Sequence
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
shift 3
_remuda_start() { shift 21; _remuda_stat=$1; }
read -r _remuda_stat 2>/dev/null </proc/$$/stat && _remuda_start $_remuda_stat
set -C
{ echo "$$ ${_remuda_stat:-0}" >"$_remuda_base.pid"; } 2>/dev/null || exit 111
set +C
exec </dev/null >/dev/null 2>&1
(
exec >>"$_remuda_base.raw" 2>&1
while [ "$1" != -- ]; do echo 0 >"$1" || exit 125; shift; done
shift
cd "$_remuda_work" && exec "$@"
)
echo "$?" >"$_remuda_base.exit"
"""
RESET = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ)


def spawn(
    files: StepFiles,
    command: Sequence[str],
    *,
    work_dir: Path,
    env: Mapping[str, str],
    open_files: int,
    joins: Sequence[str] = (),
) -> int:
    """Start a shim for a prepared step; its process number. `joins`: control groups that the command is to be in."""
    arguments = [SHELL, "-c", _TEXT, "remuda-shim", str(files.base), str(work_dir), str(open_files)]
    arguments += [*joins, "--", *command]
    return os.posix_spawn(SHELL, arguments, dict(env), setsid=True, setsigmask=(), setsigdef=RESET)


def claimed(files: StepFiles) -> tuple[int, int] | None:
    """Process number and start time of the shim that runs the step; None while there is none."""
    text = _complete(files.pid)
    if text is None:
        return None
    pid, start = text.split()
    return int(pid), int(start)


def forbid(files: StepFiles) -> bool:
    """Make sure that no shim starts this step from now on; False when one already did."""
    try:
        os.close(os.open(files.pid, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    except FileNotFoundError:
        pass
    return True


def exit_code(files: StepFiles) -> int | None:
    """How the command ended; None when the shim did not come to write it."""
    text = _complete(files.exit)
    return None if text is None else int(text.split()[0])


def told_usage(files: StepFiles) -> tuple[float, float, int] | None:
    """Seconds of user and system time and KiB of memory, where whoever ran the step could tell."""
    words = (_complete(files.exit) or "").split()[1:]
    return (float(words[0]), float(words[1]), int(words[2])) if words else None


def exited_at(files: StepFiles) -> float | None:
    """When the exit code was written."""
    try:
        return files.exit.stat().st_mtime
    except FileNotFoundError:
        return None


def start_time(pid: int) -> int | None:
    """The kernel's start time of a process, which tells a reused number from the process that had it before."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def _complete(path: Path) -> str | None:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    return text.strip() if text.endswith("\n") else None
