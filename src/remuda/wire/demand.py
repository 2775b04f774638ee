"""Messages of `GET /api/remuda/v1/demand`: how many jobs of a cell run, wait, or will be ready soon. Runner managers
that scale machines read them."""

import msgspec


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of created jobs that cannot be given to a runner yet, by what they wait for."""

    next: int = 0
    """Jobs that wait only for jobs that already run or are ready."""
    later: int = 0
    """Jobs that wait for at least one job that is not ready either."""
    held: int = 0
    """Jobs that wait for a person, a time or a resource group, and jobs that wait for such a job: by stage, or
    directly by `needs`."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One manager's part of a key's demand: how many of the jobs it runs, and for how many it should have machines."""

    runner_id: int
    system_id: str
    running: int
    """Jobs that the manager runs."""
    ready: int
    created: Ahead


class KeyDemand(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of jobs with one capability key, which means that the same runners can take them."""

    tags: tuple[str, ...]
    protected: bool
    pools: tuple[tuple[str, int], ...]
    """Owners whose runners may take the jobs: the organization, and the group or project if it has runners of its
    own."""
    running: int
    ready: int
    """Jobs that wait for a runner."""
    created: Ahead
    unserved: int
    """Ready jobs for which no manager is available."""
    shares: tuple[Share, ...]
    """Shares of the managers; a runner gets only those of its own managers. `unserved` and the `ready` of all managers
    add up to `ready`."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint's answer, by capability key: for administrators all jobs, for a runner those that it can run."""

    version: int = 1
    keys: tuple[KeyDemand, ...] = ()
