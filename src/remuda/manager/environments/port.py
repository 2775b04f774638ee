"""The interface to environments, the places where jobs run. An environment belongs to one runner, or to several whose
jobs run on the same machines. Its *machines* have names that survive restarts, and one agent each, which runs all jobs
there.

The call order for a job is `acquire`, `connect` (unless the machine's agent is connected), `prepare`, `run_hook`, then
work through the agent, then `run_hook` again and `clean_up`. Every call may be repeated, also by a new process, which
calls `adopt` for each job that has a machine. Calls for different jobs may overlap. A call may be cancelled at any
time: a cancelled `acquire` leaves nothing, any other call leaves only what `clean_up` removes.

EnvironmentTemporaryError: try again later. EnvironmentLostError: this job can never run here; from `connect`: the
machine is gone for good, and all its jobs end with that cause.
"""

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Literal, Protocol, TypeVar

import msgspec

from remuda.wire.agent_client import AgentClient

P = TypeVar("P", bound=PurePath)
Hook = Literal["before_job", "after_job"]
UNKNOWN_BYTES = (1 << 63) - 1
"""Free disk space that is not known: jobs are taken, and no number is shown."""
_LIKE_TEMPORARY = re.compile(r"\.(tmp)(?=/|\Z)", re.IGNORECASE)


class JobPlace(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    """The agent's id of the job: unique for this hand-out, and the same in every process."""
    runner: str
    """Short token of its runner."""
    slot: int
    """No two jobs of a runner have the same slot at the same time."""
    project: str
    """The project's path, from its repository's address."""
    builds_dir: str = ""
    """The configured folder; empty: the environment's own."""
    cache_dir: str = ""
    """The configured cache folder; empty: the environment's own."""
    job: int | None = None
    """The job's id, if it gets a working directory that no other job uses."""
    run_as: str = ""
    """The user of its steps, who owns its folders and has separate caches; empty: the agent's user."""
    before_job: str = ""
    """The operator's command before the job; empty: none."""
    after_job: str = ""
    """The operator's command after the job; empty: none."""
    manager: str = ""
    """Mark that separates the folders of managers with the same runner; empty: there is only one."""
    clone_path: str = ""
    """The working directory below the builds folder, if the job chose it."""
    is_protected: bool = False
    """True if its ref is protected. It then shares no folder with jobs of other refs: files that those leave in a
    working directory would run with protected variables."""
    may_have_begun: bool = False
    """For `prepare`: the agent may have the job already, so its temporary folder is not emptied."""

    def command_of(self, hook: Hook) -> str:
        return self.before_job if hook == "before_job" else self.after_job

    @property
    def own_folder(self) -> str:
        """Path, relative to the builds folder, of a folder that no other job uses at the same time."""
        slot = f"{self.slot}-{self.manager}" if self.manager else str(self.slot)
        slot += "-protected" if self.is_protected else ""
        return f"{self.runner}/{slot if self.job is None else f'job-{self.job}'}"

    @property
    def folder(self) -> str:
        """Path of the job's working directory, relative to the builds folder."""
        return self.clone_path or f"{self.own_folder}/{project_folder(self.project)}"

    @property
    def temporary_folder(self) -> str:
        """Folder to remove after the job: all of the job's folders if no later job reuses them, else `WORKDIR.tmp`."""
        return f"{self.folder}.tmp" if self.job is None else self.own_folder

    def folders(self, base: PurePath) -> "PreparedPlace":
        """Return the paths of the job's folders in an environment with the folder `base`."""
        builds = base / (self.builds_dir or "builds")
        caches = base / (self.cache_dir or "cache") / self.run_as
        return PreparedPlace(work_dir=str(builds / self.folder), builds_dir=str(builds), cache_dir=str(caches))

    def split_build_path(self, base: P, folder: str) -> tuple[P, str]:
        """Split the path of `folder` in the builds folder into a trusted base, which may contain symbolic links, and
        the rest, which must not. The trusted base is the configured folder, or else `base`."""
        return _split_path(base, self.builds_dir, "builds", folder)

    def split_cache_path(self, base: P) -> tuple[P, str]:
        """Split the path of the job's cache folder into a trusted base and the rest, see `split_build_path`."""
        return _split_path(base, self.cache_dir, "cache", self.run_as)


def project_folder(project: str) -> str:
    """Return the path of a project's folder. `.tmp` at the end of a part becomes `@tmp`, because `app.tmp` is the
    temporary folder of `app`."""
    return _LIKE_TEMPORARY.sub(r"@\1", project)


def _split_path(base: P, configured: str, usual: str, folder: str) -> tuple[P, str]:
    return (base / configured, folder) if configured else (base, f"{usual}/{folder}")


class PreparedPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The folders that `prepare` created for a job, with absolute paths."""

    work_dir: str
    builds_dir: str
    cache_dir: str
    notes: tuple[str, ...] = ()
    """Lines for the job's log."""
    slot: int | None = None
    """The job's slot on its machine, if machines have slots."""
    hidden: tuple[str, ...] = ()
    """Folders of the machine that the job must not see."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    disk_free_bytes: int


class Environment(Protocol):
    """Interface of an environment; see the module docstring for call order and errors."""

    def capacity(self) -> int | None:
        """Return how many jobs can run at the same time (None: no limit). Called before every request: must be fast."""

    async def acquire(self, place: JobPlace) -> str:
        """Wait for a machine for this job. Another call with the same key returns the same machine."""

    def adopt(self, place: JobPlace, machine: str) -> None:
        """Record that a job of an earlier process already uses this machine."""

    async def prepare(self, place: JobPlace, machine: str) -> PreparedPlace:
        """Create the job's working directory, and beside it a temporary one with the suffix `.tmp`. Files of an earlier
        job in the former stay for the checkout; the latter is emptied, unless the job may have begun."""

    async def run_hook(self, hook: Hook, place: JobPlace, machine: str) -> str:
        """Run the operator's command `before_job` or `after_job` on the machine, outside of the job's isolation
        (container, sandbox), and return its output."""

    async def connect(self, machine: str) -> AgentClient:
        """Return a new connection to the machine's agent, after it has answered. Starts the agent if none runs."""

    async def recover(self) -> Sequence[str]:
        """Return the names of machines that may have jobs of an earlier process that are missing in the journal."""

    async def usage(self, folders: Sequence[str] = ()) -> Usage:
        """Return the free disk space that decides whether jobs are requested. `folders` are configured folders to which
        jobs also write; an environment may ignore them."""

    async def clean_up(self, place: JobPlace, machine: str) -> None:
        """Release the machine of a job that is over, and remove the job's files except those that later jobs reuse."""

    async def close(self) -> None:
        """Close connections and child processes, because the manager ends or no runner uses the environment. Agents and
        jobs continue, except on autoscaled machines that are removed."""


def fixed_machine(environment: Environment) -> str:
    """Return the name of the environment's only machine, or an empty string if its machines vary. The agent of such a
    machine is connected before the first request for a job, and jobs are requested only while it is connected."""
    return getattr(environment, "fixed_machine", "")
