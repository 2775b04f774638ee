"""Which job next. Pure and in memory: the store stays the truth, and any process can rebuild this from it.

Waiting jobs are grouped by capability key, so a runner is matched against keys, not jobs. Among the keys that fit,
the oldest head wins; a job that comes back keeps its age, because age is the order of ids. The caller claims the
chosen job in the store; when it lost the race it drops the job here and asks again.
"""

import heapq

from remuda.model.job import JobId
from remuda.model.runner import CapabilityKey, Fingerprint, fits


class WaitingJobs:
    """The pending jobs of a cell, by what they need."""

    def __init__(self) -> None:
        self._key_of: dict[JobId, CapabilityKey] = {}
        self._ages: dict[CapabilityKey, list[JobId]] = {}
        """A heap of ids per key. A job that left stays in its heap until it comes to the top."""

    def __len__(self) -> int:
        return len(self._key_of)

    def __contains__(self, job_id: JobId) -> bool:
        return job_id in self._key_of

    def add(self, job_id: JobId, key: CapabilityKey) -> None:
        """A job waits for a runner; adding it again changes nothing."""
        if job_id in self._key_of:
            return
        self._key_of[job_id] = key
        heapq.heappush(self._ages.setdefault(key, []), job_id)

    def discard(self, job_id: JobId) -> CapabilityKey | None:
        """The job waits no longer; what it needed, None when it did not wait."""
        return self._key_of.pop(job_id, None)

    def choose(self, fingerprint: Fingerprint) -> JobId | None:
        """The job this runner should get, or None."""
        heads = (self._head(key) for key in list(self._ages) if fits(fingerprint, key))
        return min((head for head in heads if head is not None), default=None)

    def waiting(self) -> dict[CapabilityKey, int]:
        """How many jobs wait per key."""
        counts: dict[CapabilityKey, int] = {}
        for key in self._key_of.values():
            counts[key] = counts.get(key, 0) + 1
        return counts

    def _head(self, key: CapabilityKey) -> JobId | None:
        ages = self._ages[key]
        while ages and self._key_of.get(ages[0]) != key:
            heapq.heappop(ages)
        if not ages:
            del self._ages[key]
            return None
        return ages[0]
