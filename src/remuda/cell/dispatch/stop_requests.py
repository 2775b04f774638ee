"""Keeps, per runner manager, the jobs that it should stop: those being canceled, and for some minutes those that the
cell ended itself. A manager that asks gets its complete list every time, so a lost answer or a restart loses no
request. A listed job makes the manager send an update of it at once; the answer says whether to stop. A manager that
never asks gets that answer with its next regular update."""

import math
from collections.abc import Callable, Iterable

from remuda.cell.values import LEGACY, Job
from remuda.lib.clock import Clock
from remuda.model.job import FINAL, JobId, JobState, RunnerId
from remuda.wire.shell import WantedStop

ENDED_SECONDS = 300.0
"""How long a job that the cell ended is listed. Managers ask at least every minute."""
_SWEEP_SECONDS = 60.0

_Manager = tuple[RunnerId, str]


class StopRequests:
    def __init__(self, clock: Clock) -> None:
        self.wake: Callable[[int, str], None] = lambda _runner_id, _system_id: None
        """Called with a manager that has a new or changed stop request."""
        self._clock = clock
        self._requests: dict[_Manager, dict[JobId, tuple[WantedStop, float]]] = {}
        self._manager_of: dict[JobId, _Manager] = {}
        self._swept_at = clock.monotonic()

    def note(self, job: Job) -> None:
        """Add or remove a job's stop request by its stored state; a new one answers its manager's poll at once."""
        manager = (job.runner_id, job.system_id or LEGACY) if job.runner_id is not None else None
        is_ended = job.state in FINAL and job.reported is None and job.leased_at is not None
        if manager is None or job.is_trigger or not (is_ended or job.state is JobState.CANCELING):
            self._forget(job.id)
            return
        now = self._clock.monotonic()
        request = WantedStop(job_id=job.id, status=job.status())
        before = self._requests.get(manager, {}).get(job.id)
        if before is not None and before[0] == request:
            return
        self._forget(job.id)
        self._requests.setdefault(manager, {})[job.id] = request, now + ENDED_SECONDS if is_ended else math.inf
        self._manager_of[job.id] = manager
        self.wake(*manager)
        if now - self._swept_at >= _SWEEP_SECONDS:
            self._sweep(now)

    def note_all(self, assigned: Iterable[Job]) -> None:
        """Update the stop requests from the list of all jobs that runners have: add a request for each job that is
        being canceled, and remove the requests of canceled jobs that no runner has any more."""
        jobs = {job.id: job for job in assigned}
        for of_manager in list(self._requests.values()):
            for job_id, (_, until) in list(of_manager.items()):
                if until == math.inf and job_id not in jobs:
                    self._forget(job_id)
        for job in jobs.values():
            if job.state is JobState.CANCELING:
                self.note(job)

    def of_manager(self, runner_id: int, system_id: str) -> tuple[WantedStop, ...]:
        now = self._clock.monotonic()
        requests = self._requests.get((RunnerId(runner_id), system_id), {})
        return tuple(request for request, until in requests.values() if until > now)

    def _forget(self, job_id: JobId) -> None:
        manager = self._manager_of.pop(job_id, None)
        if manager is None:
            return
        of_manager = self._requests[manager]
        del of_manager[job_id]
        if not of_manager:
            del self._requests[manager]

    def _sweep(self, now: float) -> None:
        self._swept_at = now
        for of_manager in list(self._requests.values()):
            for job_id, (_, until) in list(of_manager.items()):
                if until <= now:
                    self._forget(job_id)
