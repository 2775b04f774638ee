"""Jobs that their managers should stop, so that a manager which asks what is wanted of it learns of it at once.

Kept here, in memory: for each manager the jobs that are being canceled, and for some minutes those that the cell ended
itself. It is a level and no event: who asks gets all of it, and says next time what it knows already, so nothing is
lost when an answer, a process or an event is. What a manager is told is only a reason to ask about the job: the answer
to its next call is what counts. Managers that never ask learn it with that call anyway.
`remuda.cell.dispatch.job_changes` notes every change of a job, `remuda.cell.shells.shells` answers managers.
"""

import math
from collections.abc import Callable, Iterable

from remuda.cell.values import LEGACY, Job
from remuda.lib.clock import Clock
from remuda.model.job import FINAL, JobId, JobState, RunnerId
from remuda.wire.shell import WantedStop

ENDED_SECONDS = 300.0
"""For so long managers are told of a job that the cell ended: they ask at least every minute."""
_SWEEP_SECONDS = 60.0

_Manager = tuple[RunnerId, str]


class StopRequests:
    """Of one process of a cell."""

    def __init__(self, clock: Clock) -> None:
        self.wake: Callable[[int, str], None] = lambda _runner_id, _system_id: None
        """Called with a manager for whom there is something new."""
        self._clock = clock
        self._wanted: dict[_Manager, dict[JobId, tuple[WantedStop, float]]] = {}
        self._manager_of: dict[JobId, _Manager] = {}
        self._swept_at = clock.monotonic()

    def note(self, job: Job) -> None:
        """A job is stored like this now."""
        manager = (job.runner_id, job.system_id or LEGACY) if job.runner_id is not None else None
        is_ended = job.state in FINAL and job.reported is None and job.leased_at is not None
        if manager is None or job.is_trigger or not (is_ended or job.state is JobState.CANCELING):
            self._forget(job.id)
            return
        now = self._clock.monotonic()
        wanted = WantedStop(job_id=job.id, status=job.status())
        before = self._wanted.get(manager, {}).get(job.id)
        if before is not None and before[0] == wanted:
            return
        self._forget(job.id)
        self._wanted.setdefault(manager, {})[job.id] = wanted, now + ENDED_SECONDS if is_ended else math.inf
        self._manager_of[job.id] = manager
        self.wake(*manager)
        if now - self._swept_at >= _SWEEP_SECONDS:
            self._sweep(now)

    def note_all(self, held: Iterable[Job]) -> None:
        """These are all jobs that runners have: what is noted as being canceled and is not among them has ended."""
        jobs = {job.id: job for job in held}
        for of_manager in list(self._wanted.values()):
            for job_id, (_, until) in list(of_manager.items()):
                if until == math.inf and job_id not in jobs:
                    self._forget(job_id)
        for job in jobs.values():
            if job.state is JobState.CANCELING:
                self.note(job)

    def of_manager(self, runner_id: int, system_id: str) -> tuple[WantedStop, ...]:
        """All that this manager should stop."""
        now = self._clock.monotonic()
        found = self._wanted.get((RunnerId(runner_id), system_id), {})
        return tuple(wanted for wanted, until in found.values() if until > now)

    def _forget(self, job_id: JobId) -> None:
        manager = self._manager_of.pop(job_id, None)
        if manager is None:
            return
        of_manager = self._wanted[manager]
        del of_manager[job_id]
        if not of_manager:
            del self._wanted[manager]

    def _sweep(self, now: float) -> None:
        self._swept_at = now
        for of_manager in list(self._wanted.values()):
            for job_id, (_, until) in list(of_manager.items()):
                if until <= now:
                    self._forget(job_id)
