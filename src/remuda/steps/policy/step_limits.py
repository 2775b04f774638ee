"""One step's limits, made to hold as far as this machine can: what stands before its command, which groups it joins.

Decides what is enforced and what is only advisory, and says why. Enforced is what holds against a step that tries to
get around it: the kernel watches over it, and the step runs as another user than the agent, or in a container. All else
is advisory, though it is set up, and acted on, just the same.

`enclose` may be called again for a step that runs (the key is the same), as an agent does that adopts one.
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from remuda.lib.clock import Clock
from remuda.lib.dataclass import dataclass
from remuda.lib.files import write_whole
from remuda.steps.pack.program import own_command
from remuda.steps.policy import measurement
from remuda.steps.policy.host_abilities import DISK, OWN_USER, Host
from remuda.steps.policy.job_user import JobUser
from remuda.steps.policy.slots import SlotGroup
from remuda.steps.process.cgroups import StepGroup
from remuda.steps.process.environment import DEFAULT_PATH
from remuda.steps.process.job_processes import describe
from remuda.steps.process.limits import NO_LIMITS, Limits
from remuda.steps.process.usage import format_bytes

_END_SECONDS, _LOOK_SECONDS = 10.0, 0.01
INSIDE = "steps in a container have the limits of the container, none of their own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Enclosure:
    """Around one step."""

    limits: Limits
    work_dir: Path
    spec: Mapping[str, Any] = field(default_factory=dict)
    """What `entering` does before it becomes the command; empty: it is not needed."""
    joins: tuple[str, ...] = ()
    """Files that the shim's subshell writes 0 to before it executes the command."""
    person: JobUser | None = None
    group: StepGroup | None = None
    slot: SlotGroup | None = None
    """What is around the whole job."""
    enforced: tuple[str, ...] = ()
    advisory: Mapping[str, str] = field(default_factory=dict)
    """By name, why."""
    is_inside: bool = False
    disk_before: int = 0
    """What the work folder had on the disk when the step began."""

    @property
    def limits_disk(self) -> bool:
        return self.limits.disk_bytes is not None and not self.is_inside

    @property
    def replaces_proxies(self) -> bool:
        """True if the step is given a proxy in place of those that its variables name."""
        network = self.spec.get("network") or ()
        return bool(network) and all(network)

    def since(self, file: Path) -> "Enclosure":
        """The same, knowing what the work folder has before the step; `file` keeps it for an agent that adopts it."""
        try:
            before = int(file.read_bytes())
        except (OSError, ValueError):
            before = measurement.folder_bytes(self.work_dir)
            write_whole(file, str(before).encode())
        return replace(self, disk_before=before)

    def wrap(self, command: Sequence[str], env: Mapping[str, str], env_file: Path) -> tuple[list[str], dict[str, str]]:
        """What to start in place of a command, and with which environment.

        Where the step becomes another user, its environment is put into a file for that moment: until then programs run
        as root, and a variable such as LD_PRELOAD must not decide what they do.
        """
        if not self.spec:
            return list(command), dict(env)
        spec = dict(self.spec)
        if self.person is not None:
            write_whole(env_file, json.dumps(dict(env)).encode())
            spec["env_file"] = str(env_file)
            env = {"PATH": DEFAULT_PATH}
        return [*own_command("enclose"), json.dumps(spec), *command], dict(env)

    def report(self) -> dict[str, Any]:
        """For the step's result."""
        return {"enforced": list(self.enforced), "advisory": list(self.advisory), "why": dict(self.advisory)}

    def usage(self) -> dict[str, float]:
        """What its control groups tell of what it used, as results name it."""
        used = self.group.usage() if self.group else None
        return {} if used is None else {name: value for name, value in asdict(used).items() if value is not None}

    async def find_broken_limit(self) -> str | None:
        """Which limit the step has gone beyond, in words; asked when it has ended."""
        limits, group = self.limits, self.group
        whole = self.slot.limits.memory_bytes if self.slot else None
        if group is not None and (limits.memory_bytes or whole) and group.count_memory_kills():
            own = limits.memory_bytes
            if own is not None and (whole is None or own <= whole):
                return f"the step used more memory than its limit of {format_bytes(own)} and was killed"
            if whole is not None:
                return f"the job used more memory than its limit of {format_bytes(whole)}, and was killed"
        if limits.disk_bytes is not None and not self.is_inside:
            size = await asyncio.to_thread(measurement.folder_bytes, self.work_dir)
            return measurement.disk_error(size, limits.disk_bytes, before=self.disk_before)
        return None

    def hint(self) -> str | None:
        """What a limit may have to do with a step that has failed."""
        if self.group is None:
            return None
        refused, whole = self.group.count_refused_forks(), self.slot.limits.pids if self.slot else None
        if self.limits.pids is not None and refused:
            return f"the step could not start more than {self.limits.pids} processes, which is its limit"
        # Which of the two groups counts depends on the kernel.
        if self.slot is not None and whole is not None and (refused or self.slot.count_refused_forks()):
            return f"the job could not start more than {whole} processes, which is its limit"
        if self.slot is not None and self.group.count_memory_kills() and self.slot.limits.memory_bytes is None:
            return "a process of the step was killed: its control group, or the machine, had no memory left"
        return None

    async def until_exceeded(self, session: int, clock: Clock) -> str:
        """Measure what the kernel does not watch over. Returns what was exceeded, in words, or never."""
        limits = NO_LIMITS if self.is_inside else self.limits
        return await measurement.until_exceeded(
            folder=self.work_dir,
            disk_bytes=limits.disk_bytes,
            disk_before=self.disk_before,
            session=session,
            memory_bytes=None if self._is_counted("memory") else limits.memory_bytes,
            pids=None if self._is_counted("pids") else limits.pids,
            clock=clock,
        )

    @property
    def is_measured(self) -> bool:
        """Whether there is anything that only the agent watches over."""
        limits = NO_LIMITS if self.is_inside else self.limits
        if limits is NO_LIMITS:
            return False
        if limits.disk_bytes is not None:
            return True
        return any(name in limits.names() and not self._is_counted(name) for name in ("memory", "pids"))

    def _is_counted(self, name: str) -> bool:
        return self.group is not None and self.group.groups.limits(name)

    def kill(self) -> None:
        """Everything that the step started, wherever it has gone."""
        if self.group is not None:
            self.group.kill()

    def remove(self) -> None:
        """Once it has ended. What it left running keeps its group until `sweep`."""
        if self.group is not None:
            self.group.remove()


def enclose(
    host: Host,
    limits: Limits = NO_LIMITS,
    *,
    key: str,
    work_dir: Path,
    person: JobUser | None = None,
    inside: bool = False,
    apart: bool = False,
    slot: SlotGroup | None = None,
) -> Enclosure:
    """Set up what holds for a step.

    `inside`: its limits are those of a container, only a client of that runs here. `apart`: something other than its
    user keeps it from the agent. `slot`: the group that its groups lie in.
    """
    if slot is not None and slot.limits.cpus and limits.cpus:
        # Version 1 has no group with more than the one around it.
        limits = replace(limits, cpus=min(limits.cpus, slot.limits.cpus))
    group = None
    if host.groups.folders():
        group = StepGroup(groups=host.groups, key=key)
        group.make(NO_LIMITS if inside else limits)
    enforced, advisory = _split_by_enforcement(host, limits, is_apart=apart or person is not None, inside=inside)
    joins = group.joins if group else ()
    spec = _spec(host, NO_LIMITS if inside else limits, person)
    return Enclosure(
        limits=limits,
        work_dir=work_dir,
        # Whoever enters joins by itself: what it needs for that is not the step's.
        spec=spec | {"joins": joins} if spec else {},
        joins=() if spec else joins,
        person=person,
        group=group,
        slot=slot,
        enforced=enforced,
        advisory=advisory,
        is_inside=inside,
    )


async def sweep(host: Host, job: str, clock: Clock) -> tuple[str, ...]:
    """Kill and remove everything that is left of a job: the groups whose keys begin with it and a dot. What cannot be
    ended within `_END_SECONDS`, in words."""
    deadline = clock.monotonic() + _END_SECONDS
    while keys := _keys(host, job):
        for key in keys:
            group = StepGroup(groups=host.groups, key=key)
            if group.kill() or not group.remove():
                # A process that was killed is in its group until it has ended.
                await clock.sleep(_LOOK_SECONDS)
        if clock.monotonic() >= deadline:
            break
    left = {pid for key in _keys(host, job) for pid in StepGroup(groups=host.groups, key=key).members()}
    _forget_unused(host)
    return describe(left)


def _keys(host: Host, job: str) -> set[str]:
    return {path.name for folder in host.groups.folders() for path in folder.glob(f"{job}.*")}


def _forget_unused(host: Host) -> None:
    for folder in host.groups.folders():
        with contextlib.suppress(OSError):  # there, as long as another job has groups in it
            folder.rmdir()


def _spec(host: Host, limits: Limits, person: JobUser | None) -> dict[str, Any]:
    """What `entering` is to do beyond joining groups."""
    spec: dict[str, Any] = {}
    if limits.network is not None and host.has_networks:
        spec["network"] = limits.network
    if limits.disk_bytes is not None:
        spec["file_bytes"] = limits.disk_bytes
    if person is not None:
        spec |= {"uid": person.uid, "gid": person.gid}
    return spec


def _split_by_enforcement(
    host: Host, limits: Limits, *, is_apart: bool, inside: bool
) -> tuple[tuple[str, ...], dict[str, str]]:
    """What is enforced and what is not, with the reason."""
    enforced: list[str] = []
    advisory: dict[str, str] = {}
    for name in ("steps", *limits.names()):
        why = _weakness(host, name, inside=inside) or ("" if is_apart else OWN_USER)
        if why:
            advisory[name] = why
        else:
            enforced.append(name)
    return tuple(enforced), advisory


def _weakness(host: Host, name: str, *, inside: bool) -> str:
    """Why a limit does not hold by itself; empty when it does."""
    match name:
        case "steps" | "timeout":
            return ""
        case _ if inside:
            return INSIDE
        case "network":
            return "" if host.has_networks else "the kernel lets the agent make no network for steps"
        case "disk":
            return DISK
    return (
        "" if host.groups.limits(name) else host.groups.lacking.get(name, "this machine has no control groups for it")
    )
