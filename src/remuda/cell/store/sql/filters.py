"""Translates the filters of lists (such as `ProjectFilter`) to SQL, which selects the same values as their method
`fits`. `Conditions` maps each SQL condition to the value of its `?`, or to None if it has no parameter."""

from collections.abc import Collection, Iterable, Sequence
from functools import singledispatch
from typing import Any, Protocol

from remuda.cell.store.ports.people import UserFilter
from remuda.cell.values import NAMESPACE_ID, ORGANIZATION_ID, PipelineFilter
from remuda.cell.values.audit_events import AuditFilter
from remuda.cell.values.deployments import (
    NEWEST_FIRST,
    OLDEST_FIRST,
    UNORDERED,
    UPCOMING,
    DeploymentFilter,
    EnvironmentFilter,
)
from remuda.cell.values.people import (
    ONLINE_SECONDS,
    STALE_SECONDS,
    NamespaceFilter,
    ProjectFilter,
    RunnerFilter,
    Sight,
    fold_ascii,
    ids_of,
)
from remuda.model.job import JobState
from remuda.model.runner import CELL_POOL, Pool, RunnerType

Conditions = dict[str, Any]
_MAX_DIGITS = 18
"""A number with so many digits fits into a column of ids."""

IS_OPEN = "status NOT IN ('success', 'failed', 'canceled', 'skipped')"
"""SQL condition of unfinished pipelines. The text must equal the condition of the index `pipelines_open`."""


class Dialect(Protocol):
    """The SQL expressions of filters that differ between SQLite and PostgreSQL."""

    def field(self, name: str, kind: str = "bigint") -> str:
        """Return SQL for a field of the JSON in `body`, NULL if it is missing; PostgreSQL converts it to `kind`."""
        ...

    def has_one_of(self, name: str, numbers: Collection[int]) -> str:
        """Return the SQL condition that the list `name` of the JSON in `body` contains one of the numbers."""
        ...

    def is_empty_list(self, name: str) -> str:
        """Return the SQL condition that the list `name` of the JSON in `body` is empty or missing."""
        ...

    def has_all_texts(self, name: str, texts: Collection[str]) -> Conditions:
        """Return the SQL condition that the list `name` of the JSON in `body` contains all the texts."""
        ...

    def among(self, column: str, values: Collection[Any], kind: str = "text") -> Conditions:
        """Return the SQL condition that a column has one of the values. `kind` is PostgreSQL's type of the column."""
        ...

    def contains(self, column: str) -> str:
        """Return the SQL condition that a text column contains the parameter `?`."""
        ...

    def begins(self, column: str) -> str:
        """Return the SQL condition that a text column begins with the parameter `?`."""
        ...

    def lower_ascii(self, column: str) -> str:
        """Return the SQL for a text column with its ASCII letters in lower case."""
        ...

    def text(self, text: str) -> str:
        """Return a text as stored in columns of `Table.shortened`, to compare with: PostgreSQL shortens long ones."""
        ...

    def without_index(self, column: str) -> str:
        """Return the SQL for a column; for SQLite in a form with which no index on this column is used."""
        ...


@singledispatch
def conditions(selection: Any, dialect: Dialect) -> Conditions:
    """Return the SQL conditions of a filter, with their parameters. Raises TypeError for an unknown type of filter."""
    raise TypeError(f"no SQL for {type(selection).__name__}")


@conditions.register
def _(selection: AuditFilter, dialect: Dialect) -> Conditions:
    return dict(selection.conditions())


@conditions.register
def _(selection: UserFilter, dialect: Dialect) -> Conditions:
    where: Conditions = {}
    if selection.organization_id is not None:
        where["organization_id = ?"] = selection.organization_id
    if selection.state:
        where[f"coalesce({dialect.field('state', 'text')}, 'active') = ?"] = selection.state
    if selection.search:
        where[f"({dialect.contains('search_text')} OR email_key = ?)"] = selection.search.casefold()
    return where


@conditions.register
def _(selection: ProjectFilter, dialect: Dialect) -> Conditions:
    where: Conditions = {f"{dialect.field('removed_at', 'text')} IS {'NOT ' if selection.removed else ''}NULL": None}
    if selection.search:
        where[dialect.contains("search_text")] = selection.search.casefold()
    if selection.namespace_id is not None:
        where[f"{_namespace(dialect)} = ?"] = selection.namespace_id
    if selection.group_id is not None:
        where[dialect.has_one_of("group_ids", [selection.group_id])] = None
    if selection.visibility:
        where[f"{_visibility(dialect)} = ?"] = selection.visibility
    if selection.archived is not None:
        where[f"coalesce({dialect.field('archived', 'boolean')}, FALSE) = ?"] = selection.archived
    if selection.topics:
        where |= dialect.has_all_texts("topics", selection.topics)
    if selection.sight is not None:
        where |= _visible_projects(selection.sight, dialect, membership=selection.membership)
    return where


def _visible_projects(sight: Sight, dialect: Dialect, *, membership: bool) -> Conditions:
    own = f"id IN ({_numbers(sight.project_ids)}) OR {_namespace(dialect)} = {int(sight.namespace_id)}"
    shown = "" if membership else f" OR {_visibility(dialect)} != 'private'"
    return {
        f"{_organization(dialect)} = ?": sight.organization_id,
        f"({own} OR {dialect.has_one_of('group_ids', sight.group_ids)}{shown})": None,
    }


@conditions.register
def _(selection: NamespaceFilter, dialect: Dialect) -> Conditions:
    where: Conditions = {}
    if selection.search:
        where[dialect.contains("search_text")] = selection.search.casefold()
    if selection.parent_id is not None:
        where["parent_id = ?"] = selection.parent_id
    if selection.inside is not None:
        where[dialect.has_one_of("above", [selection.inside])] = None
    if selection.is_group is not None:
        where[f"{dialect.field('owner_id')} IS {'' if selection.is_group else 'NOT '}NULL"] = None
    if selection.top_level:
        where["parent_id IS NULL"] = None
    if selection.sight is not None:
        where |= _visible_namespaces(selection.sight, dialect)
    return where


def _visible_namespaces(sight: Sight, dialect: Dialect) -> Conditions:
    member = f"id IN ({_numbers(sight.group_ids)}) OR {dialect.has_one_of('above', sight.group_ids)}"
    return {
        "organization_id = ?": sight.organization_id,
        f"(id = {int(sight.namespace_id)} OR ({dialect.field('owner_id')} IS NULL"
        f" AND ({_visibility(dialect)} != 'private' OR {member})))": None,
    }


@conditions.register
def _(selection: RunnerFilter, dialect: Dialect) -> Conditions:
    where: Conditions = {}
    if selection.type:
        where[f"{dialect.field('type', 'text')} = ?"] = selection.type
    if selection.paused is not None:
        where[f"{dialect.field('paused', 'boolean')} = ?"] = selection.paused
    if selection.tags:
        where |= dialect.has_all_texts("tags", selection.tags)
    if selection.pools is not None:
        where |= _runners_of_pools(selection.pools, dialect)
    if selection.status:
        where |= _in_status(selection.status, selection.now, dialect)
    if selection.search:
        described = dialect.contains(dialect.lower_ascii(f"coalesce({dialect.field('description', 'text')}, '')"))
        number = selection.search if selection.search.isascii() and selection.search.isdigit() else ""
        same_id = f" OR id = {int(number)}" if 0 < len(number) <= _MAX_DIGITS else ""
        where[f"({described}{same_id})"] = fold_ascii(selection.search)
    if selection.version_prefix:
        version = dialect.field("runner_version", "text")
        where[f"EXISTS (SELECT 1 FROM managers WHERE runner_id = runners.id AND {dialect.begins(version)})"] = (
            selection.version_prefix
        )
    return where


def _runners_of_pools(pools: Sequence[Pool], dialect: Dialect) -> Conditions:
    organizations, groups, projects = (ids_of(pools, kind) for kind in ("organization", "group", "project"))
    kind = dialect.field("type", "text")
    of_instance = [dialect.has_one_of("organization_ids", organizations)]
    if CELL_POOL in pools:
        of_instance.append(dialect.is_empty_list("organization_ids"))
    return {
        f"(({kind} = '{RunnerType.INSTANCE.value}' AND ({' OR '.join(of_instance)}))"
        f" OR ({kind} = '{RunnerType.GROUP.value}' AND {dialect.field('group_id')} IN ({_numbers(groups)}))"
        f" OR ({kind} = '{RunnerType.PROJECT.value}' AND {dialect.has_one_of('project_ids', projects)}))": None
    }


def _in_status(status: str, now: float, dialect: Dialect) -> Conditions:
    time = "double precision"
    contacted = f"(SELECT max({dialect.field('contacted_at', time)}) FROM managers WHERE runner_id = runners.id)"
    created = dialect.field("created_at", time)
    online, stale = now - ONLINE_SECONDS, now - STALE_SECONDS
    match status:
        case "online":
            return {f"{contacted} > ?": online}
        case "stale":
            return {f"coalesce({contacted}, {created}) <= ?": stale}
        case "offline":
            return {f"{contacted} <= ?": online, f"{contacted} > ?": stale}
        case _:
            return {f"{contacted} IS NULL": None, f"{created} > ?": stale}


@conditions.register
def _(selection: PipelineFilter, dialect: Dialect) -> Conditions:
    compared = {
        "ref = ?": dialect.text(selection.ref) or None,
        "sha = ?": dialect.text(selection.sha) or None,
        "source = ?": dialect.text(selection.source) or None,
        "name = ?": dialect.text(selection.name) or None,
        "tag = ?": None if selection.tag is None else int(selection.tag),
        "(yaml_errors IS NOT NULL) = ?": selection.has_mistakes,
        "schedule_id = ?": selection.schedule_id,
        "user_id = ?": selection.user_id,
        "updated_at > ?": selection.updated_after,
        "updated_at < ?": selection.updated_before,
        "created_at > ?": selection.created_after,
        "created_at < ?": selection.created_before,
        "status = ?": selection.status,
    }
    where: Conditions = {sql: value for sql, value in compared.items() if value is not None}
    if selection.statuses is not None and not selection.status:
        where |= dialect.among("status", selection.statuses)
    return where if selection.source else {**where, "is_child = 0": None}


@conditions.register
def _(selection: EnvironmentFilter, dialect: Dialect) -> Conditions:
    where: Conditions = {"project_id = ?": selection.project_id}
    if selection.name:
        where["name = ?"] = selection.name
    if selection.search:
        where[dialect.contains("search_text")] = selection.search.casefold()
    if selection.states:
        where |= dialect.among("state", selection.states)
    return where


@conditions.register
def _(selection: DeploymentFilter, dialect: Dialect) -> Conditions:
    updated, finished = (_time_of_deployment(name, dialect) for name in ("updated_at", "finished_at"))
    compared = {
        # An environment is of one project; without the condition no other index is used.
        "project_id = ?": selection.project_id if selection.environment_id is None else None,
        "environment_id = ?": selection.environment_id,
        f"{updated} > ?": selection.updated_after,
        f"{updated} < ?": selection.updated_before,
        f"{finished} > ?": selection.finished_after,
        f"{finished} < ?": selection.finished_before,
    }
    where: Conditions = {sql: value for sql, value in compared.items() if value is not None}
    if selection.statuses is not None:
        state = "coalesce(status, (SELECT state FROM jobs WHERE jobs.id = deployments.job_id))"
        where |= dialect.among(state, selection.states())
    return where


def _time_of_deployment(name: str, dialect: Dialect) -> str:
    of_job = f"(SELECT {dialect.field(name, 'double precision')} FROM jobs WHERE jobs.id = deployments.job_id)"
    return f"coalesce({name}, {of_job})"


def list_order(selection: Any, dialect: Dialect) -> str:
    """Return the SQL for ORDER BY of a list: newest first, unless its filter has another order."""
    if not isinstance(selection, DeploymentFilter):
        return "id DESC"
    direction = "ASC" if selection.ascending else "DESC"
    columns = {
        "iid": "iid",
        "updated_at": _time_of_deployment("updated_at", dialect),
        "finished_at": _time_of_deployment("finished_at", dialect),
        "ref": dialect.field("ref", "text"),
    }
    column = columns.get(selection.order_by)
    return f"{column} {direction}, id {direction}" if column else f"id {direction}"


def pipeline_order(selection: PipelineFilter) -> str:
    direction = "ASC" if selection.ascending else "DESC"
    column = {"status": "status", "ref": "ref", "updated_at": "updated_at", "user_id": "user_id"}.get(
        selection.order_by
    )
    return f"{column} {direction}, id {direction}" if column else f"id {direction}"


def select_earlier_groups(among: str, project: str, pipeline: str) -> str:
    """Return the SQL for those resource groups which a job of another pipeline gets before the pipeline `pipeline`, by
    their process mode (`core.jobs.resource_groups.goes_before`). The arguments are SQL: `among` is the condition that
    selects the groups by their column `key`, the others are ids."""
    return (
        "SELECT jobs.resource_group FROM resource_groups JOIN jobs ON jobs.project_id = resource_groups.project_id"
        " AND jobs.resource_group = resource_groups.key"
        f" WHERE resource_groups.project_id = {project} AND process_mode != '{UNORDERED}' AND {among}"
        f" AND jobs.state IN ({quote_states(UPCOMING)}) AND jobs.retried = 0 AND CASE process_mode"
        f" WHEN '{OLDEST_FIRST}' THEN jobs.pipeline_id < {pipeline}"
        f" WHEN '{NEWEST_FIRST}' THEN jobs.pipeline_id > {pipeline}"
        f" ELSE jobs.pipeline_id > {pipeline} AND jobs.state = '{JobState.WAITING_FOR_RESOURCE.value}' END"
    )


def quote_states(states: Collection[JobState]) -> str:
    """Return job states as a list of quoted SQL strings, for use in `IN (...)`."""
    return ", ".join(f"'{state.value}'" for state in sorted(states))


def _organization(dialect: Dialect) -> str:
    return f"coalesce({dialect.field('organization_id')}, {ORGANIZATION_ID})"


def _namespace(dialect: Dialect) -> str:
    return f"coalesce({dialect.field('namespace_id')}, {NAMESPACE_ID})"


def _visibility(dialect: Dialect) -> str:
    return f"coalesce({dialect.field('visibility', 'text')}, 'private')"


def _numbers(numbers: Iterable[int]) -> str:
    """Return the numbers for SQL `IN (...)`, and NULL, which matches nothing and keeps an empty list valid."""
    return ", ".join(str(int(number)) for number in sorted(numbers)) or "NULL"
