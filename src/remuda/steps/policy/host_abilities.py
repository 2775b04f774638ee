"""Finds out, once, which limits of steps (memory, CPU, processes, network) the agent can enforce on this machine."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path

from remuda.lib.dataclass import dataclass
from remuda.steps.process.cgroups import Groups, find_groups
from remuda.steps.process.enclosure_entry import can_leave_network

OWN_USER = "steps run as the agent's own user, who can remove the limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    is_root: bool
    groups: Groups = field(default_factory=Groups)
    has_networks: bool = False
    """True if a step can be given a network of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """Whether the agent can enforce one kind of limit, and a sentence that says how, or why not."""

    name: str
    enforced: bool
    """True if the limit is enforced for steps that run as another user (`run_as`); for others it is advisory."""
    detail: str


def find_host(data: Path, cgroup: str = "") -> Host:
    """Test what the agent can enforce on this machine. `data`: its data folder, after which its control groups are
    named, so that agents do not share them. `cgroup`: the parent of these groups, if not the agent's own group."""
    groups = find_groups(groups_name(data), parent=cgroup or None)
    return Host(is_root=os.geteuid() == 0, groups=groups, has_networks=can_leave_network())


def groups_name(data: Path) -> str:
    """Return the name of the control group that contains all steps of the agent with this data folder."""
    return "remuda-" + hashlib.sha256(os.fsencode(data.absolute())).hexdigest()[:12]


@cache
def host_of(data: Path, cgroup: str = "") -> Host:
    """Return what the agent can enforce on this machine: the result of `find_host`, cached."""
    return find_host(data, cgroup)


def describe(host: Host) -> tuple[Ability, ...]:
    by_groups: Mapping[str, str] = {
        "memory": "a step that uses more is killed",
        "cpu": "a step that uses more is slowed down",
        "pids": "more processes cannot start",
    }
    abilities = [
        Ability(
            name="steps",
            enforced=host.is_root,
            detail="for jobs that run as another user (run_as)"
            if host.is_root
            else f"the agent is not root: {OWN_USER}",
        )
    ]
    for name, effect in by_groups.items():
        can = host.groups.limits(name)
        detail = f"control group; {effect}" if can else host.groups.lacking.get(name, "")
        abilities.append(Ability(name=name, enforced=can and host.is_root, detail=detail))
    networks = "a network namespace for each step" if host.has_networks else NO_NETWORK
    abilities.append(Ability(name="network", enforced=host.has_networks and host.is_root, detail=networks))
    abilities.append(Ability(name="timeout", enforced=host.is_root, detail="ended by the agent"))
    abilities.append(Ability(name="disk", enforced=False, detail=DISK))
    return tuple(abilities)


DISK = "only the work folder is measured, at intervals"
NO_NETWORK = "the kernel does not let the agent create a network namespace"
