"""What the manager needs of a place where jobs run; the kinds of places are in `adapters/`.

One environment serves many jobs over one agent. The call order for a job is `prepare`, then work through the agent
behind `connect`, then `clean_up`. Every call may be repeated, also by a new process after the old one died: `prepare`
finds what is already there, `recover` says whether a job of the old process can still be there. Calls for different
jobs may overlap; the isolation of their working directories is the environment's duty.

EnvironmentTemporaryError: try again later. EnvironmentLostError: this job can never run here.
"""

from typing import Protocol

import msgspec

from remuda.wire.agent_client import AgentClient


class JobPlace(msgspec.Struct, frozen=True, kw_only=True):
    """What decides where a job's files are."""

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


class PreparedPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Folders as the job sees them."""

    work_dir: str
    builds_dir: str
    cache_dir: str


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What is left where jobs run."""

    disk_free_bytes: int


class Environment(Protocol):
    """Where jobs run."""

    async def prepare(self, place: JobPlace) -> PreparedPlace:
        """Make the job's working directory, and one beside it with `.tmp` behind its name for this job alone.

        What an earlier job of the project left in the working directory stays for the checkout.
        """
        ...

    async def connect(self) -> AgentClient:
        """A new connection to the agent, which has answered on it; starts the agent where none runs."""
        ...

    async def recover(self) -> bool:
        """Whether there is anything in which jobs of an earlier process can be found."""
        ...

    async def usage(self) -> Usage:
        """How much room there is."""
        ...

    async def clean_up(self, place: JobPlace) -> None:
        """A job is over: remove what no later job can use; a working directory of its own, too."""
        ...
