"""Stored values of deploy tokens, and of webhooks and their deliveries. Secrets are in the field `secrets`, which the
store encrypts."""

from typing import Any

import msgspec

from remuda.cell.values.stored import USER_ID, Value
from remuda.model.runner import Pool


class DeployToken(Value, frozen=True, kw_only=True):
    """A token that reads the repositories, or uses the images, of one project or of the projects in a group."""

    id: int
    owner: Pool
    """("project", id) or ("group", id)."""
    name: str
    username: str
    """The user name that goes with the token."""
    token_hash: str
    scopes: tuple[str, ...]
    created_at: float
    expires_at: float | None = None
    creator_id: int = USER_ID
    secrets: dict[str, str] = msgspec.field(default_factory=dict)
    """`token`: the token itself, only of the token that jobs get as CI_DEPLOY_PASSWORD."""

    def is_active(self, now: float) -> bool:
        return self.expires_at is None or self.expires_at > now


class Hook(Value, frozen=True, kw_only=True):
    """A webhook of a project or group: an address that gets a request for every event of certain kinds."""

    id: int
    owner: Pool
    url: str
    """May contain `{name}` for each of the URL variables in `secrets`."""
    created_at: float
    name: str = ""
    description: str = ""
    events: frozenset[str] = frozenset()
    """Kinds of events that are on, such as `push_events`."""
    branch_filter: str = ""
    """A name with wildcards (`*`) for the branch of a push; empty: all branches."""
    branch_filter_strategy: str = "wildcard"
    """`wildcard`: `branch_filter` counts; `all_branches`: it does not."""
    is_verifying: bool = True
    """Whether the certificate of an https server must be valid."""
    template: str = ""
    """A body of its own, with `{{name}}` for fields of the event; empty: the event as JSON."""
    secrets: dict[str, Any] = msgspec.field(default_factory=dict)
    """`token` (for X-Gitlab-Token), `headers` and `variables` (of the URL), by name."""
    disabled_until: float | None = None
    """After failures nothing is sent before this time."""
    failures: int = 0
    """How many deliveries in a row failed."""


class HookDelivery(Value, frozen=True, kw_only=True):
    """One event for one hook. It waits in the store until it is delivered or given up."""

    id: int
    hook_id: int
    uuid: str
    """The same for all tries; receivers recognize a repeated event by it."""
    event: str
    """The kind of event, such as `pipeline_events`."""
    body: bytes
    created_at: float
    due_at: float | None
    """When it is sent (again); None: delivered, or given up."""
    tries: int = 0
    status: str = ""
    """The HTTP status of the last answer, or `internal error`."""
    error: str = ""
    answer: str = ""
    """The beginning of the last answer."""
    seconds: float = 0.0
    is_test: bool = False
