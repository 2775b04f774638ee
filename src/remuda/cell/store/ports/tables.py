"""Defines the tables of a cell as `Table` values, for `ports`. `remuda.cell.store.migrations` has their SQL."""

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

from remuda.cell.store.ports.database import Table
from remuda.cell.values import (
    Artifact,
    Job,
    Pipeline,
    Project,
    ProjectVariable,
    Release,
    Runner,
    RunnerManager,
    Schedule,
    StepResult,
    TriggerToken,
    UserToken,
)
from remuda.cell.values.audit_events import AuditEvent
from remuda.cell.values.deployments import Deployment, Environment, ResourceGroup
from remuda.cell.values.hooks import DeployToken, Hook, HookDelivery
from remuda.cell.values.lfs import LfsLock, LfsObject
from remuda.cell.values.people import Member, Namespace, Organization, User
from remuda.cell.values.sessions import Identity, SignInLink, WebSession


class Setting(NamedTuple):
    name: str
    value: str


class StoredKey(NamedTuple):
    kid: str
    pem: bytes


class SeenRef(NamedTuple):
    """A row of `seen_refs`: a ref, and the commit of the last push to it that the cell has processed."""

    project_id: int
    ref: str
    sha: str


class LfsUsage(NamedTuple):
    """A row of `lfs_usage`: how many bytes all Git LFS objects of a project have."""

    project_id: int
    bytes: int


def _columns(*fields: str, **computed: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    """Return a function that computes a row's columns: `fields` copied from the value, `computed` by function."""

    def columns(row: Any) -> dict[str, Any]:
        copied = {name: getattr(row, name) for name in fields}
        return copied | {name: compute(row) for name, compute in computed.items()}

    return columns


def _path_key(row: Project | Namespace | Organization) -> str:
    return row.path.casefold()


def _search_text(row: Project | Namespace) -> str:
    return f"{row.path}\n{row.name}".casefold()


ORGANIZATIONS = Table(
    name="organizations",
    kind=Organization,
    unique="path_key",
    columns=_columns("id", path_key=_path_key),
)
NAMESPACES = Table(
    name="namespaces",
    kind=Namespace,
    unique="path_key",
    columns=_columns("id", "parent_id", "organization_id", path_key=_path_key, search_text=_search_text),
)
USERS = Table(
    name="users",
    kind=User,
    unique="name_key",
    columns=_columns(
        "id",
        "organization_id",
        name_key=lambda row: row.username.casefold(),
        search_text=lambda row: f"{row.username}\n{row.name}".casefold(),
        email_key=lambda row: row.email.casefold(),
    ),
)
MEMBERS = Table(
    name="members",
    kind=Member,
    key=("kind", "owner_id", "user_id"),
    columns=lambda row: {"kind": row.owner[0], "owner_id": row.owner[1], "user_id": row.user_id},
)
USER_TOKENS = Table(
    name="user_tokens",
    kind=UserToken,
    key=("token_hash",),
    columns=_columns("token_hash"),
    fields=frozenset({"id", "user_id"}),
    is_numbered=True,
)
PROJECTS = Table(
    name="projects",
    kind=Project,
    unique="path_key",
    columns=_columns("id", path_key=_path_key, search_text=_search_text),
)
VARIABLES = Table(
    name="variables",
    kind=ProjectVariable,
    key=("project_id", "group_id", "key", "environment_scope"),
    columns=_columns("project_id", "group_id", "key", "environment_scope"),
)
SEEN_REFS = Table(
    name="seen_refs", kind=SeenRef, key=("project_id", "ref"), columns=lambda row: row._asdict(), has_body=False
)
RUNNERS = Table(name="runners", kind=Runner, unique="token_hash", columns=_columns("id", "token_hash"))
MANAGERS = Table(
    name="managers",
    kind=RunnerManager,
    key=("runner_id", "system_id"),
    columns=_columns("runner_id", "system_id"),
)
SCHEDULES = Table(
    name="schedules",
    kind=Schedule,
    columns=_columns("id", "project_id", next_run_at=lambda row: row.next_run_at if row.active else None),
)
TRIGGERS = Table(
    name="triggers",
    kind=TriggerToken,
    unique="token_hash",
    columns=_columns("id", "project_id", "token_hash"),
)
RELEASES = Table(
    name="releases",
    kind=Release,
    key=("project_id", "tag"),
    columns=_columns("project_id", "tag", "released_at"),
)
SETTINGS = Table(name="settings", kind=Setting, key=("name",), columns=lambda row: row._asdict(), has_body=False)
SIGNING_KEYS = Table(
    name="signing_keys",
    kind=StoredKey,
    key=("kid",),
    columns=lambda row: row._asdict(),
    has_body=False,
    is_numbered=True,
)
AUDIT_EVENTS = Table(
    name="audit_events",
    kind=AuditEvent,
    columns=_columns("id", "created_at", "action", "author_id", "entity_type", "entity_id"),
)
LFS_OBJECTS = Table(
    name="lfs_objects", kind=LfsObject, key=("project_id", "oid"), columns=_columns("project_id", "oid")
)
LFS_USAGE = Table(
    name="lfs_usage", kind=LfsUsage, key=("project_id",), columns=lambda row: row._asdict(), has_body=False
)


def lfs_path_key(project_id: int, path: str) -> str:
    """Return the unique key of the lock of a file. It has the hash of the path, because an index limits its length."""
    return f"{project_id}/{hashlib.sha256(path.encode(errors='surrogatepass')).hexdigest()}"


LFS_LOCKS = Table(
    name="lfs_locks",
    kind=LfsLock,
    unique="path_key",
    columns=_columns("id", "project_id", path_key=lambda row: lfs_path_key(row.project_id, row.path)),
)
_COMPUTED_BY_SQLITE = ("source", "name", "yaml_errors", "schedule_id", "user_id", "created_at", "updated_at")
PIPELINES = Table(
    name="pipelines",
    kind=Pipeline,
    columns=_columns(
        *("id", "project_id", "iid", "ref", "sha", "status", "upstream_job_id"),
        *_COMPUTED_BY_SQLITE,
        is_child=lambda row: int(row.is_child),
        tag=lambda row: int(row.tag),
    ),
    generated=frozenset({*_COMPUTED_BY_SQLITE, "tag"}),
    shortened=frozenset({"ref", "sha", "source", "name", "yaml_errors"}),
)
JOBS = Table(
    name="jobs",
    kind=Job,
    columns=_columns(
        *("id", "project_id", "pipeline_id", "runner_id", "request_id", "ref", "name"),
        state=lambda row: row.state.value,
        retried=lambda row: int(row.retried),
        resource_group=lambda row: row.resource_group or None,
        is_trigger=lambda row: int(row.is_trigger),
    ),
    generated=frozenset({"ref", "name"}),
    shortened=frozenset({"request_id", "resource_group", "ref", "name"}),
)
RESULTS = Table(name="results", kind=StepResult, key=("job_id", "seq"), columns=_columns("job_id", "seq"))
ARTIFACTS = Table(
    name="artifacts",
    kind=Artifact,
    key=("job_id", "type"),
    columns=_columns("job_id", "type", "look_at"),
    generated=frozenset({"look_at"}),
)
ENVIRONMENTS = Table(
    name="environments",
    kind=Environment,
    key=("project_id", "name"),
    unique="id",
    columns=_columns("id", "project_id", "name", "state", "auto_stop_at", search_text=lambda row: row.name.casefold()),
)
DEPLOYMENTS = Table(
    name="deployments",
    kind=Deployment,
    columns=_columns("id", "project_id", "iid", "environment_id", "job_id", "status", "updated_at", "finished_at"),
)
RESOURCE_GROUPS = Table(
    name="resource_groups",
    kind=ResourceGroup,
    key=("project_id", "key"),
    unique="id",
    columns=_columns("id", "project_id", "key", "process_mode"),
    shortened=frozenset({"key"}),
)
DEPLOY_TOKENS = Table(
    name="deploy_tokens",
    kind=DeployToken,
    unique="token_hash",
    columns=_columns("id", "token_hash", kind=lambda row: row.owner[0], owner_id=lambda row: row.owner[1]),
)
HOOKS = Table(
    name="hooks",
    kind=Hook,
    columns=_columns("id", kind=lambda row: row.owner[0], owner_id=lambda row: row.owner[1]),
)
HOOK_DELIVERIES = Table(
    name="hook_deliveries",
    kind=HookDelivery,
    unique="uuid",
    columns=_columns("id", "hook_id", "uuid", "due_at", "created_at"),
)
WEB_SESSIONS = Table(
    name="web_sessions",
    kind=WebSession,
    unique="token_hash",
    columns=_columns("id", "token_hash", "user_id", "expires_at"),
)
SIGN_IN_LINKS = Table(
    name="sign_in_links",
    kind=SignInLink,
    unique="code_hash",
    columns=_columns("id", "code_hash", "user_id", "expires_at"),
)
IDENTITIES = Table(
    name="identities",
    kind=Identity,
    unique="name",
    columns=_columns("id", "name", "user_id"),
)
