"""The part of the PostgreSQL store that keeps who there is and what is whose: people, tokens, projects, variables.

It decides nothing. Projects and namespaces share their paths: whoever gives one away holds a lock for all of them.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace as replaced

from remuda.cell.errors import ConflictError, NotFoundError
from remuda.cell.store.postgres import filters
from remuda.cell.store.postgres.access import PostgresDatabase, changed, draw
from remuda.cell.store.postgres.filters import field, searched
from remuda.cell.store.postgres.pool import Connection
from remuda.cell.store.row_bodies import decode, encode
from remuda.cell.values import Page, Project, ProjectVariable, Runner, UserToken
from remuda.cell.values.people import (
    ALL_PROJECTS,
    ALL_RUNNERS,
    Member,
    Namespace,
    NamespaceFilter,
    Organization,
    ProjectFilter,
    RunnerFilter,
    User,
)
from remuda.model.job import ProjectId, RunnerId
from remuda.model.runner import Pool

_LOCK_PATHS = "SELECT pg_advisory_xact_lock(7236388302)"
_LOCK_USERS = "SELECT pg_advisory_xact_lock(7236388303)"
_PUT_MEMBER = (
    "INSERT INTO members (kind, owner_id, user_id, body) VALUES ($1, $2, $3, $4)"
    " ON CONFLICT (kind, owner_id, user_id) DO UPDATE SET body = excluded.body"
)


class PostgresPeople(PostgresDatabase):
    """Who there is, what is whose."""

    # organizations and namespaces

    async def add_organization(self, organization: Organization) -> Organization:
        path_key = organization.path.casefold()

        async def add(db: Connection) -> Organization:
            if await db.fetchval("SELECT 1 FROM organizations WHERE path_key = $1", path_key):
                raise ConflictError(f"there is an organization {organization.path} already")
            added = replaced(organization, id=await _draw_free(db, "organizations"))
            sql = "INSERT INTO organizations (id, path_key, body) VALUES ($1, $2, $3)"
            await db.execute(sql, added.id, path_key, encode(added))
            return added

        return await self._change(add)

    async def load_organization(self, organization_id: int) -> Organization | None:
        return await self._one(Organization, "SELECT body FROM organizations WHERE id = $1", organization_id)

    async def list_organizations(self) -> Sequence[Organization]:
        return await self._all(Organization, "SELECT body FROM organizations ORDER BY id")

    async def add_namespace(self, namespace: Namespace, *, first: Member | None = None) -> Namespace:
        async def add(db: Connection) -> Namespace:
            added = await _add_namespace(db, namespace)
            if first is not None:
                await db.execute(_PUT_MEMBER, *_member_values(replaced(first, owner=("group", added.id))))
            return added

        return await self._change(add, _LOCK_PATHS)

    async def load_namespace(self, namespace_id: int) -> Namespace | None:
        return await self._one(Namespace, "SELECT body FROM namespaces WHERE id = $1", namespace_id)

    async def find_namespace(self, path: str) -> Namespace | None:
        return await self._one(Namespace, "SELECT body FROM namespaces WHERE path_key = $1", path.casefold())

    async def list_namespaces(self, page: Page, wanted: NamespaceFilter) -> tuple[Sequence[Namespace], int]:
        return await self._page(Namespace, "namespaces", filters.namespaces(wanted), page, "path_key")

    async def put_namespace(self, namespace: Namespace) -> None:
        sql = "UPDATE namespaces SET search_text = $1, body = $2 WHERE id = $3"
        if not await self._run(sql, _search_text(namespace), encode(namespace), namespace.id):
            raise NotFoundError(f"there is no group {namespace.id}")

    async def remove_namespace(self, namespace_id: int) -> bool:
        async def remove(db: Connection) -> bool:
            projects = f"FROM projects WHERE {filters.IN_NAMESPACE} = $1 AND {field('removed_at', 'text')} IS NULL"
            inside = "FROM namespaces WHERE parent_id = $1"
            if await db.fetchval(f"SELECT EXISTS (SELECT {projects}) OR EXISTS (SELECT {inside})", namespace_id):
                raise ConflictError(f"there is something in group {namespace_id}")
            await db.execute("DELETE FROM members WHERE kind = 'group' AND owner_id = $1", namespace_id)
            await db.execute("DELETE FROM variables WHERE project_id = 0 AND group_id = $1", namespace_id)
            return bool(changed(await db.execute("DELETE FROM namespaces WHERE id = $1", namespace_id)))

        return await self._change(remove, _LOCK_PATHS)

    # people

    async def add_user(self, user: User, namespace: Namespace) -> User:
        name_key = user.username.casefold()

        async def add(db: Connection) -> User:
            if await db.fetchval("SELECT 1 FROM users WHERE name_key = $1", name_key):
                raise ConflictError(f"there is a user {user.username} already")
            user_id = await _draw_free(db, "users")
            own = await _add_namespace(db, replaced(namespace, owner_id=user_id))
            added = replaced(user, id=user_id, namespace_id=own.id)
            await db.execute(
                "INSERT INTO users (id, name_key, organization_id, search_text, email_key, body)"
                " VALUES ($1, $2, $3, $4, $5, $6)",
                user_id,
                name_key,
                added.organization_id,
                *_user_texts(added),
                encode(added),
            )
            return added

        return await self._change(add, _LOCK_PATHS)

    async def load_user(self, user_id: int) -> User | None:
        return await self._one(User, "SELECT body FROM users WHERE id = $1", user_id)

    async def find_user(self, username: str) -> User | None:
        return await self._one(User, "SELECT body FROM users WHERE name_key = $1", username.casefold())

    async def list_users(
        self, page: Page, *, search: str = "", organization_id: int | None = None
    ) -> tuple[Sequence[User], int]:
        where: dict[str, Any] = {} if organization_id is None else {"organization_id = ?": organization_id}
        if search:
            where["(strpos(search_text, ?) > 0 OR email_key = ?)"] = searched(search)
        return await self._page(User, "users", where, page)

    async def put_user(self, user: User) -> None:
        sql = "UPDATE users SET search_text = $1, email_key = $2, body = $3 WHERE id = $4"
        if not await self._run(sql, *_user_texts(user), encode(user), user.id):
            raise NotFoundError(f"there is no user {user.id}")

    async def put_member(self, member: Member) -> None:
        await self._run(_PUT_MEMBER, *_member_values(member))

    async def remove_member(self, owner: Pool, user_id: int) -> bool:
        sql = "DELETE FROM members WHERE kind = $1 AND owner_id = $2 AND user_id = $3"
        return bool(await self._run(sql, *owner, user_id))

    async def list_members(self, owner: Pool) -> Sequence[Member]:
        sql = "SELECT body FROM members WHERE kind = $1 AND owner_id = $2 ORDER BY user_id"
        return await self._all(Member, sql, *owner)

    async def list_memberships(self, user_id: int) -> Sequence[Member]:
        return await self._all(Member, "SELECT body FROM members WHERE user_id = $1 ORDER BY kind, owner_id", user_id)

    # their tokens

    async def find_user_token(self, token_hash: str) -> UserToken | None:
        return await self._one(UserToken, "SELECT body FROM user_tokens WHERE token_hash = $1", token_hash)

    async def list_user_tokens(self) -> Sequence[UserToken]:
        return await self._all(UserToken, "SELECT body FROM user_tokens ORDER BY number")

    async def put_user_token(self, token: UserToken) -> None:
        await self._change(lambda db: _put_token(db, token), _LOCK_USERS)

    async def add_user_token(self, token: UserToken, *, instead_of: int | None = None) -> UserToken:
        async def add(db: Connection) -> UserToken:
            if await db.fetchval("SELECT 1 FROM user_tokens WHERE token_hash = $1", token.token_hash):
                raise ConflictError("there is such a token already")
            if instead_of is not None:
                old = await _token(db, instead_of)
                if old is None or old.revoked:
                    raise ConflictError("the token is revoked already")
                await _put_token(db, replaced(old, revoked=True))
            added = replaced(token, id=await _draw_free(db, "user_tokens", field("id")))
            await _put_token(db, added)
            return added

        return await self._change(add, _LOCK_USERS)

    async def load_user_token(self, token_id: int) -> UserToken | None:
        return await self._one(UserToken, f"SELECT body FROM user_tokens WHERE {field('id')} = $1", token_id)

    async def list_user_tokens_of(self, user_id: int | None) -> Sequence[UserToken]:
        sql = f"SELECT body FROM user_tokens WHERE $1::bigint IN ({field('user_id')}, -1) ORDER BY {field('id')}"
        return await self._all(UserToken, sql, -1 if user_id is None else user_id)

    async def change_user_token(
        self, token_id: int, decide: Callable[[UserToken], UserToken | None]
    ) -> UserToken | None:
        async def change(db: Connection) -> UserToken | None:
            token = await _token(db, token_id)
            after = decide(token) if token else None
            if after is not None:
                await _put_token(db, after)
            return after

        return await self._change(change, _LOCK_USERS)

    # projects and variables

    async def add_project(self, project: Project) -> Project:
        async def add(db: Connection) -> Project:
            await _check_path(db, project.path)
            added = replaced(project, id=ProjectId((await draw(db, "projects"))[0]))
            sql = "INSERT INTO projects (id, path_key, search_text, body) VALUES ($1, $2, $3, $4)"
            await db.execute(sql, added.id, added.path.casefold(), _search_text(added), encode(added))
            return added

        return await self._change(add, _LOCK_PATHS)

    async def load_project(self, project_id: ProjectId) -> Project | None:
        return await self._keyed(Project, "SELECT id, body FROM projects WHERE id = ANY($1::bigint[])", project_id)

    async def find_project(self, path: str) -> Project | None:
        return await self._one(Project, "SELECT body FROM projects WHERE path_key = $1", path.casefold())

    async def list_projects(self, page: Page, wanted: ProjectFilter = ALL_PROJECTS) -> tuple[Sequence[Project], int]:
        return await self._page(Project, "projects", filters.projects(wanted), page)

    async def change_project(
        self, project_id: ProjectId, decide: Callable[[Project], Project | None]
    ) -> Project | None:
        async def change(db: Connection) -> Project | None:
            body = await db.fetchval("SELECT body FROM projects WHERE id = $1 FOR NO KEY UPDATE", project_id)
            after = decide(decode(Project, body)) if body else None
            if after is not None:
                await _check_path(db, after.path, but=project_id)
                sql = "UPDATE projects SET path_key = $1, search_text = $2, body = $3 WHERE id = $4"
                await db.execute(sql, after.path.casefold(), _search_text(after), encode(after), project_id)
            return after

        return await self._change(change, _LOCK_PATHS)

    async def list_variables(self, project_id: ProjectId) -> Sequence[ProjectVariable]:
        sql = "SELECT body FROM variables WHERE project_id = $1 AND group_id = 0 ORDER BY key, environment_scope"
        return await self._all(ProjectVariable, sql, project_id)

    async def list_shared_variables(self, group_ids: Sequence[int]) -> Sequence[ProjectVariable]:
        sql = (
            "SELECT body FROM variables WHERE project_id = 0 AND group_id = ANY($1::bigint[])"
            " ORDER BY group_id, key, environment_scope"
        )
        return await self._all(ProjectVariable, sql, [0, *group_ids])

    async def put_variable(self, variable: ProjectVariable, *, replace: bool) -> bool:
        sql = (
            "UPDATE variables SET body = $5"
            " WHERE project_id = $1 AND group_id = $2 AND key = $3 AND environment_scope = $4"
            if replace
            else "INSERT INTO variables (project_id, group_id, key, environment_scope, body)"
            " VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING"
        )
        at = (variable.project_id, variable.group_id, variable.key, variable.environment_scope)
        return bool(await self._run(sql, *at, encode(variable)))

    async def remove_variable(
        self, project_id: ProjectId, key: str, environment_scope: str = "*", *, group_id: int = 0
    ) -> bool:
        sql = "DELETE FROM variables WHERE project_id = $1 AND group_id = $2 AND key = $3 AND environment_scope = $4"
        return bool(await self._run(sql, project_id, group_id, key, environment_scope))

    # runners

    async def list_runners(self, page: Page, wanted: RunnerFilter = ALL_RUNNERS) -> tuple[Sequence[Runner], int]:
        return await self._page(Runner, "runners", filters.runners(wanted), page)

    async def change_runner(self, runner_id: RunnerId, decide: Callable[[Runner], Runner | None]) -> Runner | None:
        async def change(db: Connection) -> Runner | None:
            body = await db.fetchval("SELECT body FROM runners WHERE id = $1 FOR NO KEY UPDATE", runner_id)
            after = decide(decode(Runner, body)) if body else None
            if after is not None:
                sql = "UPDATE runners SET token_hash = $1, body = $2 WHERE id = $3"
                await db.execute(sql, after.token_hash, encode(after), runner_id)
            return after

        return await self._change(change)


async def _draw_free(db: Connection, table: str, column: str = "id") -> int:
    while True:
        number = (await draw(db, table))[0]
        if not await db.fetchval(f"SELECT 1 FROM {table} WHERE {column} = $1", number):
            return number


async def _add_namespace(db: Connection, namespace: Namespace) -> Namespace:
    await _check_path(db, namespace.path)
    added = replaced(namespace, id=await _draw_free(db, "namespaces"))
    await db.execute(
        "INSERT INTO namespaces (id, path_key, parent_id, organization_id, search_text, body)"
        " VALUES ($1, $2, $3, $4, $5, $6)",
        added.id,
        added.path.casefold(),
        added.parent_id,
        added.organization_id,
        _search_text(added),
        encode(added),
    )
    return added


def _member_values(member: Member) -> tuple[Any, ...]:
    return (*member.owner, member.user_id, encode(member))


def _search_text(thing: Project | Namespace) -> str:
    return searched(f"{thing.path}\n{thing.name}")


def _user_texts(user: User) -> tuple[str, str]:
    return searched(f"{user.username}\n{user.name}"), searched(user.email)


async def _check_path(db: Connection, path: str, but: int = 0) -> None:
    project, namespace = "FROM projects WHERE path_key = $1 AND id != $2", "FROM namespaces WHERE path_key = $1"
    sql = f"SELECT EXISTS (SELECT {project}) OR EXISTS (SELECT {namespace})"
    if await db.fetchval(sql, path.casefold(), but):
        raise ConflictError(f"there is a project or group {path} already")


async def _token(db: Connection, token_id: int) -> UserToken | None:
    body = await db.fetchval(f"SELECT body FROM user_tokens WHERE {field('id')} = $1", token_id)
    return decode(UserToken, body) if body else None


async def _put_token(db: Connection, token: UserToken) -> None:
    sql = "UPDATE user_tokens SET body = $2 WHERE token_hash = $1"
    if not changed(await db.execute(sql, token.token_hash, encode(token))):
        sql = "INSERT INTO user_tokens SELECT coalesce(max(number), 0) + 1, $1, $2 FROM user_tokens"
        await db.execute(sql, token.token_hash, encode(token))
