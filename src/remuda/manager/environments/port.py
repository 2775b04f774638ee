"""What the manager needs of a place where jobs run; the kinds of places are in `adapters/`.

An environment is one kind of place, configured for one runner or shared by equal ones. It knows *machines* by names
that stay the same over restarts; each machine has one agent, which serves all jobs there. The call order for a job is
`acquire`, `prepare`, `before`, then work through the agent behind `connect`, then `after` and `clean_up`. Every call
may be repeated, also by a new process after the old one died, which says `adopt` for each job that has a machine.
Calls for different jobs may overlap; the isolation of their working directories is the environment's duty. A call may
be cancelled at any time: an `acquire` that is cancelled holds nothing, any other leaves what `clean_up` puts right.

EnvironmentTemporaryError: try again later. EnvironmentLostError: this job can never run here; from `connect`: the
machine is gone for good, and all its jobs end with that cause.
"""

import re
from collections.abc import Sequence
from typing import Protocol

import msgspec

from remuda.wire.agent_client import AgentClient

UNKNOWN_BYTES = (1 << 63) - 1
"""The room of a place that nobody has measured: jobs are taken, and no number is shown."""
_LIKE_TEMPORARY = re.compile(r"\.(tmp)(?=/|\Z)", re.IGNORECASE)


class JobPlace(msgspec.Struct, frozen=True, kw_only=True):
    """What decides where a job's files are."""

    key: str
    """The job's id for the agent: unique for this hand-out, and the same in every process."""
    runner: str
    """Short token of its runner."""
    slot: int
    """No two jobs of a runner hold the same slot at the same time."""
    project: str
    """The project's path, from its repository's address."""
    builds_dir: str = ""
    """The configured folder; empty: the environment's own."""
    cache_dir: str = ""
    """The same for caches."""
    job: int | None = None
    """The job's id, where it shall have a working directory of its own that no other job uses."""
    run_as: str = ""
    """Whom its steps run as, who then owns its folders, with caches apart from others'; empty: the agent's user."""
    before_job: str = ""
    """The operator's command before a job, for `before`; empty: none."""
    after_job: str = ""
    """The same after it."""
    manager: str = ""
    """Tells the folders of its manager from those of another one with the same runner; empty: there is no other."""
    clone_path: str = ""
    """Where it works below the folder of builds, if it chose that itself."""
    is_protected: bool = False
    """True if the server says that its ref is protected. It then shares no folder with jobs of other refs, which less
    trusted people can push to: what those leave in a working directory would run with protected variables."""
    may_have_begun: bool = False
    """For `prepare`: the agent may have got the job, so that what is in its temporary folder may be its own."""

    @property
    def own_folder(self) -> str:
        """Below the folder of builds: no two jobs have the same one at the same time."""
        slot = f"{self.slot}-{self.manager}" if self.manager else str(self.slot)
        slot += "-protected" if self.is_protected else ""
        return f"{self.runner}/{slot if self.job is None else f'job-{self.job}'}"

    @property
    def folder(self) -> str:
        """The working directory, below the folder of builds."""
        return self.clone_path or f"{self.own_folder}/{project_folder(self.project)}"

    @property
    def passing(self) -> str:
        """What goes with the job, below the folder of builds."""
        return f"{self.folder}.tmp" if self.job is None else self.own_folder


def project_folder(project: str) -> str:
    """The folder of a project's path. `app.tmp` becomes `app@tmp`, which no project is called: the folder with `.tmp`
    behind its name is the temporary one of the project `app`."""
    return _LIKE_TEMPORARY.sub(r"@\1", project)


class PreparedPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Folders as the job sees them."""

    work_dir: str
    builds_dir: str
    cache_dir: str
    notes: tuple[str, ...] = ()
    """Lines for the job's log, about the place."""
    slot: int | None = None
    """The slot of the machine that it has, where machines count theirs."""
    hidden: tuple[str, ...] = ()
    """Folders of the machine that the job must not see."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What is left where jobs run."""

    disk_free_bytes: int


class Environment(Protocol):
    """Where jobs run."""

    def capacity(self) -> int | None:
        """Jobs that can be here at the same time; None: no limit of its own. Cheap; asked before every reservation."""
        ...

    async def acquire(self, place: JobPlace) -> str:
        """The machine for this job, the same one when asked again with the same key; waits until there is one."""
        ...

    def adopt(self, place: JobPlace, machine: str) -> None:
        """A job of an earlier process has this machine: out of the journal, or found through its agent."""
        ...

    async def prepare(self, place: JobPlace, machine: str) -> PreparedPlace:
        """Make the job's working directory, and one beside it with `.tmp` behind its name for this job alone.

        What an earlier job of the project left in the working directory stays for the checkout. The other one is
        empty, unless the job may have begun.
        """
        ...

    async def before(self, place: JobPlace, machine: str) -> str:
        """Run the operator's command before a job, on the machine and outside the job; its output."""
        ...

    async def after(self, place: JobPlace, machine: str) -> str:
        """The same after the job, before `clean_up`."""
        ...

    async def connect(self, machine: str) -> AgentClient:
        """A new connection to the machine's agent, which has answered on it; starts the agent where none runs."""
        ...

    async def recover(self) -> Sequence[str]:
        """Machines in which jobs of an earlier process may be found; those of the journal come besides."""
        ...

    async def usage(self, folders: Sequence[str] = ()) -> Usage:
        """The least room of the machines that get the next job.

        Jobs also write to these configured folders; environments that cannot tell their disks apart leave them out.
        """
        ...

    async def clean_up(self, place: JobPlace, machine: str) -> None:
        """A job is over: release its machine, remove what no later job can use; a working directory of its own, too."""
        ...

    async def close(self) -> None:
        """The manager ends: connections and child processes go, agents and jobs stay."""
        ...


def standing_machine(environment: Environment) -> str:
    """The one machine of an environment that says so in `standing`; empty: it has none that is always the same.

    Its agent is connected before the first job is asked for, and none is asked for while it cannot be reached.
    """
    return getattr(environment, "standing", "")
