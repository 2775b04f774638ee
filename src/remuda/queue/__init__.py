"""Which job next. Pure and in memory: the store stays the truth, and any process can rebuild this from it.

Waiting jobs are grouped by capability key, so a runner is matched against keys, not jobs. Among the keys that fit,
the oldest head wins. The caller claims the chosen job in the store; when it lost the race it drops the job here and
asks again.
"""

from remuda.model.job import JobId
from remuda.model.runner import CapabilityKey, Fingerprint, fits


class WaitingJobs:
    """The pending jobs of a cell, by what they need."""

    def __init__(self) -> None:
        self._by_key: dict[CapabilityKey, dict[JobId, None]] = {}
        self._key_of: dict[JobId, CapabilityKey] = {}

    def __len__(self) -> int:
        return len(self._key_of)

    def __contains__(self, job_id: JobId) -> bool:
        return job_id in self._key_of

    def add(self, job_id: JobId, key: CapabilityKey) -> None:
        """A job waits for a runner; adding it again changes nothing."""
        if job_id in self._key_of:
            return
        self._key_of[job_id] = key
        self._by_key.setdefault(key, {})[job_id] = None

    def discard(self, job_id: JobId) -> None:
        """The job waits no longer."""
        key = self._key_of.pop(job_id, None)
        if key is None:
            return
        jobs = self._by_key[key]
        del jobs[job_id]
        if not jobs:
            del self._by_key[key]

    def choose(self, offer: Fingerprint) -> JobId | None:
        """The job this runner should get, or None."""
        heads = (next(iter(jobs)) for key, jobs in self._by_key.items() if fits(offer, key))
        return min(heads, default=None)

    def waiting(self) -> dict[CapabilityKey, int]:
        """How many jobs wait per key."""
        return {key: len(jobs) for key, jobs in self._by_key.items()}
