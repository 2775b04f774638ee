"""Which part of a list is wanted. Not stored."""

import msgspec

from remuda.cell.values.jobs import Pipeline


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a list is wanted."""

    number: int = 1
    size: int = 20
    ascending: bool | None = None
    """By ids, the lowest first or last; None: in the order that the list has of itself."""
    after: int | None = None
    """Only ids above this one."""
    before: int | None = None
    """Only ids below this one."""
    counted: bool = True
    """Whether the number of all that fit is wanted too; where it is not, 0 is told."""

    @property
    def order(self) -> str | None:
        """The order in SQL, if another than the list's own is wanted."""
        return None if self.ascending is None else f"id {'ASC' if self.ascending else 'DESC'}"

    @property
    def bounds(self) -> dict[str, int]:
        """What SQL asks of the ids, with the values."""
        asked = {"id > ?": self.after, "id < ?": self.before}
        return {sql: value for sql, value in asked.items() if value is not None}


class PipelineFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which pipelines of a project are wanted, and in which order; what is empty or None counts for nothing.

    Child pipelines are there only when `source` asks for them, as in GitLab.
    """

    ref: str = ""
    sha: str = ""
    statuses: tuple[str, ...] | None = None
    source: str = ""
    name: str = ""
    tag: bool | None = None
    has_mistakes: bool | None = None
    """With `yaml_errors`, or without."""
    schedule_id: int | None = None
    user_id: int | None = None
    updated_after: float | None = None
    updated_before: float | None = None
    created_after: float | None = None
    created_before: float | None = None
    order_by: str = "id"
    """id, status, ref, updated_at or user_id; pipelines alike in it come by their ids."""
    ascending: bool = False

    @property
    def status(self) -> str | None:
        """The only one that is wanted, if it is one: of that an index has the pipelines in order."""
        return self.statuses[0] if self.statuses is not None and len(self.statuses) == 1 else None

    def fits(self, pipeline: Pipeline) -> bool:
        """Whether it is one of those wanted."""
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
"""All but child pipelines, newest first."""
