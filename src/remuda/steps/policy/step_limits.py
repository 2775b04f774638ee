"""Sets up the limits of one step as far as this machine can: creates control groups, and the JSON input of
`process.enclosure_entry`, the program that applies the other limits and then executes the step's command.

A limit is enforced if even a hostile step cannot evade it: the kernel applies it, and the step runs as another user
than the agent, or in a container. All others are advisory: a step that exceeds one is ended, but it could evade them.
`enclose` may be called again for a running step (with the same key), as after a restart of the agent."""

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
from remuda.steps.policy.host_abilities import DISK, NO_NETWORK, OWN_USER, Host
from remuda.steps.policy.job_user import JobUser
from remuda.steps.policy.slot_cgroup import SlotGroup
from remuda.steps.process.cgroups import StepGroup
from remuda.steps.process.environment import DEFAULT_PATH
from remuda.steps.process.job_processes import describe
from remuda.steps.process.limits import NO_LIMITS, Limits
from remuda.steps.process.usage import format_bytes

_END_SECONDS, _LOOK_SECONDS = 10.0, 0.01
INSIDE = "steps in a container have the limits of the container, none of their own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Enclosure:
    limits: Limits
    work_dir: Path
    spec: Mapping[str, Any] = field(default_factory=dict)
    """What `process.enclosure_entry` does before it executes the command; empty: it is not needed."""
    joins: tuple[str, ...] = ()
    """Files that the shim's subshell writes 0 to before it executes the command."""
    person: JobUser | None = None
    group: StepGroup | None = None
    slot: SlotGroup | None = None
    """The control group around the whole job."""
    enforced: tuple[str, ...] = ()
    advisory: Mapping[str, str] = field(default_factory=dict)
    """The reason by name of the limit."""
    is_inside: bool = False
    disk_before: int = 0
    """Size of the work folder in bytes when the step began."""

    @property
    def limits_disk(self) -> bool:
        return self.limits.disk_bytes is not None and not self.is_inside

    @property
    def replaces_proxies(self) -> bool:
        """True if the step reaches the network only through Remuda's proxy: its own proxy variables are removed."""
        network = self.spec.get("network") or ()
        return bool(network) and all(network)

    def since(self, file: Path) -> "Enclosure":
        """Return a copy with the size of the work folder before the step, so that the disk limit counts only growth.
        The first call stores it in `file`; later ones, after a restart of the agent, read it there."""
        try:
            before = int(file.read_bytes())
        except (OSError, ValueError):
            before = measurement.folder_bytes(self.work_dir)
            write_whole(file, str(before).encode())
        return replace(self, disk_before=before)

    def wrap(self, command: Sequence[str], env: Mapping[str, str], env_file: Path) -> tuple[list[str], dict[str, str]]:
        """Return command line and environment that apply the limits and run `command`. For another user, `env_file`
        passes the variables, so that none (such as LD_PRELOAD) affects programs that run as root before."""
        if not self.spec:
            return list(command), dict(env)
        spec = dict(self.spec)
        if self.person is not None:
            write_whole(env_file, json.dumps(dict(env)).encode())
            spec["env_file"] = str(env_file)
            env = {"PATH": DEFAULT_PATH}
        return [*own_command("enclose"), json.dumps(spec), *command], dict(env)

    def report(self) -> dict[str, Any]:
        """Return a part of the step's result: the names of the limits that were `enforced` and of the `advisory` ones
        (which the step could evade), and why a limit is only advisory (`why`)."""
        return {"enforced": list(self.enforced), "advisory": list(self.advisory), "why": dict(self.advisory)}

    def usage(self) -> dict[str, float]:
        """Return the usage from the step's control groups, with the names of its result; empty if it has none."""
        used = self.group.usage() if self.group else None
        return {} if used is None else {name: value for name, value in asdict(used).items() if value is not None}

    async def find_broken_limit(self) -> str | None:
        """Return a message about the memory or disk limit that the ended step has exceeded, else None."""
        limits, group = self.limits, self.group
        whole = self.slot.limits.memory_bytes if self.slot else None
        if group is not None and (limits.memory_bytes or whole) and group.count_memory_kills():
            own = limits.memory_bytes
            if own is not None and (whole is None or own <= whole):
                return f"the step used more memory than its limit of {format_bytes(own)} and was killed"
            if whole is not None:
                return f"the job used more memory than its limit of {format_bytes(whole)}, and was killed"
        if limits.disk_bytes is not None and self.limits_disk:
            size = await asyncio.to_thread(measurement.folder_bytes, self.work_dir)
            return measurement.disk_error(size, limits.disk_bytes, before=self.disk_before)
        return None

    def hint(self) -> str | None:
        """Return a message if a limit may have caused the failure, such as processes not started; else None."""
        if self.group is None:
            return None
        refused, whole = self.group.count_refused_forks(), self.slot.limits.pids if self.slot else None
        if self.limits.pids is not None and refused:
            return f"the step could not start more than {self.limits.pids} processes, which is its limit"
        # It depends on the kernel which of the two groups counts.
        if self.slot is not None and whole is not None and (refused or self.slot.count_refused_forks()):
            return f"the job could not start more than {whole} processes, which is its limit"
        if self.slot is not None and self.group.count_memory_kills() and self.slot.limits.memory_bytes is None:
            return "a process of the step was killed: its control group, or the machine, had no memory left"
        return None

    async def until_exceeded(self, session: int, clock: Clock) -> str:
        """Measure limits that the kernel does not enforce until the step's `session` exceeds one; return a message."""
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
        """True if the step has a limit that the agent has to measure, because the kernel does not enforce it."""
        limits = NO_LIMITS if self.is_inside else self.limits
        if limits is NO_LIMITS:
            return False
        if limits.disk_bytes is not None:
            return True
        return any(name in limits.names() and not self._is_counted(name) for name in ("memory", "pids"))

    def _is_counted(self, name: str) -> bool:
        return self.group is not None and self.group.groups.limits(name)

    def remove(self) -> None:
        """Remove the control groups of an ended step. Groups with processes that it left running stay until `sweep`."""
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
    """Set up the limits of a step. `key`: name of its control groups. `person`: its user, if not the agent's. `inside`:
    the step's work is done in a container with its own limits, so none are set for the client that runs on the machine.
    `apart`: the step is isolated from the agent even if `person` is None. `slot`: the control group of the job, which
    contains those of the step."""
    if slot is not None and slot.limits.cpus and limits.cpus:
        # In version 1 a group may not have more than its parent.
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
        # With a spec, `enclosure_entry` joins the groups itself.
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
    """Kill all processes in the control groups of a job (their names begin with `job` and a dot), and remove the
    groups. Returns descriptions of processes that do not end within `_END_SECONDS`."""
    deadline = clock.monotonic() + _END_SECONDS
    while keys := _keys(host, job):
        for key in keys:
            group = StepGroup(groups=host.groups, key=key)
            if group.kill() or not group.remove():
                # A killed process is in its group until it has ended.
                await clock.sleep(_LOOK_SECONDS)
        if clock.monotonic() >= deadline:
            break
    survivors = {pid for key in _keys(host, job) for pid in StepGroup(groups=host.groups, key=key).members()}
    _forget_unused(host)
    return describe(survivors)


def _keys(host: Host, job: str) -> set[str]:
    return {path.name for folder in host.groups.folders() for path in folder.glob(f"{job}.*")}


def _forget_unused(host: Host) -> None:
    for folder in host.groups.folders():
        with contextlib.suppress(OSError):  # not empty while another job has groups in it
            folder.rmdir()


def _spec(host: Host, limits: Limits, person: JobUser | None) -> dict[str, Any]:
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
    """Return the names of the enforced limits, and the advisory ones with the reason. `is_apart`: the step is isolated
    from the agent. `inside`: the step's work is done in a container with its own limits."""
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
    """Return why this machine cannot enforce a limit even for an isolated step; else empty. `inside`: a container."""
    match name:
        case "steps" | "timeout":
            return ""
        case _ if inside:
            return INSIDE
        case "network":
            return "" if host.has_networks else NO_NETWORK
        case "disk":
            return DISK
    return (
        "" if host.groups.limits(name) else host.groups.lacking.get(name, "this machine has no control groups for it")
    )
