"""What is remembered of actions that concern security: who did what, to what, when, from where.

Values only. Which calls of the API are remembered is decided in `remuda.cell.http.edge.auditing`; the store keeps the
events and `remuda.cell.operations.upkeep` removes the old ones.

Invariant: no event holds a secret. Details are names, numbers and switches, never the value of a variable or a token.
"""

import msgspec

from remuda.cell.values import Value

Detail = str | int | float | bool | None | list[str]


class AuditEvent(Value, frozen=True, kw_only=True):
    """One action, done or refused."""

    id: int = 0
    """Given by the store."""
    created_at: float
    action: str
    """For example `project_deleted`."""
    author_id: int = 0
    """The user; 0 when it was none."""
    author_name: str = ""
    """The user's name, or what else did it: `runner 12`, `command of root`; empty when nobody knows."""
    token_id: int | None = None
    """The personal token that the user showed."""
    ip_address: str = ""
    entity_type: str = "Instance"
    """Project, Group, User, Runner or Instance: whose affair it is."""
    entity_id: int = 0
    entity_path: str = ""
    target: str = ""
    """What of it, by its name or number: the key of a variable, the id of a member ..."""
    details: dict[str, Detail] = msgspec.field(default_factory=dict)
    request_id: str = ""


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are wanted; what is empty or None counts for nothing."""

    action: str = ""
    author_id: int | None = None
    entity_type: str = ""
    entity_id: int | None = None
    created_after: float | None = None
    created_before: float | None = None

    def fits(self, event: AuditEvent) -> bool:
        """Whether it is one of those wanted."""
        return (
            (not self.action or event.action == self.action)
            and (self.author_id is None or event.author_id == self.author_id)
            and (not self.entity_type or event.entity_type == self.entity_type)
            and (self.entity_id is None or event.entity_id == self.entity_id)
            and (self.created_after is None or event.created_at >= self.created_after)
            and (self.created_before is None or event.created_at < self.created_before)
        )

    def conditions(self) -> dict[str, str | int | float]:
        """The same for SQL: conditions with their values."""
        compared = {
            "action = ?": self.action or None,
            "author_id = ?": self.author_id,
            "entity_type = ?": self.entity_type or None,
            "entity_id = ?": self.entity_id,
            "created_at >= ?": self.created_after,
            "created_at < ?": self.created_before,
        }
        return {sql: value for sql, value in compared.items() if value is not None}


ALL_EVENTS = AuditFilter()
