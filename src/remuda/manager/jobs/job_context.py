"""Services and settings that all jobs of a manager share."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from remuda.lib.clock import Clock
from remuda.manager.config.values import RunnerConfig
from remuda.manager.core.limits import Limits
from remuda.manager.core.record import JobRow
from remuda.manager.jobs.journal import Journal
from remuda.manager.jobs.links import Links
from remuda.manager.polling.server_health import ServerHealth
from remuda.wire.runner_api import JobPayload

if TYPE_CHECKING:
    from remuda.manager.jobs.job import ManagedJob
    from remuda.manager.metrics.spans import JobSpans


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    links: Links
    journal: Journal
    clock: Clock
    system_id: str
    manager_mark: str
    """Short id of this manager in the names of working directories."""
    limits: Limits
    server_health: ServerHealth = msgspec.field(default_factory=ServerHealth)
    recovers: bool = True
    """Whether jobs can be found again through their agents when the journal is lost."""
    kept_workdirs: Path | None = None
    """The data folder, if working directories of failed jobs are kept; None: they are not."""
    on_stage_end: Callable[[RunnerConfig, str, float], None] = lambda _runner, _stage, _seconds: None
    """Called when a job leaves a stage, with the seconds it spent there."""
    on_job_start: Callable[[int, JobPayload], None] = lambda _id, _payload: None
    """Called with the id and the payload of a job before it starts."""
    on_log: Callable[[int, int, bytes], None] = lambda _id, _offset, _data: None
    """Called with a job's id, and offset and bytes of each piece of its log; a piece may come twice."""
    make_spans: "Callable[[JobRow, JobPayload], JobSpans] | None" = None
    """Creates the spans of a job; None: no spans are wanted."""
    settle: "Callable[[ManagedJob], int]" = lambda job: job.slot
    """Returns the slot number whose folder no other job on the same machine uses. Called before the job is prepared."""
    on_hold_change: "Callable[[ManagedJob], None]" = lambda _: None
    """Called when a failed job goes on hold, and at the end of every job."""
