"""The jobs that runners have, as this process last saw them.

Decided here: for how long a row that was read or stored counts as known. A runner calls every few seconds about the
same job, and its first calls come at once one after the other. What other processes change they tell (a hint, which may
be lost); what this one changes it notes itself. So what is known is nearly always what is stored, and what may rest on
it is only what does no harm if it is not: a change is stored only where the row is still what the change was made on,
and nobody is refused anything without a look at the row. `remuda.cell.holders` asks.
"""

from collections import OrderedDict

import msgspec

from remuda.cell.values import Job
from remuda.lib.clock import Clock
from remuda.model.job import HELD, JobId

KNOWN_SECONDS = 5.0
"""How late it may be noticed that another process canceled or ended a job, where its hint was lost."""
MOST = 10_000


class _Known(msgspec.Struct):
    job: Job
    until: float
    in_running: bool
    """Its pipeline was known to run when the job was handed out, and does so as long as a runner has the job."""


class KnownJobs:
    """A bounded number of jobs, those that were not seen for longest go first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: OrderedDict[JobId, _Known] = OrderedDict()

    def note(self, job: Job, *, in_running: bool = False) -> None:
        """It was just read or stored like this."""
        before = self._jobs.pop(job.id, None)
        if job.state not in HELD:
            return
        is_same = before is not None and before.job.epoch == job.epoch
        in_running = in_running or (before is not None and is_same and before.in_running)
        self._jobs[job.id] = _Known(job, self._clock.monotonic() + KNOWN_SECONDS, in_running)
        if len(self._jobs) > MOST:
            self._jobs.popitem(last=False)

    def get(self, job_id: JobId) -> Job | None:
        """The job, if a runner has it and it is known well enough."""
        known = self._jobs.get(job_id)
        return known.job if known is not None and known.until > self._clock.monotonic() else None

    def is_in_running(self, job: Job) -> bool:
        """Whether the pipeline of a job that a runner has is known to run."""
        known = self._jobs.get(job.id)
        return known is not None and known.job.epoch == job.epoch and known.in_running

    def forget(self, *job_ids: JobId) -> None:
        """They may have changed; none at all: any of them."""
        if not job_ids:
            self._jobs.clear()
        for job_id in job_ids:
            self._jobs.pop(job_id, None)
