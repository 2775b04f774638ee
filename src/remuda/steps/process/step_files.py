"""The paths of the files that belong to a running step.

A step has no folder of its own, because creating one costs more than its files. Files that it reads and writes are in
the job's *exchange folder*, which every environment of the job has at the same path; those of steps that a policy
inserted in a second one, invisible to the job's steps; private ones (`rights.has_private_files`) in the job's folder.
"""

import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from remuda.lib.safe_paths import remove_tree
from remuda.steps.errors import DefinitionError

EXCHANGE = "exchange"
INSERTED_EXCHANGE = "inserted"
"""The exchange folder of inserted steps."""
SECRETS = "secret-files"
"""The folder of secrets that are files, in the exchange folder. File variables are there, too, but no variable has such
a name. `remuda.stdsteps.secrets.step` knows it."""
_TEMPORARY = ".tmp"
_STEP = re.compile(r"step-\d+|job", re.ASCII)
_REPLACED = (errno.EEXIST, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.ENOTEMPTY)
_OWN = (".raw", ".pid")
_RARE = (".disk", ".env", ".sandbox", ".failure", ".order", ".results", ".results.place")


def is_step_name(name: str) -> bool:
    """Return True if `name` can be the common prefix of a step's files, such as `step-7`."""
    return _STEP.fullmatch(name) is not None


def make_empty(path: Path | str) -> None:
    """Create an empty file, unless there is one. An existing file is not opened: the job may have put a named pipe
    there, on which the agent would block. Raises DefinitionError if something else than a regular file is there."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            name = os.path.basename(path)
            raise DefinitionError(f"{name}: it has to be a plain file; the job has put something else there") from None


def make_empty_folder(path: Path) -> None:
    """Create a folder for the agent's user only. An empty one is replaced; OSError if anything else is there."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        path.rmdir()
        path.mkdir(mode=0o700)


def is_jobs_doing(error: OSError, job: Path) -> bool:
    """True if the error shows that the job replaced a step's file: wrong file type in a folder steps can write to."""
    folders = {str(job / EXCHANGE), str(job / INSERTED_EXCHANGE)}
    names = [name for name in (error.filename, error.filename2) if isinstance(name, str)]
    return error.errno in _REPLACED and any(os.path.dirname(name) in folders for name in names)


class StepFiles:
    """The paths of the files of one attempt at a step. Shim and worker derive the same paths from `base`."""

    __slots__ = ("_own", "_shared", "name")

    def __init__(self, job: Path, serial: int, folder: str = EXCHANGE) -> None:
        """`job`: the job's folder. `serial`: number of the attempt. `folder`: the exchange folder in it, for files that
        the step reads and writes; empty: they are in the job's folder itself, which only the agent uses."""
        self.name = f"step-{serial}" if serial >= 0 else "job"
        self._own = f"{job}/{self.name}"
        self._shared = f"{job}/{folder}/{self.name}" if folder else self._own

    @property
    def base(self) -> Path:
        return Path(self._own)

    @property
    def claim(self) -> str:
        """The pid file: a shim or worker creates it with its process id and start time, and appends the exit code."""
        return f"{self._own}.pid"

    @property
    def env(self) -> Path:
        """File with the environment of a step that runs as another user, read by the program that switches."""
        return Path(f"{self._own}.env")

    @property
    def sandbox(self) -> Path:
        """File with the environment variables of a step in a sandbox, read by the program that sets it up."""
        return Path(f"{self._own}.sandbox")

    @property
    def script(self) -> Path:
        return Path(f"{self._shared}.script")

    def command(self, level: int = 0) -> Path:
        """File with the command to run in an environment. `level`: 0 for the innermost, 1 for the one around it."""
        return Path(f"{self._shared}.command{level or ''}")

    @property
    def order(self) -> Path:
        """File that describes inner steps of this step that another agent is to run (delegation)."""
        return Path(f"{self._own}.order")

    @property
    def results(self) -> Path:
        """File with the results of inner steps that another agent has run for this step (delegation)."""
        return Path(f"{self._own}.results")

    @property
    def failure(self) -> Path:
        """File for the error of a built-in program that could not run the step's command in an environment."""
        return Path(f"{self._own}.failure")

    @property
    def inputs(self) -> Path:
        return Path(f"{self._shared}.inputs")

    @property
    def outputs(self) -> Path:
        return Path(f"{self._shared}.outputs")

    @property
    def exports(self) -> Path:
        return Path(f"{self._shared}.exports")

    @property
    def home(self) -> Path:
        """Home directory of a step that a policy has inserted, and of its inner steps."""
        return Path(f"{self._shared}.home")

    @property
    def masks(self) -> Path:
        """File to which the step writes texts to be masked in the log, one per line."""
        return Path(f"{self._shared}.masks")

    @property
    def temporary(self) -> Path:
        """Folder for temporary files of a built-in program, removed after the step even if it was killed."""
        return Path(f"{self._shared}{_TEMPORARY}")

    def exchange_paths(self) -> tuple[str, str, str]:
        return f"{self._shared}.outputs", f"{self._shared}.exports", f"{self._shared}.inputs"

    def shared_path(self, suffix: str) -> str:
        """Path of the step's file with this suffix (such as `.outputs`) in the folder that the step can access."""
        return self._shared + suffix

    def own_path(self, suffix: str) -> str:
        """Path of the step's file with this suffix, such as `.pid`, in the job's folder, only for agent and shim."""
        return self._own + suffix

    def list_suffixes(self) -> set[str]:
        folder, _, name = self._shared.rpartition("/")
        try:
            names = os.listdir(folder)
        except OSError:
            return set()
        return {file.removeprefix(name) for file in names if file.startswith(name + ".")}

    def remove(self, suffixes: set[str] | None = None) -> None:
        """Remove pid file and raw output of the attempt, and those files of the step in the exchange folder that have
        these suffixes (None: search). `remove_rare` removes the agent's other files."""
        for suffix in _OWN:
            with suppress(FileNotFoundError):
                os.unlink(self._own + suffix)
        for suffix in self.list_suffixes() if suffixes is None else suffixes:
            if suffix == _TEMPORARY:
                remove_tree(self._shared + suffix, ignore_errors=True)
                continue
            with suppress(OSError):
                os.unlink(self._shared + suffix)

    def remove_rare(self) -> None:
        """Remove the agent's files that only some steps have, such as those for a sandbox."""
        for suffix in _RARE:
            with suppress(FileNotFoundError):
                os.unlink(self._own + suffix)
