"""What a manager says of itself to whoever asks: `remuda manager status` prints this document, `control.py` sends it.

Read from the parts as they are at this moment; nothing is kept or decided here. Times are RFC 3339, empty for never.
"""

import os
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from remuda import __version__
from remuda.lib.clock import rfc3339
from remuda.manager.core.record import Phase

if TYPE_CHECKING:
    from remuda.manager.config import RunnerConfig
    from remuda.manager.supervision import Manager
    from remuda.taskscaler.loop import ScalerStatus

VERSION = 1


class ConfigStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where the configuration came from, and what became of the last change."""

    file: str = ""
    loaded_at: str = ""
    error: str = ""
    """Why the newest one is not used; empty: it is."""
    restart: tuple[str, ...] = ()
    """Keys that were changed and count only after a restart."""


class SlotStatus(msgspec.Struct, frozen=True, kw_only=True):
    concurrent: int = 0
    running: int = 0
    asking: int = 0
    free: int = 0
    saturation: float = 0.0


class RunnerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One runner and its server."""

    runner: str
    name: str
    url: str
    executor: str
    jobs: int
    limit: int
    capacity: int | None
    """What its environment can have; None: as many as there are slots."""
    health: str
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
    """The machines that are created for a runner, in numbers; `remuda scale explain` has them one by one."""

    runner: str
    """Its short token."""
    name: str
    instances: dict[str, int]
    """By state: creating, ready, draining, failed, deleting, lost, unknown."""
    requested: int
    """Asked for, and not shown by their group yet."""
    max_instances: int
    """0: no limit."""
    held: int
    """Slots with jobs."""
    waiting: int
    """Jobs that wait for a slot."""
    problems: tuple[str, ...] = ()


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
    """What the server has of the log."""
    held_until: str
    waits_for: str = ""
    """Why its machine or agent keeps it waiting; empty: nothing does."""


class MachineStatus(msgspec.Struct, frozen=True, kw_only=True):
    machine: str
    is_connected: bool
    jobs: int
    problem: str = ""
    """Why its agent is not reached."""


class ManagerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The whole."""

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


def status_of(manager: "Manager", config: ConfigStatus) -> ManagerStatus:
    """How a manager stands now."""
    load = manager.load
    jobs = manager.jobs
    by_runner = Counter(job.runner for job in jobs)
    by_machine = Counter(job.life.machine for job in jobs)
    return ManagerStatus(
        pid=os.getpid(),
        system_id=manager.system_id,
        state=manager.state,
        config=config,
        slots=SlotStatus(
            concurrent=manager.config.concurrent,
            running=load.running,
            asking=load.asking,
            free=load.free,
            saturation=round(load.saturation, 4),
        ),
        runners=tuple(_runners(manager, by_runner)),
        jobs=tuple(
            JobStatus(
                id=job.job_id,
                runner=job.runner,
                state="held" if job.life.phase is Phase.HELD else job.state,
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
        machines=tuple(
            MachineStatus(
                machine=link.machine,
                is_connected=link.connected.is_set(),
                jobs=by_machine[link.machine],
                problem=link.problem,
            )
            for link in sorted(manager.links, key=lambda link: link.machine)
        ),
        fleets=tuple(_fleet(runner, scaled.status()) for runner, scaled in manager.scaling.fleets),
    )


def _fleet(runner: "RunnerConfig", now: "ScalerStatus") -> FleetStatus:
    problems = [f"{group.name}: {text}" for group in now.groups for text in (group.error, group.note) if text]
    return FleetStatus(
        runner=runner.short_token,
        name=runner.name,
        instances=dict(Counter(one.state for one in now.instances)),
        requested=sum(one.count for one in now.requests),
        max_instances=now.plan.terms.max_instances if now.plan is not None else 0,
        held=now.held,
        waiting=now.waiting,
        problems=(*problems, *([now.store_error] if now.store_error else [])),
    )


def _runners(manager: "Manager", jobs: Counter[str]) -> list[RunnerStatus]:
    found = []
    for poller in manager.pollers:
        runner, now = poller.runner, poller.status
        found.append(
            RunnerStatus(
                runner=runner.short_token,
                name=runner.name,
                url=runner.url,
                executor=runner.executor,
                jobs=jobs[runner.short_token],
                limit=runner.limit,
                capacity=poller.capacity,
                health=now.health,
                problem=now.problem,
                last_status=now.last_status,
                asked_at=_time(now.asked_at),
                answered_at=_time(now.answered_at),
                next_at=_time(now.next_at),
                open_requests=now.open_requests,
                used_limit=now.used_limit,
                adaptive_limit=now.adaptive_limit,
                hard_limit=now.hard_limit,
                disk_free_bytes=now.disk_free_bytes,
                disk_least_bytes=runner.remuda.least_disk_bytes,
                is_blocked=now.is_blocked,
            )
        )
    return found


def _time(seconds: float) -> str:
    return rfc3339(seconds) if seconds else ""
