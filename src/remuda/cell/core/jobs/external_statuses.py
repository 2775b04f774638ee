"""Statuses that other systems report for a commit. As in GitLab, a report continues the status of the same name that is
pending or running; after that has ended, a new one takes its place. Reports may arrive twice."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from remuda.cell.core.jobs.family import FamilyDraft
from remuda.cell.errors import InvalidError
from remuda.cell.values import Family
from remuda.cell.values.changes import Changes
from remuda.cell.values.jobs import ExternalStatus
from remuda.model.job import FINAL, JobId, JobState

STAGE = "external"
"""The stage of all external statuses."""
MAX_STATUSES = 500
"""How many statuses a pipeline can have, with those that newer ones replace."""
STATES = {
    state.value: state
    for state in (
        JobState.PENDING,
        JobState.RUNNING,
        JobState.SUCCESS,
        JobState.FAILED,
        JobState.CANCELED,
        JobState.SKIPPED,
    )
}
"""The states that can be reported."""


class StatusReport(msgspec.Struct, frozen=True, kw_only=True):
    """What another system says about one of its checks. None: not said, so that it stays as it is."""

    name: str
    state: JobState
    target_url: str | None = None
    description: str | None = None
    coverage: float | None = None
    user_id: int


class TooManyStatusesError(InvalidError):
    """The pipeline has as many external statuses as it can have."""


def report(family: Family, new: StatusReport, status_id: JobId, now: float) -> Changes:
    """Store what another system reports, and the status of the pipeline that follows. `status_id` is for a new status.
    Raises InvalidError if a running check is reported as pending, TooManyStatusesError if there are too many."""
    draft = FamilyDraft(family, now)
    draft.report_external(add_report(family.pipeline.external, new, status_id, now))
    return draft.changes()


def add_report(
    statuses: Sequence[ExternalStatus], new: StatusReport, status_id: JobId, now: float
) -> tuple[ExternalStatus, ...]:
    """Return the statuses of a pipeline after a report, which continues an open status of its name or adds one."""
    current = next((row for row in statuses if row.name == new.name and not row.retried), None)
    if current is not None and current.state not in FINAL:
        return tuple(_continue(row, new, now) if row is current else row for row in statuses)
    if len(statuses) >= MAX_STATUSES:
        raise TooManyStatusesError("The number of jobs has exceeded the limit")
    started = ExternalStatus(
        id=status_id,
        name=new.name,
        state=JobState.PENDING,
        created_at=now,
        updated_at=now,
        user_id=new.user_id,
    )
    older = [replace(row, retried=True) if row is current else row for row in statuses]
    return (*older, _continue(started, new, now))


def _continue(status: ExternalStatus, new: StatusReport, now: float) -> ExternalStatus:
    if status.state is JobState.RUNNING and new.state is JobState.PENDING:
        raise InvalidError(
            f"Cannot transition status via :enqueue from :{status.state.value} "
            '(Reason(s): Status cannot transition via "enqueue")'
        )
    return replace(
        status,
        state=new.state,
        updated_at=now,
        started_at=status.started_at or (now if new.state is JobState.RUNNING else None),
        finished_at=now if new.state in FINAL else None,
        target_url=status.target_url if new.target_url is None else new.target_url,
        description=status.description if new.description is None else new.description,
        coverage=status.coverage if new.coverage is None else new.coverage,
    )


def list_latest(statuses: Sequence[ExternalStatus], *, with_retried: bool) -> list[ExternalStatus]:
    """Return the statuses that are listed: without those that newer ones replace, unless `with_retried`."""
    return [row for row in statuses if with_retried or not row.retried]
