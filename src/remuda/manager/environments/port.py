"""The interface to environments, the places where jobs run. An environment belongs to one runner, or to several whose
jobs run on the same machines. Its *machines* have names that survive restarts. On each machine one agent runs all jobs.

The call order for a job is `acquire`, `connect` (unless the machine's agent is connected), `prepare`, `run_hook`, then
work through the agent, then `run_hook` again and `clean_up`. Every call may be repeated, also by a new process, which
calls `adopt` for each job that has a machine. Calls for different jobs may overlap. A call may be cancelled at any
time: a cancelled `acquire` leaves nothing, any other call leaves only what `clean_up` removes.

A call that raises EnvironmentTemporaryError is repeated later. EnvironmentLostError means that the job can never run
here, so it fails. If `connect` raises it, the machine is gone for good, and all jobs on it fail."""

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
        """Path of the job's folder, which no other job uses at the same time, relative to the builds folder."""
        slot = f"{self.slot}-{self.manager}" if self.manager else str(self.slot)
        slot += "-protected" if self.is_protected else ""
        return f"{self.runner}/{slot if self.job is None else f'job-{self.job}'}"

    @property
    def folder(self) -> str:
        """Path of the job's working directory, relative to the builds folder."""
        return self.clone_path or f"{self.own_folder}/{project_folder(self.project)}"

    @property
    def temporary_folder(self) -> str:
        """Folder to remove after the job, relative to the builds folder: the job's own folder with everything in it if
        no later job uses its working directory, else only the temporary folder beside that."""
        return f"{self.folder}.tmp" if self.job is None else self.own_folder

    def folders(self, base: PurePath) -> "PreparedPlace":
        """Return the absolute paths of the job's folders; relative ones are below `base`, the folder for jobs."""
        builds = base / (self.builds_dir or "builds")
        caches = base / (self.cache_dir or "cache") / self.run_as
        return PreparedPlace(work_dir=str(builds / self.folder), builds_dir=str(builds), cache_dir=str(caches))

    def split_build_path(self, base: P, folder: str) -> tuple[P, str]:
        """Split the path of `folder` in the builds folder into the operator's part (the configured folder, or else
        `base`), where symbolic links are allowed, and the rest, where they are not, because jobs can write there."""
        return _split_path(base, self.builds_dir, "builds", folder)

    def split_cache_path(self, base: P) -> tuple[P, str]:
        """Split the path of the cache folder into the operator's part (the configured folder, or else `base`), where
        symbolic links are allowed, and the rest, where they are not, because jobs can write there."""
        return _split_path(base, self.cache_dir, "cache", self.run_as)


def project_folder(project: str) -> str:
    """Return a project's folder. Final `.tmp` of a part becomes `@tmp`: `app.tmp` is the temporary folder of `app`."""
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
    """Interface of an environment, the place where jobs run: it has machines, folders and connections to agents."""

    def capacity(self) -> int | None:
        """Return how many jobs can run at a time (None: no limit). Called before every job request: must be fast."""

    async def acquire(self, place: JobPlace) -> str:
        """Wait for a machine for this job, and return its name: the same in every call with this `place.key`."""

    def adopt(self, place: JobPlace, machine: str) -> None:
        """Record that a job which an earlier process started already uses this machine."""

    async def prepare(self, place: JobPlace, machine: str) -> PreparedPlace:
        """Create the job's working directory, where files of an earlier job stay for the checkout, and beside it a
        temporary folder with the suffix `.tmp`, which is emptied, unless the job may have begun."""

    async def run_hook(self, hook: Hook, place: JobPlace, machine: str) -> str:
        """Run the operator's `before_job` or `after_job` command outside of the job's isolation; return its output."""

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
        """Close connections and child processes: the manager ends, or no runner uses the environment. Jobs and their
        agents continue; an autoscaled environment may remove machines without jobs."""


def fixed_machine(environment: Environment) -> str:
    """Return the name of the environment's machine if it always has the same one, else an empty string. The manager
    connects to a fixed machine's agent before it requests jobs, and requests jobs only while it is connected."""
    return getattr(environment, "fixed_machine", "")
