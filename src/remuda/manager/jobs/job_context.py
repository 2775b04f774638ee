"""What the jobs of a manager have in common; `supervision.py` makes it, `jobs.py` uses it. Nothing is decided here."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from remuda.lib.clock import Clock
from remuda.manager.config.load import RunnerConfig
from remuda.manager.core.limits import Limits
from remuda.manager.jobs.journal import JobRow, Journal
from remuda.manager.jobs.links import Links
from remuda.manager.polling.server_health import Hearing
from remuda.wire.runner_api import JobPayload

if TYPE_CHECKING:
    from remuda.manager.jobs.job import ManagedJob
    from remuda.manager.metrics.spans import JobSpans


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What all jobs of a manager share."""

    links: Links
    journal: Journal
    clock: Clock
    system_id: str
    limits: Limits
    hearing: Hearing = msgspec.field(default_factory=Hearing)
    recovers: bool = True
    """Whether jobs can be found through their agents alone, which give them up when nobody does."""
    keeps_in: Path | None = None
    """The data folder, where working directories of failed jobs stay; None: they do not."""
    staged: Callable[[RunnerConfig, str, float], None] = lambda _runner, _stage, _seconds: None
    """Told when a job leaves a stage, and how long it was there."""
    spans_of: "Callable[[JobRow, JobPayload], JobSpans] | None" = None
    """Who makes spans of a job; None: nobody."""
    settle: "Callable[[ManagedJob], int]" = lambda job: job.slot
    """The number of the slot whose folder nobody else has on the job's machine; asked before it is prepared."""
    held: "Callable[[ManagedJob], None]" = lambda _: None
    """Told when a job begins to be held, and when it is not any more."""
