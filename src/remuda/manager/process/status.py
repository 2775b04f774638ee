"""The status document of a manager, computed at each request. Times are RFC 3339, empty for never."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from remuda import __version__
from remuda.lib.clock import rfc3339
from remuda.manager.core.poll_pace import Health
from remuda.manager.core.record import Phase

if TYPE_CHECKING:
    from remuda.manager.config.values import RunnerConfig
    from remuda.manager.jobs.link import AgentLink
    from remuda.manager.process.supervision import Manager
    from remuda.taskscaler.fleet.status import GroupStatus, ScalerStatus

VERSION = 1


LASTING_FAILURES = 3
"""Number of failed creations in a row after which a group without ready machines counts as unusable."""
LONG_SECONDS = 10.0
"""A plugin that takes longer to start is mentioned."""


class ConfigStatus(msgspec.Struct, frozen=True, kw_only=True):
    file: str = ""
    loaded_at: str = ""
    error: str = ""
    """Why the newest version of the file is not used; empty: it is used."""
    restart: tuple[str, ...] = ()
    """Changed keys that apply after a restart."""


class SlotStatus(msgspec.Struct, frozen=True, kw_only=True):
    concurrent: int = 0
    running: int = 0
    asking: int = 0
    free: int = 0
    saturation: float = 0.0


class RunnerStatus(msgspec.Struct, frozen=True, kw_only=True):
    runner: str
    name: str
    url: str
    executor: str
    jobs: int
    limit: int
    capacity: int | None
    """Jobs that its environment can run at the same time; None: no limit."""
    health: str
    """well, refused or troubled. Also troubled: none of its groups of machines can be used."""
    problem: str
    last_status: int | None
    asked_at: str
    answered_at: str
    next_at: str
    open_requests: int
    used_limit: int
    adaptive_limit: int
    hard_limit: int
    disk_free_bytes: int | None
    disk_least_bytes: int
    is_blocked: bool


class FleetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the machines created for a runner; `remuda scale explain` lists them."""

    runner: str
    """Its short token."""
    name: str
    instances: dict[str, int]
    """By state: creating, ready, draining, failed, deleting, lost, unknown, suspect, foreign."""
    requested: int
    """Requested, and not yet listed by their group."""
    max_instances: int
    """0: no limit."""
    held: int
    """Slots with jobs."""
    waiting: int
    """Jobs that wait for a slot."""
    problems: tuple[str, ...] = ()
    is_ending: bool = False
    """Its runner is no longer configured: it waits for its last jobs, or removes its machines."""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    runner: str
    state: str
    stage: str
    stage_since: str
    received_at: str
    machine: str
    slot: int
    log_bytes: int
    """Log bytes that the server has."""
    held_until: str
    waits_for: str = ""
    """Why it waits for its machine or agent; empty: it does not."""


class MachineStatus(msgspec.Struct, frozen=True, kw_only=True):
    machine: str
    is_connected: bool
    jobs: int
    problem: str = ""
    """Why its agent is not connected."""


class ManagerStatus(msgspec.Struct, frozen=True, kw_only=True):
    format: int = VERSION
    version: str = __version__
    pid: int = 0
    system_id: str = ""
    state: str = ""
    """starting, running, draining, stopping."""
    config: ConfigStatus = ConfigStatus()
    slots: SlotStatus = SlotStatus()
    runners: tuple[RunnerStatus, ...] = ()
    jobs: tuple[JobStatus, ...] = ()
    machines: tuple[MachineStatus, ...] = ()
    fleets: tuple[FleetStatus, ...] = ()
    damaged_journals: tuple[str, ...] = ()
    """Damaged journals that were moved aside; the operator removes them."""


def status_of(manager: "Manager", config: ConfigStatus) -> ManagerStatus:
    load = manager.load
    jobs = manager.jobs
    by_runner = Counter(job.runner for job in jobs)
    by_machine = Counter((id(job.environment), job.life.machine) for job in jobs)
    return ManagerStatus(
        pid=os.getpid(),
        system_id=manager.system_id,
        state=manager.state,
        damaged_journals=manager.damaged_journals,
        config=config,
        slots=SlotStatus(
            concurrent=manager.config.concurrent,
            running=load.running,
            asking=load.requesting,
            free=load.free,
            saturation=round(load.saturation, 4),
        ),
        runners=tuple(_runners(manager, by_runner)),
        jobs=tuple(
            JobStatus(
                id=job.job_id,
                runner=job.runner,
                state="held" if job.life.phase is Phase.ON_HOLD else job.state,
                stage=job.stage,
                stage_since=rfc3339(job.stage_since),
                received_at=rfc3339(job.received_at),
                machine=job.life.machine,
                slot=job.slot,
                log_bytes=job.life.trace.confirmed,
                held_until=_time(job.life.outcome.held_until if job.life.outcome else 0.0),
                waits_for=job.hindrance.cause,
            )
            for job in sorted(jobs, key=lambda job: job.received_at)
        ),
        machines=machines_of(manager.links, by_machine),
        fleets=(
            *(fleet_of(runner, scaled.status()) for runner, scaled in manager.scaling.fleets),
            *(fleet_of(scaled.runner, scaled.status(), is_ending=True) for scaled in manager.scaling.ending),
        ),
    )


def machines_of(links: "Iterable[AgentLink]", jobs: Mapping[tuple[int, str], int]) -> tuple[MachineStatus, ...]:
    """Return the status of all machines with a link. `jobs` has the number of jobs by `id(environment)` and machine
    name. Autoscaled machines that are gone or another runner's are left out, unless they have jobs."""
    from remuda.manager.environments.scaled import Scaled  # imported here, so that clients of a manager load faster

    own: dict[int, set[str]] = {}
    machines = []
    for link in sorted(links, key=lambda link: link.machine):
        key, environment = id(link.environment), link.environment
        if isinstance(environment, Scaled) and key not in own:
            own[key] = _own_machines(environment.status())
        count = jobs.get((key, link.machine), 0)
        if count or key not in own or link.machine in own[key]:
            machines.append(
                MachineStatus(
                    machine=link.machine, is_connected=link.connected.is_set(), jobs=count, problem=link.problem
                )
            )
    return tuple(machines)


def _own_machines(fleet: "ScalerStatus") -> set[str]:
    from remuda.taskscaler.fleet.status import FOREIGN  # imported here because most managers have no fleet

    return {instance.name for instance in fleet.instances if instance.state != FOREIGN}


def health_of(health: Health, fleet: "ScalerStatus | None") -> str:
    """Return the server's health, or `troubled` if that is well but no group of the `fleet` can provide machines."""
    groups = fleet.groups if fleet is not None else ()
    has_ready = fleet is not None and any(instance.state == "ready" for instance in fleet.instances)
    is_unusable = bool(groups) and all(
        group.error and (not group.is_current or (group.failures >= LASTING_FAILURES and not has_ready))
        for group in groups
    )
    return (Health.TROUBLED if is_unusable and health is Health.WELL else health).value


def _start_note(group: "GroupStatus") -> str:
    seconds = group.starting_seconds or 0.0
    return f"its plugin is starting, {seconds:.0f} s so far" if seconds >= LONG_SECONDS else ""


def fleet_of(runner: "RunnerConfig", status: "ScalerStatus", *, is_ending: bool = False) -> FleetStatus:
    """Return counts and problems of a fleet (a runner's machines). `is_ending`: the runner is no longer configured."""
    # A group may give the same text as error and note.
    problems = dict.fromkeys(
        f"{group.name}: {text}"
        for group in status.groups
        for text in (group.error, group.note, _start_note(group))
        if text
    )
    return FleetStatus(
        runner=runner.short_token,
        name=runner.name,
        instances=dict(Counter(instance.state for instance in status.instances)),
        requested=sum(request.count for request in status.requests),
        max_instances=status.plan.terms.max_instances if status.plan is not None else 0,
        held=status.held,
        waiting=status.waiting,
        problems=(*problems, *([status.store_error] if status.store_error else [])),
        is_ending=is_ending,
    )


def _runners(manager: "Manager", jobs: Counter[str]) -> list[RunnerStatus]:
    runners = []
    fleets = {runner.short_token: scaled for runner, scaled in manager.scaling.fleets}
    for poller in manager.pollers:
        runner, status = poller.runner, poller.status
        fleet = fleets.get(runner.short_token)
        runners.append(
            RunnerStatus(
                runner=runner.short_token,
                name=runner.name,
                url=runner.url,
                executor=runner.executor,
                jobs=jobs[runner.short_token],
                limit=runner.limit,
                capacity=poller.capacity,
                health=health_of(status.health, fleet.status() if fleet is not None else None),
                problem=status.problem,
                last_status=status.last_status,
                asked_at=_time(status.asked_at),
                answered_at=_time(status.answered_at),
                next_at=_time(status.next_at),
                open_requests=status.open_requests,
                used_limit=status.used_limit,
                adaptive_limit=status.adaptive_limit,
                hard_limit=status.hard_limit,
                disk_free_bytes=status.disk_free_bytes,
                disk_least_bytes=runner.remuda.least_disk_bytes,
                is_blocked=status.is_blocked,
            )
        )
    return runners


def _time(seconds: float) -> str:
    return rfc3339(seconds) if seconds else ""
