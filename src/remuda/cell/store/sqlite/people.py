"""The part of the SQLite store that keeps who there is and what is whose: people, tokens, projects, variables, runners.

It decides nothing. What the filters mean is said in `remuda.cell.values.people`; here it is said in SQL.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace as replaced

from remuda.cell.errors import ConflictError, NotFoundError
from remuda.cell.store.row_bodies import decode, encode
from remuda.cell.store.sqlite import rows
from remuda.cell.store.sqlite.access import SqliteFile
from remuda.cell.values import NAMESPACE_ID, ORGANIZATION_ID, Page, Project, ProjectVariable, Runner, UserToken
from remuda.cell.values.people import (
    ALL_PROJECTS,
    ALL_RUNNERS,
    ONLINE_SECONDS,
    STALE_SECONDS,
    Member,
    Namespace,
    NamespaceFilter,
    Organization,
    ProjectFilter,
    RunnerFilter,
    Sight,
    User,
    ids_of,
)
from remuda.model.job import ProjectId, RunnerId
from remuda.model.runner import Pool, RunnerType


def _field(name: str) -> str:
    """A field of the body; NULL in rows that are older than the field."""
    return f"json_extract(CAST(body AS TEXT), '$.{name}')"


def _listed(values: Any) -> str:
    """Values for `IN (SELECT value FROM json_each(?))`."""
    return encode(sorted(values)).decode()


_AMONG = "IN (SELECT value FROM json_each(?))"
_ORGANIZATION = f"coalesce({_field('organization_id')}, {ORGANIZATION_ID})"
_IN_NAMESPACE = f"coalesce({_field('namespace_id')}, {NAMESPACE_ID})"
_VISIBILITY = f"coalesce({_field('visibility')}, 'private')"


def _holds(name: str) -> str:
    """Whether a list in the body has one of the values."""
    return f"EXISTS (SELECT 1 FROM json_each(CAST(body AS TEXT), '$.{name}') WHERE value {_AMONG})"


class SqlitePeople(SqliteFile):
    """Who there is, what is whose."""

    def _draw_free(self, db: sqlite3.Connection, table: str, column: str = "id") -> int:
        while rows.found(db, f"SELECT 1 FROM {table} WHERE {column} = ?", number := self._draw(db, table)):
            pass
        return number

    # organizations and namespaces

    async def add_organization(self, organization: Organization) -> Organization:
        path_key = organization.path.casefold()

        def add(db: sqlite3.Connection) -> Organization:
            if rows.found(db, "SELECT 1 FROM organizations WHERE path_key = ?", path_key):
                raise ConflictError(f"there is an organization {organization.path} already")
            added = replaced(organization, id=self._draw_free(db, "organizations"))
            rows.changed(db, "INSERT INTO organizations VALUES (?, ?, ?)", added.id, path_key, encode(added))
            return added

        return await self._write(add)

    async def load_organization(self, organization_id: int) -> Organization | None:
        return self._one(Organization, "SELECT body FROM organizations WHERE id = ?", organization_id)

    async def list_organizations(self) -> Sequence[Organization]:
        return self._all(Organization, "SELECT body FROM organizations ORDER BY id")

    async def add_namespace(self, namespace: Namespace, *, first: Member | None = None) -> Namespace:
        def add(db: sqlite3.Connection) -> Namespace:
            added = self._add_namespace(db, namespace)
            if first is not None:
                _put_member(db, replaced(first, owner=("group", added.id)))
            return added

        return await self._write(add)

    def _add_namespace(self, db: sqlite3.Connection, namespace: Namespace) -> Namespace:
        _check_path(db, namespace.path)
        added = replaced(namespace, id=self._draw_free(db, "namespaces"))
        columns = (added.id, added.path.casefold(), added.parent_id, added.organization_id, _search_text(added))
        rows.changed(db, "INSERT INTO namespaces VALUES (?, ?, ?, ?, ?, ?)", *columns, encode(added))
        return added

    async def load_namespace(self, namespace_id: int) -> Namespace | None:
        return self._one(Namespace, "SELECT body FROM namespaces WHERE id = ?", namespace_id)

    async def find_namespace(self, path: str) -> Namespace | None:
        return self._one(Namespace, "SELECT body FROM namespaces WHERE path_key = ?", path.casefold())

    async def list_namespaces(self, page: Page, wanted: NamespaceFilter) -> tuple[Sequence[Namespace], int]:
        where: dict[str, Any] = {}
        if wanted.search:
            where["instr(search_text, ?) > 0"] = wanted.search.casefold()
        if wanted.parent_id is not None:
            where["parent_id = ?"] = wanted.parent_id
        if wanted.inside is not None:
            where[_holds("above")] = _listed([wanted.inside])
        if wanted.is_group is not None:
            where[f"{_field('owner_id')} IS {'' if wanted.is_group else 'NOT '}NULL"] = None
        if wanted.top_level:
            where["parent_id IS NULL"] = None
        if wanted.sight is not None:
            where |= _seen_namespaces(wanted.sight)
        return self._page(Namespace, "namespaces", where, page, "path_key")

    async def put_namespace(self, namespace: Namespace) -> None:
        def put(db: sqlite3.Connection) -> None:
            sql = "UPDATE namespaces SET search_text = ?, body = ? WHERE id = ?"
            if not rows.changed(db, sql, _search_text(namespace), encode(namespace), namespace.id):
                raise NotFoundError(f"there is no group {namespace.id}")

        await self._write(put)

    async def remove_namespace(self, namespace_id: int) -> bool:
        def remove(db: sqlite3.Connection) -> bool:
            there = f"SELECT 1 FROM projects WHERE {_IN_NAMESPACE} = ? AND {_field('removed_at')} IS NULL"
            inside = "SELECT 1 FROM namespaces WHERE parent_id = ?"
            if rows.found(db, there, namespace_id) or rows.found(db, inside, namespace_id):
                raise ConflictError(f"there is something in group {namespace_id}")
            rows.changed(db, "DELETE FROM members WHERE kind = 'group' AND owner_id = ?", namespace_id)
            rows.changed(db, "DELETE FROM variables WHERE project_id = 0 AND group_id = ?", namespace_id)
            return bool(rows.changed(db, "DELETE FROM namespaces WHERE id = ?", namespace_id))

        return await self._write(remove)

    # people

    async def add_user(self, user: User, namespace: Namespace) -> User:
        name_key = user.username.casefold()

        def add(db: sqlite3.Connection) -> User:
            if rows.found(db, "SELECT 1 FROM users WHERE name_key = ?", name_key):
                raise ConflictError(f"there is a user {user.username} already")
            user_id = self._draw_free(db, "users")
            own = self._add_namespace(db, replaced(namespace, owner_id=user_id))
            added = replaced(user, id=user_id, namespace_id=own.id)
            columns = (user_id, name_key, added.organization_id, *_user_texts(added))
            rows.changed(db, "INSERT INTO users VALUES (?, ?, ?, ?, ?, ?)", *columns, encode(added))
            return added

        return await self._write(add)

    async def load_user(self, user_id: int) -> User | None:
        return self._one(User, "SELECT body FROM users WHERE id = ?", user_id)

    async def find_user(self, username: str) -> User | None:
        return self._one(User, "SELECT body FROM users WHERE name_key = ?", username.casefold())

    async def list_users(
        self, page: Page, *, search: str = "", organization_id: int | None = None
    ) -> tuple[Sequence[User], int]:
        where: dict[str, Any] = {} if organization_id is None else {"organization_id = ?": organization_id}
        if search:
            is_one = "SELECT 1 FROM (SELECT ? AS said) WHERE instr(search_text, said) > 0 OR email_key = said"
            where[f"EXISTS ({is_one})"] = search.casefold()
        return self._page(User, "users", where, page)

    async def put_user(self, user: User) -> None:
        def put(db: sqlite3.Connection) -> None:
            sql = "UPDATE users SET search_text = ?, email_key = ?, body = ? WHERE id = ?"
            if not rows.changed(db, sql, *_user_texts(user), encode(user), user.id):
                raise NotFoundError(f"there is no user {user.id}")

        await self._write(put)

    async def put_member(self, member: Member) -> None:
        await self._write(lambda db: _put_member(db, member))

    async def remove_member(self, owner: Pool, user_id: int) -> bool:
        sql = "DELETE FROM members WHERE kind = ? AND owner_id = ? AND user_id = ?"
        return await self._write(lambda db: bool(rows.changed(db, sql, *owner, user_id)))

    async def list_members(self, owner: Pool) -> Sequence[Member]:
        return self._all(Member, "SELECT body FROM members WHERE kind = ? AND owner_id = ? ORDER BY user_id", *owner)

    async def list_memberships(self, user_id: int) -> Sequence[Member]:
        return self._all(Member, "SELECT body FROM members WHERE user_id = ? ORDER BY kind, owner_id", user_id)

    # their tokens

    async def find_user_token(self, token_hash: str) -> UserToken | None:
        return self._one(UserToken, "SELECT body FROM user_tokens WHERE token_hash = ?", token_hash)

    async def list_user_tokens(self) -> Sequence[UserToken]:
        return self._all(UserToken, "SELECT body FROM user_tokens ORDER BY number")

    async def put_user_token(self, token: UserToken) -> None:
        await self._write(lambda db: _put_token(db, token))

    async def add_user_token(self, token: UserToken, *, instead_of: int | None = None) -> UserToken:
        def add(db: sqlite3.Connection) -> UserToken:
            if rows.found(db, "SELECT 1 FROM user_tokens WHERE token_hash = ?", token.token_hash):
                raise ConflictError("there is such a token already")
            if instead_of is not None:
                old = _token(db, instead_of)
                if old is None or old.revoked:
                    raise ConflictError("the token is revoked already")
                _put_token(db, replaced(old, revoked=True))
            added = replaced(token, id=self._draw_free(db, "user_tokens", _field("id")))
            _put_token(db, added)
            return added

        return await self._write(add)

    async def load_user_token(self, token_id: int) -> UserToken | None:
        return self._one(UserToken, f"SELECT body FROM user_tokens WHERE {_field('id')} = ?", token_id)

    async def list_user_tokens_of(self, user_id: int | None) -> Sequence[UserToken]:
        sql = f"SELECT body FROM user_tokens WHERE ?1 IN ({_field('user_id')}, -1) ORDER BY {_field('id')}"
        return self._all(UserToken, sql, -1 if user_id is None else user_id)

    async def change_user_token(
        self, token_id: int, decide: Callable[[UserToken], UserToken | None]
    ) -> UserToken | None:
        def change(db: sqlite3.Connection) -> UserToken | None:
            token = _token(db, token_id)
            changed = decide(token) if token else None
            if changed is not None:
                _put_token(db, changed)
            return changed

        return await self._write(change)

    # projects and variables

    async def add_project(self, project: Project) -> Project:
        def add(db: sqlite3.Connection) -> Project:
            _check_path(db, project.path)
            added = replaced(project, id=ProjectId(self._draw(db, "projects")))
            columns = (added.id, added.path.casefold(), _search_text(added))
            rows.changed(db, "INSERT INTO projects VALUES (?, ?, ?, ?)", *columns, encode(added))
            return added

        return await self._write(add)

    async def load_project(self, project_id: ProjectId) -> Project | None:
        return self._one(Project, "SELECT body FROM projects WHERE id = ?", project_id)

    async def find_project(self, path: str) -> Project | None:
        return self._one(Project, "SELECT body FROM projects WHERE path_key = ?", path.casefold())

    async def list_projects(self, page: Page, wanted: ProjectFilter = ALL_PROJECTS) -> tuple[Sequence[Project], int]:
        where: dict[str, Any] = {f"{_field('removed_at')} IS {'NOT ' if wanted.removed else ''}NULL": None}
        if wanted.search:
            where["instr(search_text, ?) > 0"] = wanted.search.casefold()
        if wanted.namespace_id is not None:
            where[f"{_IN_NAMESPACE} = ?"] = wanted.namespace_id
        if wanted.group_id is not None:
            where[_holds("group_ids")] = _listed([wanted.group_id])
        if wanted.visibility:
            where[f"{_VISIBILITY} = ?"] = wanted.visibility
        if wanted.sight is not None:
            where |= _seen_projects(wanted.sight, membership=wanted.membership)
        return self._page(Project, "projects", where, page)

    async def change_project(
        self, project_id: ProjectId, decide: Callable[[Project], Project | None]
    ) -> Project | None:
        def change(db: sqlite3.Connection) -> Project | None:
            row = db.execute("SELECT body FROM projects WHERE id = ?", (project_id,)).fetchone()
            changed = decide(decode(Project, row[0])) if row else None
            if changed is not None:
                _check_path(db, changed.path, but=project_id)
                sql = "UPDATE projects SET path_key = ?, search_text = ?, body = ? WHERE id = ?"
                rows.changed(db, sql, changed.path.casefold(), _search_text(changed), encode(changed), project_id)
            return changed

        return await self._write(change)

    async def list_variables(self, project_id: ProjectId) -> Sequence[ProjectVariable]:
        sql = "SELECT body FROM variables WHERE project_id = ? AND group_id = 0 ORDER BY key, environment_scope"
        return self._all(ProjectVariable, sql, project_id)

    async def list_shared_variables(self, group_ids: Sequence[int]) -> Sequence[ProjectVariable]:
        sql = (
            f"SELECT body FROM variables WHERE project_id = 0 AND group_id {_AMONG}"
            " ORDER BY group_id, key, environment_scope"
        )
        return self._all(ProjectVariable, sql, _listed({0, *group_ids}))

    async def put_variable(self, variable: ProjectVariable, *, replace: bool) -> bool:
        sql = (
            "UPDATE variables SET body = ?5"
            " WHERE project_id = ?1 AND group_id = ?2 AND key = ?3 AND environment_scope = ?4"
            if replace
            else "INSERT INTO variables VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING"
        )
        at = (variable.project_id, variable.group_id, variable.key, variable.environment_scope)
        return await self._write(lambda db: bool(rows.changed(db, sql, *at, encode(variable))))

    async def remove_variable(
        self, project_id: ProjectId, key: str, environment_scope: str = "*", *, group_id: int = 0
    ) -> bool:
        sql = "DELETE FROM variables WHERE project_id = ? AND group_id = ? AND key = ? AND environment_scope = ?"
        return await self._write(lambda db: bool(rows.changed(db, sql, project_id, group_id, key, environment_scope)))

    # runners

    async def list_runners(self, page: Page, wanted: RunnerFilter = ALL_RUNNERS) -> tuple[Sequence[Runner], int]:
        where: dict[str, Any] = {}
        if wanted.type:
            where[f"{_field('type')} = ?"] = wanted.type
        if wanted.paused is not None:
            where[f"{_field('paused')} = ?"] = wanted.paused
        if wanted.tags:
            tags = "SELECT value FROM json_each(CAST(runners.body AS TEXT), '$.tags')"
            where[f"NOT EXISTS (SELECT 1 FROM json_each(?) WHERE value NOT IN ({tags}))"] = _listed(set(wanted.tags))
        if wanted.pools is not None:
            where |= _serving(wanted.pools)
        if wanted.status:
            where |= _in_status(wanted.status, wanted.now)
        return self._page(Runner, "runners", where, page)

    async def change_runner(self, runner_id: RunnerId, decide: Callable[[Runner], Runner | None]) -> Runner | None:
        def change(db: sqlite3.Connection) -> Runner | None:
            row = db.execute("SELECT body FROM runners WHERE id = ?", (runner_id,)).fetchone()
            changed = decide(decode(Runner, row[0])) if row else None
            if changed is not None:
                sql = "UPDATE runners SET token_hash = ?, body = ? WHERE id = ?"
                rows.changed(db, sql, changed.token_hash, encode(changed), runner_id)
            return changed

        return await self._write(change)


def _search_text(thing: Project | Namespace) -> str:
    return f"{thing.path}\n{thing.name}".casefold()


def _user_texts(user: User) -> tuple[str, str]:
    return f"{user.username}\n{user.name}".casefold(), user.email.casefold()


def _check_path(db: sqlite3.Connection, path: str, but: int = 0) -> None:
    known = "SELECT 1 FROM projects WHERE path_key = ?1 AND id != ?2"
    if rows.found(db, known, path.casefold(), but) or rows.found(
        db, "SELECT 1 FROM namespaces WHERE path_key = ?", path.casefold()
    ):
        raise ConflictError(f"there is a project or group {path} already")


def _put_member(db: sqlite3.Connection, member: Member) -> None:
    sql = "INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?)"
    rows.changed(db, sql, *member.owner, member.user_id, encode(member))


def _token(db: sqlite3.Connection, token_id: int) -> UserToken | None:
    row = db.execute(f"SELECT body FROM user_tokens WHERE {_field('id')} = ?", (token_id,)).fetchone()
    return decode(UserToken, row[0]) if row else None


def _put_token(db: sqlite3.Connection, token: UserToken) -> None:
    sql = (
        "INSERT INTO user_tokens (token_hash, body) VALUES (?, ?)"
        " ON CONFLICT (token_hash) DO UPDATE SET body = excluded.body"
    )
    rows.changed(db, sql, token.token_hash, encode(token))


def _seen_projects(sight: Sight, *, membership: bool) -> dict[str, Any]:
    own = f"id IN ({_numbers(sight.project_ids)}) OR {_IN_NAMESPACE} = {int(sight.namespace_id)}"
    inside = "EXISTS (SELECT 1 FROM json_each(CAST(body AS TEXT), '$.group_ids') WHERE value IN ({}))"
    shown = "" if membership else f" OR {_VISIBILITY} != 'private'"
    return {
        f"{_ORGANIZATION} = ?": sight.organization_id,
        f"({own} OR {inside.format(_numbers(sight.group_ids))}{shown})": None,
    }


def _seen_namespaces(sight: Sight) -> dict[str, Any]:
    groups = _numbers(sight.group_ids)
    above = f"EXISTS (SELECT 1 FROM json_each(CAST(body AS TEXT), '$.above') WHERE value IN ({groups}))"
    is_group = f"{_field('owner_id')} IS NULL"
    return {
        "organization_id = ?": sight.organization_id,
        f"(id = {int(sight.namespace_id)}"
        f" OR ({is_group} AND ({_VISIBILITY} != 'private' OR id IN ({groups}) OR {above})))": None,
    }


def _numbers(numbers: Any) -> str:
    """Numbers as SQL; they are numbers, whoever gave them."""
    return ", ".join(str(int(number)) for number in sorted(numbers))


def _serving(pools: Sequence[Pool]) -> dict[str, Any]:
    whole, groups, projects = (_numbers(ids_of(pools, kind)) for kind in ("organization", "group", "project"))
    kind = _field("type")
    linked = f"EXISTS (SELECT 1 FROM json_each(CAST(body AS TEXT), '$.project_ids') WHERE value IN ({projects}))"
    return {
        f"(({kind} = '{RunnerType.INSTANCE.value}' AND {_ORGANIZATION} IN ({whole}))"
        f" OR ({kind} = '{RunnerType.GROUP.value}' AND {_field('group_id')} IN ({groups}))"
        f" OR ({kind} = '{RunnerType.PROJECT.value}' AND {linked}))": None
    }


def _in_status(status: str, now: float) -> dict[str, Any]:
    contacted = f"(SELECT max({_field('contacted_at')}) FROM managers WHERE runner_id = runners.id)"
    heard = f"coalesce({contacted}, {_field('created_at')})"
    is_online, is_stale = f"{contacted} > ?", f"{heard} <= ?"
    online, stale = now - ONLINE_SECONDS, now - STALE_SECONDS
    match status:
        case "online":
            return {is_online: online}
        case "stale":
            return {is_stale: stale}
        case "offline":
            return {f"{contacted} <= ?": online, f"{contacted} > ?": stale}
        case _:
            return {f"{contacted} IS NULL": None, f"{_field('created_at')} > ?": stale}
