"""The control group of a job slot (a place for one running job): it contains all processes that a job has on the
machine, its containers included.

It exists as long as the job, so that the next job in the slot starts with zero usage. A group that existed before the
job belongs to the operator and is not removed. A job whose limits cannot be enforced does not run; without limits the
group is only for accounting. All calls can be repeated: a file in the job's folder says which groups existed before."""

import json
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from remuda.lib.files import write_whole
from remuda.steps.errors import AgentError
from remuda.steps.process.cgroups import Groups, StepGroup, find_groups, list_places
from remuda.steps.process.limits import Limits

NOTE = "slot"
"""File in the job's folder: which groups existed before the job, and what they had used then."""
_KEYS = {"memory": "slot_memory", "cpu": "slot_cpus", "pids": "slot_pids"}
"""Names in the runner's configuration."""


class SlotGroup:
    def __init__(self, path: str, *, limits: Limits, name: str, job: Path) -> None:
        """`path`: the path of the job's group in each cgroup hierarchy. `limits`: those of the whole job. `name`: the
        name of the group inside it that contains the groups of the steps. `job`: the job's folder."""
        self.limits = limits
        self.path = path
        self._name = name
        self._note = job / NOTE

    def begin(self) -> None:
        """Create the job's control group (cgroup) and set its limits. Raises AgentError if a limit cannot be
        enforced."""
        if not self._note.exists():
            existing = [str(place) for place in list_places(self.path) if place.is_dir()]
            used = self._group.usage() if existing else None
            write_whole(self._note, json.dumps({"there": existing, "used": asdict(used) if used else {}}).encode())
        groups = find_groups(self._name, parent=self.path)
        lacking = {_KEYS[name]: groups.lacking.get(name, "") for name in self.limits.names() if not groups.limits(name)}
        try:
            if not lacking and groups.folders():
                self._group.make(self.limits)
        except OSError as error:
            lacking = dict.fromkeys((_KEYS[name] for name in self.limits.names()), str(error))
        if lacking:
            why = "; ".join(dict.fromkeys(lacking.values()))
            raise AgentError(
                f"this runner limits jobs by {', '.join(lacking)}, which this machine cannot enforce: {why}. Let the "
                "agent create control groups there (it must be root), or remove the limit from [runners.remuda]"
            )

    def usage(self) -> dict[str, float]:
        """Return the resource usage of the whole job so far, with the names that are also used in a step's result;
        empty if unknown."""
        used, note = self._group.usage(), self._note_content
        if used is None or note is None:
            return {}
        before: dict[str, Any] = note["used"]
        usage = {name: value - (before.get(name) or 0) for name, value in asdict(used).items() if value is not None}
        if note["there"]:
            # The peak may be that of an earlier job.
            usage.pop("memory_peak_bytes", None)
        return usage

    def count_refused_forks(self) -> int:
        """Return how often the pids limit of this group prevented the start of a process. Some kernels count that in
        the group of the step instead."""
        return self._group.count_refused_forks()

    def remove(self) -> None:
        """Remove the group after the job, unless it existed before or still contains a process."""
        note = self._note_content
        if note is None:
            return
        for place in list_places(self.path):
            if str(place) not in note["there"]:
                with suppress(OSError):
                    place.rmdir()

    @cached_property
    def _group(self) -> StepGroup:
        groups = find_groups(self._name, parent=self.path)
        above = {controller: folder.parent.parent for controller, folder in groups.v1.items()}
        v2 = groups.v2.parent.parent if groups.v2 else None
        around: Groups = replace(groups, v1=above, v2=v2)
        return StepGroup(groups=around, key=Path(self.path).name)

    @property
    def _note_content(self) -> dict[str, Any] | None:
        try:
            note: dict[str, Any] = json.loads(self._note.read_bytes())
        except (OSError, ValueError):
            return None
        return note


def limits_of(memory_bytes: int, cpus: float, pids: int) -> Limits:
    """Convert the limits of a job's request, where 0 means no limit."""
    return Limits(memory_bytes=memory_bytes or None, cpus=cpus or None, pids=pids or None)
