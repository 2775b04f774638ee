"""The paths of the files that belong to a running step.

A step has no folder of its own, because creating one costs more than its files. Files that the step itself reads and
writes are in the job's *exchange folder*, which every environment of the job has at the same path; no file of the agent
is there. The files of inserted steps (those that a policy adds to the job) are in a second folder, which is not visible
in containers and sandboxes of the job's own steps. The files of some of our own programs are in the agent's folder
(`job_tree.rights`).
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
    """Return True if `name` is the common prefix of the files of a step."""
    return _STEP.fullmatch(name) is not None


def make_empty(path: Path | str) -> None:
    """Create an empty file, unless it exists. Existing files are not opened, because the job may have put a named pipe
    there, on which the agent would block. Raises DefinitionError if the path exists and is not a regular file."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            name = os.path.basename(path)
            raise DefinitionError(f"{name}: it has to be a plain file; something of the job is there") from None


def make_empty_folder(path: Path) -> None:
    """Create a folder that only this user can access, in place of an empty one. Raises OSError if the job has put a
    file or a non-empty folder there."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        path.rmdir()
        path.mkdir(mode=0o700)


def is_jobs_doing(error: OSError, job: Path) -> bool:
    """Return True if this error shows that the job has replaced a file of a step: the path is in an exchange folder and
    of the wrong type. `job` is the job's folder."""
    folders = {str(job / EXCHANGE), str(job / INSERTED_EXCHANGE)}
    names = [name for name in (error.filename, error.filename2) if isinstance(name, str)]
    return error.errno in _REPLACED and any(os.path.dirname(name) in folders for name in names)


class StepFiles:
    """The paths of the files of one attempt at a step. The shim derives the same paths from `base`."""

    __slots__ = ("_own", "_shared", "name")

    def __init__(self, job: Path, serial: int, folder: str = EXCHANGE) -> None:
        """`job` is the job's folder, `serial` the number of the attempt. `folder`: the folder in it for files that the
        step reads and writes; if empty, they are in the job's folder itself, which only the agent uses."""
        self.name = f"step-{serial}" if serial >= 0 else "job"
        self._own = f"{job}/{self.name}"
        self._shared = f"{job}/{folder}/{self.name}" if folder else self._own

    @property
    def base(self) -> Path:
        return Path(self._own)

    @property
    def claim(self) -> str:
        """Path of the pid file. The shim that runs the step creates it exclusively, with its process id and start time,
        and appends the exit code."""
        return f"{self._own}.pid"

    @property
    def env(self) -> Path:
        """Path of the file with the environment of a step that has yet to switch to another user."""
        return Path(f"{self._own}.env")

    @property
    def sandbox(self) -> Path:
        """Path of the file with the environment variables of a step that runs in a sandbox."""
        return Path(f"{self._own}.sandbox")

    @property
    def script(self) -> Path:
        return Path(f"{self._shared}.script")

    def command(self, level: int = 0) -> Path:
        """Path of the file that says which command to run inside an environment (such as a container), for the program
        that runs it there. `level`: how many further environments are nested inside that one."""
        return Path(f"{self._shared}.command{level or ''}")

    @property
    def order(self) -> Path:
        """Path of the file with the steps that another agent is to run for this step."""
        return Path(f"{self._own}.order")

    @property
    def results(self) -> Path:
        """Path of the file with the step results from another agent."""
        return Path(f"{self._own}.results")

    @property
    def failure(self) -> Path:
        """Path of the file to which our own program that runs a command in an environment writes its error, if it
        failed itself."""
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
        """Path of the home directory of a policy-inserted step and its inner steps."""
        return Path(f"{self._shared}.home")

    @property
    def masks(self) -> Path:
        """Path of the file to which the step writes texts to be masked in the log, one per line."""
        return Path(f"{self._shared}.masks")

    @property
    def temporary(self) -> Path:
        """Path of a folder for temporary files of our own programs. It is removed when the step has ended, even if it
        was killed."""
        return Path(f"{self._shared}{_TEMPORARY}")

    def exchange_paths(self) -> tuple[str, str, str]:
        """Return the paths of the output, export and input files, for use in expressions."""
        return f"{self._shared}.outputs", f"{self._shared}.exports", f"{self._shared}.inputs"

    def shared_path(self, suffix: str) -> str:
        """Return the path of the step's file with this suffix in the exchange folder, where the step can access it."""
        return self._shared + suffix

    def own_path(self, suffix: str) -> str:
        """Return the path of the step's file with this suffix in the job's folder, which only the agent and the shim
        use."""
        return self._own + suffix

    def list_suffixes(self) -> set[str]:
        """Return the suffixes of the step's existing files in the exchange folder."""
        folder, _, name = self._shared.rpartition("/")
        try:
            names = os.listdir(folder)
        except OSError:
            return set()
        return {file.removeprefix(name) for file in names if file.startswith(name + ".")}

    def remove(self, suffixes: set[str] | None = None) -> None:
        """Remove the agent's files of the step, and its files in the exchange folder with these suffixes, by default
        all that exist. What cannot be removed now is removed with the job."""
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
        """Remove the step's files in the job's folder that only few steps have, such as those for a sandbox."""
        for suffix in _RARE:
            with suppress(FileNotFoundError):
                os.unlink(self._own + suffix)
