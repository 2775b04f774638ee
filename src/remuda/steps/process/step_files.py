"""The files of a running step: which there are, and where.

A step has no folder of its own: in the job's folder its files cost a fraction of what a new folder costs a disk. Those
that the step itself reads and writes lie in the job's *exchange folder*, which every environment of the job has at the
same path; nothing that belongs to the agent does. Those of steps that a policy inserted lie in a second folder, which
no container and no sandbox of the job's own steps has; those of some of our own programs lie with the agent's
(`rights`).
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
"""The exchange folder of steps that a policy inserted."""
SECRETS = "secret-files"
"""The folder of secrets that are files, in the exchange folder. No variable has such a name: file variables are there,
too. `remuda.stdsteps.secrets.step` knows it."""
_TEMPORARY = ".tmp"
_STEP = re.compile(r"step-\d+|job", re.ASCII)
_REPLACED = (errno.EEXIST, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.ENOTEMPTY)
_OWN = (".raw", ".pid")
_RARE = (".disk", ".env", ".sandbox", ".failure", ".order", ".results", ".results.place")


def is_step_name(name: str) -> bool:
    """True if files that begin so belong to a step."""
    return _STEP.fullmatch(name) is not None


def make_empty(path: Path | str) -> None:
    """Make a file, unless it is there. A job may have put something else in its place, such as a pipe: the agent opens
    nothing that is there, and waits for nobody. DefinitionError where it is no plain file."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            name = os.path.basename(path)
            raise DefinitionError(f"{name}: it has to be a plain file; something of the job is there") from None


def make_empty_folder(path: Path) -> None:
    """Make a folder for this user only. An empty one is replaced; OSError where something else of the job is there."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        path.rmdir()
        path.mkdir(mode=0o700)


def is_jobs_doing(error: OSError, job: Path) -> bool:
    """True if a file of a step could not be made or opened because something else is in its place in an exchange
    folder: nobody puts anything there but the job. `job` is the job's folder."""
    folders = {str(job / EXCHANGE), str(job / INSERTED_EXCHANGE)}
    names = [name for name in (error.filename, error.filename2) if isinstance(name, str)]
    return error.errno in _REPLACED and any(os.path.dirname(name) in folders for name in names)


class StepFiles:
    """Paths of one attempt at a step. The shim gets `base` and knows the suffixes too."""

    __slots__ = ("_own", "_shared", "name")

    def __init__(self, job: Path, serial: int, folder: str = EXCHANGE) -> None:
        """`folder`: where in the job's those are that the step reads and writes; empty: with the agent's."""
        self.name = f"step-{serial}" if serial >= 0 else "job"
        self._own = f"{job}/{self.name}"
        self._shared = f"{job}/{folder}/{self.name}" if folder else self._own

    @property
    def base(self) -> Path:
        return Path(self._own)

    @property
    def pid(self) -> Path:
        """Made exclusively by the shim that runs the step: process number and start time; then the exit code."""
        return Path(f"{self._own}.pid")

    @property
    def claim(self) -> str:
        """The same, for those who look often."""
        return f"{self._own}.pid"

    @property
    def raw(self) -> Path:
        """What the step prints."""
        return Path(f"{self._own}.raw")

    @property
    def env(self) -> Path:
        """The environment of a step that becomes another user, until it has."""
        return Path(f"{self._own}.env")

    @property
    def sandbox(self) -> Path:
        """The variables of a step that runs in a sandbox."""
        return Path(f"{self._own}.sandbox")

    @property
    def script(self) -> Path:
        return Path(f"{self._shared}.script")

    def command(self, level: int = 0) -> Path:
        """What is to run in an environment, for the program that runs it there; in how many around that one."""
        return Path(f"{self._shared}.command{level or ''}")

    @property
    def order(self) -> Path:
        """What another agent is to run."""
        return Path(f"{self._own}.order")

    @property
    def results(self) -> Path:
        """What has come back from there."""
        return Path(f"{self._own}.results")

    @property
    def failure(self) -> Path:
        """Written by our own programs that run something in an environment, when it is they who failed."""
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
        """The home of a step that a policy inserted, and of what is part of it."""
        return Path(f"{self._shared}.home")

    @property
    def masks(self) -> Path:
        """Texts that the step wants masked, one a line."""
        return Path(f"{self._shared}.masks")

    @property
    def temporary(self) -> Path:
        """A folder for what our own programs make for a moment: it goes with the step, also when that is killed."""
        return Path(f"{self._shared}{_TEMPORARY}")

    def exchange_paths(self) -> tuple[str, str, str]:
        """Those that expressions know: for outputs, exports and inputs."""
        return f"{self._shared}.outputs", f"{self._shared}.exports", f"{self._shared}.inputs"

    def shared_path(self, suffix: str) -> str:
        """One of those that the step knows, too, for those who look often."""
        return self._shared + suffix

    def own_path(self, suffix: str) -> str:
        """One of those that only the agent and the shim know, for those who look often."""
        return self._own + suffix

    def list_suffixes(self) -> set[str]:
        """Which files of the step's own are there."""
        folder, _, name = self._shared.rpartition("/")
        try:
            names = os.listdir(folder)
        except OSError:
            return set()
        return {found.removeprefix(name) for found in names if found.startswith(name + ".")}

    def remove(self, left: set[str] | None = None) -> None:
        """What `left` says, or what is there; what a step has made of its files goes with the job at the latest."""
        for suffix in _OWN:
            with suppress(FileNotFoundError):
                os.unlink(self._own + suffix)
        for suffix in self.list_suffixes() if left is None else left:
            if suffix == _TEMPORARY:
                remove_tree(self._shared + suffix, ignore_errors=True)
                continue
            with suppress(OSError):
                os.unlink(self._shared + suffix)

    def remove_rare(self) -> None:
        """What only some steps have, and of the agent's own."""
        for suffix in _RARE:
            with suppress(FileNotFoundError):
                os.unlink(self._own + suffix)
