"""Parameters of list queries: pages, and filters of jobs and pipelines. They are passed to the store, not stored."""

from collections.abc import Collection

import msgspec

from remuda.cell.values.jobs import Job, Pipeline
from remuda.model.job import PipelineId, ProjectId, RunnerId


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a list a query returns (by page or by range of ids), in which order, and whether to count all."""

    number: int = 1
    size: int = 20
    ascending: bool | None = None
    """Order by id; None: the natural order of the list."""
    after: int | None = None
    """Only ids above this one."""
    before: int | None = None
    """Only ids below this one."""
    counted: bool = True
    """Also count all matching rows. If False, the count is 0."""

    @property
    def order(self) -> str | None:
        """The SQL expression for ORDER BY, such as `id DESC`; None for the default order of the list."""
        return None if self.ascending is None else f"id {'ASC' if self.ascending else 'DESC'}"

    @property
    def bounds(self) -> dict[str, int]:
        """SQL conditions that limit the ids (`after` and `before`), each with its parameter value."""
        conditions = {"id > ?": self.after, "id < ?": self.before}
        return {sql: value for sql, value in conditions.items() if value is not None}


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects jobs. An empty or None field restricts nothing, but an empty `project_ids` selects no job."""

    project_id: ProjectId | None = None
    pipeline_id: PipelineId | None = None
    states: Collection[str] = ()
    with_retried: bool = False
    """Also jobs that were retried."""
    is_trigger: bool | None = None
    """Only trigger jobs, or only others."""
    runner_id: RunnerId | None = None
    project_ids: Collection[ProjectId] | None = None
    """Only jobs of these projects; an empty collection selects no job."""
    pipeline_ids: Collection[PipelineId] | None = None
    """Only jobs of these pipelines; an empty collection selects no job."""
    name: str = ""
    stage: str = ""
    ref: str = ""

    def fits(self, job: Job) -> bool:
        return (
            self.project_id in (None, job.project_id)
            and self.pipeline_id in (None, job.pipeline_id)
            and (not self.states or job.state in self.states)
            and (self.with_retried or not job.retried)
            and self.is_trigger in (None, job.is_trigger)
            and self.runner_id in (None, job.runner_id)
            and (self.project_ids is None or job.project_id in self.project_ids)
            and (self.pipeline_ids is None or job.pipeline_id in self.pipeline_ids)
            and self.name in ("", job.name)
            and self.stage in ("", job.stage)
            and self.ref in ("", job.ref)
        )


ALL_JOBS = JobFilter()
"""All jobs except those that were retried."""


class PipelineFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects and orders the pipelines of a project. A field that is None or an empty text does not restrict the
    selection; an empty tuple `statuses` selects none. As in GitLab, child pipelines are listed only if `source` is
    `parent_pipeline`."""

    ref: str = ""
    sha: str = ""
    statuses: tuple[str, ...] | None = None
    """An empty tuple selects no pipeline."""
    source: str = ""
    name: str = ""
    tag: bool | None = None
    has_mistakes: bool | None = None
    """With or without `yaml_errors`."""
    schedule_id: int | None = None
    user_id: int | None = None
    updated_after: float | None = None
    updated_before: float | None = None
    created_after: float | None = None
    created_before: float | None = None
    order_by: str = "id"
    """id, status, ref, updated_at or user_id; then by id."""
    ascending: bool = False

    @property
    def status(self) -> str | None:
        """The only selected status, for which the store uses its index by status; None if several or none."""
        return self.statuses[0] if self.statuses is not None and len(self.statuses) == 1 else None

    def fits(self, pipeline: Pipeline) -> bool:
        return (
            self.ref in ("", pipeline.ref)
            and self.sha in ("", pipeline.sha)
            and (self.statuses is None or pipeline.status in self.statuses)
            and (self.source == pipeline.source if self.source else not pipeline.is_child)
            and self.name in ("", pipeline.name)
            and self.tag in (None, pipeline.tag)
            and self.has_mistakes in (None, pipeline.yaml_errors is not None)
            and self.schedule_id in (None, pipeline.schedule_id)
            and self.user_id in (None, pipeline.user_id)
            and (self.updated_after is None or pipeline.updated_at > self.updated_after)
            and (self.updated_before is None or pipeline.updated_at < self.updated_before)
            and (self.created_after is None or pipeline.created_at > self.created_after)
            and (self.created_before is None or pipeline.created_at < self.created_before)
        )


ALL_PIPELINES = PipelineFilter()
"""All pipelines except child pipelines, newest first."""
