"""What a run does first, so that it overlaps: agent and cell start as processes.

Each takes longer than anything that comes before the first job, and none needs to know what will be run; so they
begin before the options are read. Nothing of the platform is decided here; `remuda run` is the caller, which imports
its own part of the platform when they have got theirs: before that it would only take the processors from them.

Invariant: whatever comes in between, nothing of what was started here is left when `end` returns, which the command
calls last; signals that come while something is started, or ended, wait until it is known, or gone.
"""

import gc
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from remuda.cli.exits import CommandError, Exit
from remuda.lib import safe_paths
from remuda.localrun.isolation import OPTION, Isolation, Wanted, around_run, find_isolation, open_to_jobs, runs_folder
from remuda.localrun.sources.git_variables import REPOSITORY_VARIABLES
from remuda.manager.environments.agent_process import spawn_agent

if TYPE_CHECKING:
    from remuda.localrun.cell_process import CellProcess

NO_PROXY = ("127.0.0.1", "localhost", "::1")
AGENT_IDLE_SECONDS = 5.0
"""After a kill -9 of the run, which can stop nothing any more, the agent ends by itself so long after its jobs."""
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STARTS_NOTHING = frozenset({"--help", "-h", "--list"})


class Started(NamedTuple):
    """What runs already."""

    folder: Path
    """The platform's."""
    agent_pid: int
    """The agent that starts in it."""
    is_temporary: bool
    own: Path
    """In it, for what the run needs beside the platform; it goes in any case."""
    isolation: Isolation
    around_agent: tuple[str, ...]
    """What stands before the agent's command."""


_started: list[Started] = []
_cells: "list[CellProcess]" = []


def begin(arguments: Sequence[str]) -> None:
    """Start what can be started, if these arguments of `remuda run` look as if there will be a run."""
    for name in REPOSITORY_VARIABLES:
        # Inside a git hook these would turn the git of every job to the repository of the hook.
        os.environ.pop(name, None)
    if STARTS_NOTHING.intersection(arguments):
        return
    # What is made from here until the platform stands stays; `settled` says when that is.
    gc.disable()
    listen_to_signals()
    keep_off_proxies()
    if not any(word.startswith(("--data", OPTION)) for word in arguments):
        start(None)
    start_cell()


def start(data: Path | None, wanted: Wanted = "auto") -> Started:
    """The platform's folder, the given one or a temporary one, and its agent; started now unless that was done."""
    if not _started:
        with _deaf():
            folder = data or _temporary_folder()
            own = Path(tempfile.mkdtemp(dir=folder, prefix="snapshot-"))
            try:
                isolation = find_isolation(wanted, folder)
                around: tuple[str, ...] = ()
                if isolation.kind == "bubblewrap":
                    around = around_run(folder, manager_data(folder), own)
                elif isolation.run_as:
                    open_to_jobs(folder)
                pid = spawn_agent(manager_data(folder), idle_exit_seconds=AGENT_IDLE_SECONDS, around=around)
            except (OSError, CommandError):
                shutil.rmtree(own if data else folder, ignore_errors=True)
                _remove_shared()
                raise
            _started.append(
                Started(
                    folder=folder,
                    agent_pid=pid,
                    is_temporary=data is None,
                    own=own,
                    isolation=isolation,
                    around_agent=around,
                )
            )
    return _started[0]


def _temporary_folder() -> Path:
    """One of its own in the folder that all runs of this user share; that is made, and again where another run, the
    last one then, has just removed it. What somebody else has made there is not used."""
    shared = Path(runs_folder())
    while True:
        with suppress(FileExistsError):
            shared.mkdir(mode=0o700)
        try:
            found = shared.lstat()
            is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o066
            return Path(tempfile.mkdtemp(dir=shared if is_ours else None, prefix="remuda-run-"))
        except FileNotFoundError:
            continue


def _remove_shared() -> None:
    """The last run's folder is gone: so goes the one around it."""
    with suppress(OSError):
        os.rmdir(runs_folder())


def start_cell() -> "CellProcess":
    """The process of the run's cell; started now unless that was done."""
    # Imported when the agent starts already.
    from remuda.localrun.cell_process import CellProcess

    if not _cells:
        with _deaf():
            _cells.append(CellProcess())
    return _cells[0]


@contextmanager
def _deaf() -> Iterator[None]:
    """Hear of signals only afterwards. Blocking them would not do: they come to any thread."""
    heard: list[int] = []
    before = {number: signal.signal(number, lambda number, _: heard.append(number)) for number in _listened_to()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if heard:
            signal.raise_signal(heard[0])


def end(*, keep: bool = False) -> None:
    """End what was started and is still there; `keep` leaves a temporary folder, and says where it is."""
    if not _started and not _cells:
        return
    # This is short, and half done it would leave a mess that nobody finds.
    hung_up = signal.getsignal(signal.SIGHUP)
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    while _cells:
        _cells.pop().end()
    while _started:
        folder, pid, is_temporary, own, *_ = _started[-1]
        with suppress(ProcessLookupError, ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                # The agent may have something around it, which waits for its end, in the same group of processes.
                os.killpg(pid, signal.SIGTERM)
                os.waitpid(pid, 0)
        remove_tree(own)
        if is_temporary and keep:
            print(f"kept: {folder}", file=sys.stderr)
        elif is_temporary:
            remove_tree(folder)
            _remove_shared()
        _started.pop()
    # A run that begins anew would take it for switched off by `nohup`, and outlive its terminal.
    signal.signal(signal.SIGHUP, hung_up)


def listen_to_signals() -> None:
    """Until a loop runs and handles signals itself, each of them ends the command, with all that was started.

    An exception would not do: one that comes amid an import can get lost.
    """
    for number in _listened_to():
        signal.signal(number, _leave)


def _leave(*_: object) -> None:
    with suppress(OSError):
        os.write(sys.stderr.fileno(), b"remuda: interrupted\n")
    end()
    os._exit(Exit.INTERRUPTED)


def _listened_to() -> list[signal.Signals]:
    """What stops a run; a hang-up that the caller has switched off (`nohup`) does not."""
    return [each for each in STOPPING if each is not signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN]


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that jobs left in it, folders without write permission included."""
    try:
        safe_paths.remove_tree(folder)
    except OSError as error:
        print(f"remuda: could not remove {folder}: {error}; remove it by hand", file=sys.stderr)


def settled() -> None:
    """What this process has by now it keeps: it need not be looked through for garbage, then or ever."""
    gc.freeze()
    gc.enable()


def manager_data(folder: Path) -> Path:
    """Where the runner manager of a platform keeps its things."""
    return folder / "manager"


def keep_off_proxies(names: Sequence[str] = NO_PROXY) -> None:
    """Jobs reach the cell on loopback; no proxy of the user's environment can do that for them."""
    for variable in ("no_proxy", "NO_PROXY"):
        known = [name for name in os.environ.get(variable, "").split(",") if name]
        os.environ[variable] = ",".join(dict.fromkeys([*known, *names]))
