"""The files of a running step: which there are, and where.

A step has no folder of its own, because creating one costs more than its files. Files that the step itself reads and
writes are in the job's *exchange folder*, which every environment of the job has at the same path; nothing of the agent
is there. Those of inserted steps are in a second folder, which no container and no sandbox of the job's own steps has;
those of some of our own programs are with the agent's (`job_tree.rights`).
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
    """True if files that begin so belong to a step."""
    return _STEP.fullmatch(name) is not None


def make_empty(path: Path | str) -> None:
    """Create a file, unless it exists. A job may have put something else in its place, such as a pipe: the agent opens
    nothing that exists, so it never blocks. Raises DefinitionError if it is no plain file."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            name = os.path.basename(path)
            raise DefinitionError(f"{name}: it has to be a plain file; something of the job is there") from None


def make_empty_folder(path: Path) -> None:
    """Create a folder for this user only. An empty one is replaced. Raises OSError if the job has put something else
    there."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        path.rmdir()
        path.mkdir(mode=0o700)


def is_jobs_doing(error: OSError, job: Path) -> bool:
    """True if a file of a step could not be created or opened because something else is in its place in an exchange
    folder, which only the job can put there. `job` is the job's folder."""
    folders = {str(job / EXCHANGE), str(job / INSERTED_EXCHANGE)}
    names = [name for name in (error.filename, error.filename2) if isinstance(name, str)]
    return error.errno in _REPLACED and any(os.path.dirname(name) in folders for name in names)


class StepFiles:
    """Paths of one attempt at a step. The shim gets `base` and knows the suffixes, too."""

    __slots__ = ("_own", "_shared", "name")

    def __init__(self, job: Path, serial: int, folder: str = EXCHANGE) -> None:
        """`folder`: the folder below the job's for what the step reads and writes; empty: with the agent's files."""
        self.name = f"step-{serial}" if serial >= 0 else "job"
        self._own = f"{job}/{self.name}"
        self._shared = f"{job}/{folder}/{self.name}" if folder else self._own

    @property
    def base(self) -> Path:
        return Path(self._own)

    @property
    def claim(self) -> str:
        """Created exclusively by the shim that runs the step: process number and start time, then the exit code."""
        return f"{self._own}.pid"

    @property
    def env(self) -> Path:
        """The environment of a step until it has become another user."""
        return Path(f"{self._own}.env")

    @property
    def sandbox(self) -> Path:
        """The variables of a step that runs in a sandbox."""
        return Path(f"{self._own}.sandbox")

    @property
    def script(self) -> Path:
        return Path(f"{self._shared}.script")

    def command(self, level: int = 0) -> Path:
        """What is to run in an environment, for the program that runs it there. `level`: how many environments are
        inside of that one."""
        return Path(f"{self._shared}.command{level or ''}")

    @property
    def order(self) -> Path:
        """Path of the order for another agent."""
        return Path(f"{self._own}.order")

    @property
    def results(self) -> Path:
        """Results of the other agent."""
        return Path(f"{self._own}.results")

    @property
    def failure(self) -> Path:
        """Written by our own programs that run something in an environment, when they have failed themselves."""
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
        """The home of an inserted step and its parts."""
        return Path(f"{self._shared}.home")

    @property
    def masks(self) -> Path:
        """Texts that the step wants masked, one a line."""
        return Path(f"{self._shared}.masks")

    @property
    def temporary(self) -> Path:
        """A folder for temporary files of our own programs. It is removed with the step, also when that is killed."""
        return Path(f"{self._shared}{_TEMPORARY}")

    def exchange_paths(self) -> tuple[str, str, str]:
        """Paths that expressions know: for outputs, exports and inputs."""
        return f"{self._shared}.outputs", f"{self._shared}.exports", f"{self._shared}.inputs"

    def shared_path(self, suffix: str) -> str:
        """Path of a file that the step knows, too, as a text."""
        return self._shared + suffix

    def own_path(self, suffix: str) -> str:
        """Path of a file that only the agent and the shim know, as a text."""
        return self._own + suffix

    def list_suffixes(self) -> set[str]:
        """Suffixes of the step's files in the exchange folder."""
        folder, _, name = self._shared.rpartition("/")
        try:
            names = os.listdir(folder)
        except OSError:
            return set()
        return {file.removeprefix(name) for file in names if file.startswith(name + ".")}

    def remove(self, suffixes: set[str] | None = None) -> None:
        """Remove the files with these suffixes, by default those that exist. Rests are removed with the job."""
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
        """Remove the agent's files that only some steps have."""
        for suffix in _RARE:
            with suppress(FileNotFoundError):
                os.unlink(self._own + suffix)
