"""Starts the agent and the cell process of a run before the options are parsed, so that their starts overlap. `begin`
saves 17 % of the time of a run with one short job (21 pairs of runs; quartiles 11 and 34 %). Keeping the garbage
collector off until `freeze_objects` saves 25 % (12 and 37 %). Invariant: after `end`, which the command calls last, no
process and no temporary folder that was created here is left, except a folder that the user keeps. Stop signals during
a start are delivered after it; during `end` they are ignored."""

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

from remuda.lib import safe_paths
from remuda.lib.exits import CommandError, Exit
from remuda.lib.signals import STOPPING, stop_signals
from remuda.localrun.isolation import (
    OPTION,
    Isolation,
    IsolationChoice,
    find_isolation,
    open_to_jobs,
    runs_folder,
    sandbox_command,
)
from remuda.localrun.settings.places import may_change_start
from remuda.localrun.sources.git_environment import REPOSITORY_VARIABLES
from remuda.manager.environments.agent_process import spawn_agent

if TYPE_CHECKING:
    from remuda.localrun.cell_process import CellProcess

NO_PROXY = ("127.0.0.1", "localhost", "::1")
AGENT_IDLE_SECONDS = 5.0
"""How long after its last job the agent ends by itself, if the run was killed with SIGKILL."""
STARTS_NOTHING = frozenset({"--help", "-h", "--list"})
"""Options of `remuda run` that print something and run nothing."""


class Workspace(NamedTuple):
    """The data folder of a run, and the agent process that was started in it."""

    folder: Path
    agent_pid: int
    is_temporary: bool
    scratch: Path
    """A folder inside `folder` for the snapshot; `end` always removes it."""
    isolation: Isolation
    agent_prefix: tuple[str, ...]
    """The sandbox command before the agent's own."""


_workspaces: list[Workspace] = []
_cells: "list[CellProcess]" = []


def begin(arguments: Sequence[str]) -> None:
    """Start agent and cell process before the options are parsed, unless `arguments` has an option such as `--help`,
    with which no pipeline runs. With `--data` or `--isolation` the agent is started after parsing, also if the user's
    settings may set them."""
    for name in REPOSITORY_VARIABLES:
        # Inside a git hook these would point the git of every job to the hook's repository.
        os.environ.pop(name, None)
    if STARTS_NOTHING.intersection(arguments):
        return
    # The objects of the start stay alive; `freeze_objects` enables the collector again when the platform runs.
    gc.disable()
    listen_to_signals()
    keep_off_proxies()
    is_set = any(word.startswith(("--data", OPTION)) for word in arguments)
    if not is_set and not may_change_start((b"data", b"isolation")):
        start(None)
    start_cell()


def start(data: Path | None, choice: IsolationChoice = "auto") -> Workspace:
    """Return the workspace of this run; the first call creates it and starts the agent. `data`: the run's folder; None
    for a temporary one. `choice`: the value of `--isolation`."""
    if not _workspaces:
        with _defer_signals():
            folder = data or _make_temporary_folder()
            scratch = Path(tempfile.mkdtemp(dir=folder, prefix="snapshot-"))
            try:
                isolation = find_isolation(choice, folder)
                prefix: tuple[str, ...] = ()
                if isolation.kind == "bubblewrap":
                    prefix = sandbox_command(folder, manager_data(folder), scratch)
                elif isolation.run_as:
                    open_to_jobs(folder)
                pid = spawn_agent(manager_data(folder), idle_exit_seconds=AGENT_IDLE_SECONDS, around=prefix)
            except (OSError, CommandError):
                shutil.rmtree(scratch if data else folder, ignore_errors=True)
                _remove_runs_folder()
                raise
            _workspaces.append(
                Workspace(
                    folder=folder,
                    agent_pid=pid,
                    is_temporary=data is None,
                    scratch=scratch,
                    isolation=isolation,
                    agent_prefix=prefix,
                )
            )
    return _workspaces[0]


def _make_temporary_folder() -> Path:
    """Create a new folder in `runs_folder()`, or in the system's temporary folder if another user owns `runs_folder()`,
    or can read or change it. Tries again if another run that ends removes `runs_folder()` meanwhile."""
    shared = Path(runs_folder())
    while True:
        with suppress(FileExistsError):
            shared.mkdir(mode=0o700)
        try:
            status = shared.lstat()
            is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o066
            return Path(tempfile.mkdtemp(dir=shared if is_ours else None, prefix="remuda-run-"))
        except FileNotFoundError:
            continue


def _remove_runs_folder() -> None:
    with suppress(OSError):
        os.rmdir(runs_folder())


def start_cell() -> "CellProcess":
    """Return the child process for the run's cell; the first call starts it."""
    # Imported while the agent starts.
    from remuda.localrun.cell_process import CellProcess

    if not _cells:
        with _defer_signals():
            _cells.append(CellProcess())
    return _cells[0]


@contextmanager
def _defer_signals() -> Iterator[None]:
    """Delay stop signals until the end of the block; of several, only the first is delivered. Replaces the signal
    handlers, because a signal mask would hold for this thread only."""
    received: list[int] = []
    before = {number: signal.signal(number, lambda number, _: received.append(number)) for number in stop_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


def end(*, keep: bool = False) -> None:
    """Stop the agent and the cell, and remove the run's temporary folder; with `keep`, print its path instead. A folder
    of `--data` stays, without its subfolder with the snapshot (`scratch`)."""
    if not _workspaces and not _cells:
        return
    # An interrupt here would leave files that nobody finds.
    hangup_handler = signal.getsignal(signal.SIGHUP)
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    while _cells:
        _cells.pop().end()
    while _workspaces:
        workspace = _workspaces[-1]
        pid = workspace.agent_pid
        with suppress(ProcessLookupError, ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                # The sandbox command is in the same process group and waits for the agent.
                os.killpg(pid, signal.SIGTERM)
                os.waitpid(pid, 0)
        remove_tree(workspace.scratch)
        if workspace.is_temporary and keep:
            print(f"kept: {workspace.folder}", file=sys.stderr)
        elif workspace.is_temporary:
            remove_tree(workspace.folder)
            _remove_runs_folder()
        _workspaces.pop()
    # The next run of `--watch` would take an ignored SIGHUP for `nohup`, and outlive its terminal.
    signal.signal(signal.SIGHUP, hangup_handler)


def listen_to_signals() -> None:
    """Make stop signals end the command and all processes of the run, until an event loop handles signals. The handler
    raises no exception, because an import could swallow it."""
    for number in stop_signals():
        signal.signal(number, _leave)


def _leave(*_: object) -> None:
    with suppress(OSError):
        os.write(sys.stderr.fileno(), b"remuda: interrupted\n")
    end()
    os._exit(Exit.INTERRUPTED)


def remove_tree(folder: Path) -> None:
    """Delete a folder tree, even if folders in it are not writable. An error is printed, not raised."""
    try:
        safe_paths.remove_tree(folder)
    except OSError as error:
        print(f"remuda: could not remove {folder}: {error}; remove it by hand", file=sys.stderr)


def freeze_objects() -> None:
    """Exclude all existing objects from garbage collection, and switch the garbage collector on again."""
    gc.freeze()
    gc.enable()


def manager_data(folder: Path) -> Path:
    return folder / "manager"


def keep_off_proxies(names: Sequence[str] = NO_PROXY) -> None:
    """Add the loopback addresses `names` to NO_PROXY: jobs reach the cell there, and a proxy could not."""
    for variable in ("no_proxy", "NO_PROXY"):
        current = [name for name in os.environ.get(variable, "").split(",") if name]
        os.environ[variable] = ",".join(dict.fromkeys([*current, *names]))
