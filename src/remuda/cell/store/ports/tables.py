"""The tables of a cell, for `remuda.cell.store.ports.database`. `remuda.cell.store.migrations` creates them."""

from typing import NamedTuple

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
from remuda.cell.values.people import Member, Namespace, Organization, User


class Setting(NamedTuple):
    """A row of the table `settings`."""

    name: str
    value: str


class StoredKey(NamedTuple):
    """A row of the table `signing_keys`."""

    kid: str
    pem: bytes


class SeenRef(NamedTuple):
    """A row of `seen_refs`: the last commit of a ref that the cell has handled."""

    project_id: int
    ref: str
    sha: str


def _search_text(thing: Project | Namespace) -> str:
    return f"{thing.path}\n{thing.name}".casefold()


ORGANIZATIONS = Table(
    name="organizations",
    kind=Organization,
    unique="path_key",
    columns=lambda row: {"id": row.id, "path_key": row.path.casefold()},
)
NAMESPACES = Table(
    name="namespaces",
    kind=Namespace,
    unique="path_key",
    columns=lambda row: {
        "id": row.id,
        "path_key": row.path.casefold(),
        "parent_id": row.parent_id,
        "organization_id": row.organization_id,
        "search_text": _search_text(row),
    },
)
USERS = Table(
    name="users",
    kind=User,
    unique="name_key",
    columns=lambda row: {
        "id": row.id,
        "name_key": row.username.casefold(),
        "organization_id": row.organization_id,
        "search_text": f"{row.username}\n{row.name}".casefold(),
        "email_key": row.email.casefold(),
    },
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
    columns=lambda row: {"token_hash": row.token_hash},
    fields=frozenset({"id", "user_id"}),
    is_numbered=True,
)
PROJECTS = Table(
    name="projects",
    kind=Project,
    unique="path_key",
    columns=lambda row: {"id": row.id, "path_key": row.path.casefold(), "search_text": _search_text(row)},
)
VARIABLES = Table(
    name="variables",
    kind=ProjectVariable,
    key=("project_id", "group_id", "key", "environment_scope"),
    columns=lambda row: {
        "project_id": row.project_id,
        "group_id": row.group_id,
        "key": row.key,
        "environment_scope": row.environment_scope,
    },
)
SEEN_REFS = Table(
    name="seen_refs", kind=SeenRef, key=("project_id", "ref"), columns=lambda row: row._asdict(), has_body=False
)
RUNNERS = Table(
    name="runners",
    kind=Runner,
    unique="token_hash",
    columns=lambda row: {"id": row.id, "token_hash": row.token_hash},
)
MANAGERS = Table(
    name="managers",
    kind=RunnerManager,
    key=("runner_id", "system_id"),
    columns=lambda row: {"runner_id": row.runner_id, "system_id": row.system_id},
)
SCHEDULES = Table(
    name="schedules",
    kind=Schedule,
    columns=lambda row: {
        "id": row.id,
        "project_id": row.project_id,
        "next_run_at": row.next_run_at if row.active else None,
    },
)
TRIGGERS = Table(
    name="triggers",
    kind=TriggerToken,
    unique="token_hash",
    columns=lambda row: {"id": row.id, "project_id": row.project_id, "token_hash": row.token_hash},
)
RELEASES = Table(
    name="releases",
    kind=Release,
    key=("project_id", "tag"),
    columns=lambda row: {"project_id": row.project_id, "tag": row.tag, "released_at": row.released_at},
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
    columns=lambda row: {
        "id": row.id,
        "created_at": row.created_at,
        "action": row.action,
        "author_id": row.author_id,
        "entity_type": row.entity_type,
        "entity_id": row.entity_id,
    },
)
PIPELINES = Table(
    name="pipelines",
    kind=Pipeline,
    columns=lambda row: {
        "id": row.id,
        "project_id": row.project_id,
        "iid": row.iid,
        "ref": row.ref,
        "sha": row.sha,
        "status": row.status,
        "upstream_job_id": row.upstream_job_id,
        "is_child": int(row.is_child),
        "source": row.source,
        "name": row.name,
        "tag": int(row.tag),
        "yaml_errors": row.yaml_errors,
        "schedule_id": row.schedule_id,
        "user_id": row.user_id,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    },
    generated=frozenset({"source", "name", "tag", "yaml_errors", "schedule_id", "user_id", "created_at", "updated_at"}),
    shortened=frozenset({"ref", "sha", "source", "name", "yaml_errors"}),
)
JOBS = Table(
    name="jobs",
    kind=Job,
    columns=lambda row: {
        "id": row.id,
        "project_id": row.project_id,
        "pipeline_id": row.pipeline_id,
        "state": row.state.value,
        "retried": int(row.retried),
        "runner_id": row.runner_id,
        "request_id": row.request_id,
        "resource_group": row.resource_group or None,
        "is_trigger": int(row.is_trigger),
        "ref": row.ref,
        "name": row.name,
    },
    generated=frozenset({"ref", "name"}),
    shortened=frozenset({"request_id", "resource_group", "ref", "name"}),
)
RESULTS = Table(
    name="results",
    kind=StepResult,
    key=("job_id", "seq"),
    columns=lambda row: {"job_id": row.job_id, "seq": row.seq},
)
ARTIFACTS = Table(
    name="artifacts",
    kind=Artifact,
    key=("job_id", "type"),
    columns=lambda row: {"job_id": row.job_id, "type": row.type, "look_at": row.look_at},
    generated=frozenset({"look_at"}),
)
