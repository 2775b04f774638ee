"""Audit events: who did what to what, when, and from where.

Invariant: no event contains a secret. Details are names, numbers and true/false values, never values of variables or
tokens."""

import msgspec

from remuda.cell.values import Value

Detail = str | int | float | bool | None | list[str]


class AuditEvent(Value, frozen=True, kw_only=True):
    """One action of a user, a runner or a command that was executed or denied."""

    id: int = 0
    """Set by the store."""
    created_at: float
    action: str
    """For example `project_deleted`."""
    author_id: int = 0
    """The user; 0 if it was not a user."""
    author_name: str = ""
    """Name of the user, `runner 12` or `command of root`; empty if unknown."""
    token_id: int | None = None
    """The personal access token of the request."""
    ip_address: str = ""
    entity_type: str = "Instance"
    """Project, Group, User, Runner or Instance."""
    entity_id: int = 0
    entity_path: str = ""
    target: str = ""
    """Part of the entity, by name or id: the key of a variable, the id of a member ..."""
    details: dict[str, Detail] = msgspec.field(default_factory=dict)
    request_id: str = ""


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects audit events. A field that is empty or None does not restrict the selection."""

    action: str = ""
    author_id: int | None = None
    entity_type: str = ""
    entity_id: int | None = None
    created_after: float | None = None
    created_before: float | None = None

    def fits(self, event: AuditEvent) -> bool:
        return (
            (not self.action or event.action == self.action)
            and (self.author_id is None or event.author_id == self.author_id)
            and (not self.entity_type or event.entity_type == self.entity_type)
            and (self.entity_id is None or event.entity_id == self.entity_id)
            and (self.created_after is None or event.created_at >= self.created_after)
            and (self.created_before is None or event.created_at < self.created_before)
        )

    def conditions(self) -> dict[str, str | int | float]:
        """Return a mapping from SQL condition to the value of its parameter `?`, for the fields that are set."""
        conditions = {
            "action = ?": self.action or None,
            "author_id = ?": self.author_id,
            "entity_type = ?": self.entity_type or None,
            "entity_id = ?": self.entity_id,
            "created_at >= ?": self.created_after,
            "created_at < ?": self.created_before,
        }
        return {sql: value for sql, value in conditions.items() if value is not None}


ALL_EVENTS = AuditFilter()
