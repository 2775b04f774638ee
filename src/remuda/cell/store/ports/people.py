"""The store's interface to organizations, namespaces, users, their memberships and their access tokens."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from remuda.cell.errors import ConflictError, NotFoundError
from remuda.cell.store.ports.database import PATHS, TOKENS, Database, Table, Transaction, change_row
from remuda.cell.store.ports.tables import (
    IDENTITIES,
    MEMBERS,
    NAMESPACES,
    ORGANIZATIONS,
    PROJECTS,
    SIGN_IN_LINKS,
    USER_TOKENS,
    USERS,
    VARIABLES,
    WEB_SESSIONS,
)
from remuda.cell.values import Page, UserToken
from remuda.cell.values.people import Member, Namespace, NamespaceFilter, Organization, ProjectFilter, User
from remuda.cell.values.sessions import Identity
from remuda.model.runner import Pool


class UserFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects users by search text, organization and state. An empty text and None match all users."""

    search: str = ""
    """Part of a name, or a whole mail address."""
    organization_id: int | None = None
    state: str = ""

    def fits(self, user: User) -> bool:
        search = self.search.casefold()
        return (
            self.organization_id in (None, user.organization_id)
            and self.state in ("", user.state)
            and (search in f"{user.username}\n{user.name}".casefold() or search == user.email.casefold())
        )


class PeopleStore:
    """Stores organizations, namespaces, users, members and user tokens. A new store contains one organization,
    namespace and user (`FIRST_ORGANIZATION`, `FIRST_NAMESPACE`, `FIRST_USER`). `add_*` methods assign a new id. Paths
    and user names are unique, ignoring case; a method raises ConflictError if one is taken."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_organization(self, organization: Organization) -> Organization:
        async def add(rows: Transaction) -> Organization:
            added = replace(organization, id=await _draw_free_id(rows, ORGANIZATIONS))
            if not await rows.add_if_absent(ORGANIZATIONS, added):
                raise ConflictError(f"there is an organization {added.path} already")
            return added

        return await self._database.change(add)

    async def load_organization(self, organization_id: int) -> Organization | None:
        return await self._database.find(ORGANIZATIONS, id=organization_id)

    async def list_organizations(self) -> Sequence[Organization]:
        """Return all organizations, ordered by id."""
        return await self._database.find_all(ORGANIZATIONS, order=("id",))

    async def add_namespace(self, namespace: Namespace, *, first: Member | None = None) -> Namespace:
        """Store a namespace and, for a group, its `first` member. Raises ConflictError if another namespace or a
        project has the same path."""

        async def add(rows: Transaction) -> Namespace:
            added = await _add_namespace(rows, namespace)
            if first is not None:
                await rows.put(MEMBERS, replace(first, owner=("group", added.id)))
            return added

        return await self._database.change(add, PATHS)

    async def load_namespace(self, namespace_id: int) -> Namespace | None:
        return await self._database.find(NAMESPACES, id=namespace_id)

    async def find_namespace(self, path: str) -> Namespace | None:
        return await self._database.find(NAMESPACES, path_key=path.casefold())

    async def list_namespaces(self, page: Page, selection: NamespaceFilter) -> tuple[Sequence[Namespace], int]:
        """Return one page of the namespaces that match `selection`, ordered by path, and the number of matches."""
        return await self._database.find_page(NAMESPACES, page, selection, order="path_key")

    async def put_namespace(self, namespace: Namespace) -> None:
        """Replace a stored namespace; its path must not change. Raises NotFoundError if it does not exist."""
        if not await self._database.update(NAMESPACES, namespace):
            raise NotFoundError(f"there is no group {namespace.id}")

    async def remove_namespace(self, namespace_id: int) -> bool:
        """Remove a namespace with its members and variables. Returns False if it does not exist. Raises ConflictError
        if it still contains projects or other namespaces."""

        async def remove(rows: Transaction) -> bool:
            has_project = await rows.has_match(PROJECTS, ProjectFilter(namespace_id=namespace_id))
            if has_project or await rows.has_match(NAMESPACES, NamespaceFilter(parent_id=namespace_id)):
                raise ConflictError(f"group {namespace_id} still has projects or subgroups; delete those first")
            await rows.remove(MEMBERS, kind="group", owner_id=namespace_id)
            await rows.remove(VARIABLES, project_id=0, group_id=namespace_id)
            return bool(await rows.remove(NAMESPACES, id=namespace_id))

        return await self._database.change(remove, PATHS)

    async def add_user(self, user: User, namespace: Namespace, identity: Identity | None = None) -> User:
        """Store a user, `namespace` as the user's personal namespace, and the `identity` with which the user signs in,
        in one transaction. All get new ids. Raises ConflictError if user name, path or identity exist already."""

        async def add(rows: Transaction) -> User:
            if await rows.find(USERS, name_key=user.username.casefold()):
                raise ConflictError(f"there is a user {user.username} already")
            if identity is not None and (await rows.find(IDENTITIES, name=identity.name)) is not None:
                raise ConflictError("this user of the provider is known already")
            user_id = await _draw_free_id(rows, USERS)
            own = await _add_namespace(rows, replace(namespace, owner_id=user_id))
            added = replace(user, id=user_id, namespace_id=own.id)
            await rows.add(USERS, added)
            if identity is not None:
                number = await _draw_free_id(rows, IDENTITIES)
                await rows.add(IDENTITIES, replace(identity, id=number, user_id=user_id))
            return added

        return await self._database.change(add, PATHS)

    async def add_bot(self, user: User, member: Member, token: UserToken) -> tuple[User, UserToken]:
        """Store the bot of an access token with its only membership and its token, in one transaction. The user and the
        token get new ids. Raises ConflictError if the user name or the token exists already."""

        async def add(rows: Transaction) -> tuple[User, UserToken]:
            if await rows.find(USERS, name_key=user.username.casefold()):
                raise ConflictError(f"there is a user {user.username} already")
            if await rows.find(USER_TOKENS, token_hash=token.token_hash):
                raise ConflictError("there is a token with this secret already")
            bot = replace(user, id=await _draw_free_id(rows, USERS))
            added = replace(token, id=await _draw_free_id(rows, USER_TOKENS), user_id=bot.id)
            await rows.add(USERS, bot)
            await rows.put(MEMBERS, replace(member, user_id=bot.id))
            await rows.add(USER_TOKENS, added)
            return bot, added

        return await self._database.change(add, TOKENS)

    async def remove_user(self, user_id: int) -> bool:
        """Remove a user with tokens, sessions, memberships and the own namespace. Returns False if there is no such
        user. Raises ConflictError if the namespace still contains projects."""

        async def remove(rows: Transaction) -> bool:
            user = await rows.find(USERS, id=user_id)
            if user is None:
                return False
            if user.namespace_id:
                if await rows.has_match(PROJECTS, ProjectFilter(namespace_id=user.namespace_id)):
                    raise ConflictError(f"user {user.username} still has projects; delete those first")
                await rows.remove(NAMESPACES, id=user.namespace_id)
            for token in await rows.find_all(USER_TOKENS, user_id=user_id):
                await rows.remove(USER_TOKENS, token_hash=token.token_hash)
            await rows.remove(MEMBERS, user_id=user_id)
            await rows.remove(WEB_SESSIONS, user_id=user_id)
            await rows.remove(SIGN_IN_LINKS, user_id=user_id)
            await rows.remove(IDENTITIES, user_id=user_id)
            await rows.remove(USERS, id=user_id)
            return True

        return await self._database.change(remove, PATHS)

    async def load_user(self, user_id: int) -> User | None:
        return await self._database.find(USERS, id=user_id)

    async def find_user(self, username: str) -> User | None:
        return await self._database.find(USERS, name_key=username.casefold())

    async def list_users(
        self, page: Page, *, search: str = "", organization_id: int | None = None, state: str = ""
    ) -> tuple[Sequence[User], int]:
        """Return one page of users, newest first, and the number of all matches. `search` is part of a name or user
        name, or a whole mail address."""
        selection = UserFilter(search=search, organization_id=organization_id, state=state)
        return await self._database.find_page(USERS, page, selection)

    async def put_user(self, user: User) -> None:
        """Replace a stored user; the username must not change. Raises NotFoundError if the user does not exist."""
        if not await self._database.update(USERS, user):
            raise NotFoundError(f"there is no user {user.id}")

    async def put_member(self, member: Member) -> None:
        await self._database.put(MEMBERS, member)

    async def remove_member(self, owner: Pool, user_id: int) -> bool:
        return bool(await self._database.remove(MEMBERS, kind=owner[0], owner_id=owner[1], user_id=user_id))

    async def list_members(self, owner: Pool) -> Sequence[Member]:
        """Return the members of a group or project, ordered by user."""
        return await self._database.find_all(MEMBERS, order=("user_id",), kind=owner[0], owner_id=owner[1])

    async def list_memberships(self, user_id: int) -> Sequence[Member]:
        """Return the memberships of one user, ordered by group or project."""
        return await self._database.find_all(MEMBERS, order=("kind", "owner_id"), user_id=user_id)

    async def add_user_token(self, token: UserToken, *, instead_of: int | None = None) -> UserToken:
        """Store a token and revoke the one with the id `instead_of`, in one transaction. Raises ConflictError if that
        is revoked already or does not exist, or if a token with the same hash exists."""

        async def add(rows: Transaction) -> UserToken:
            if await rows.find(USER_TOKENS, token_hash=token.token_hash):
                raise ConflictError("there is a token with this secret already")
            if instead_of is not None:
                old = await rows.find(USER_TOKENS, id=instead_of)
                if old is None or old.revoked:
                    raise ConflictError("the token is revoked already")
                await rows.update(USER_TOKENS, replace(old, revoked=True))
            added = replace(token, id=await _draw_free_id(rows, USER_TOKENS))
            await rows.add(USER_TOKENS, added)
            return added

        return await self._database.change(add, TOKENS)

    async def find_user_token(self, token_hash: str) -> UserToken | None:
        return await self._database.find(USER_TOKENS, token_hash=token_hash)

    async def load_user_token(self, token_id: int) -> UserToken | None:
        return await self._database.find(USER_TOKENS, id=token_id)

    async def list_user_tokens(self) -> Sequence[UserToken]:
        return await self._database.find_all(USER_TOKENS, order=("number",))

    async def list_user_tokens_of(self, user_id: int | None) -> Sequence[UserToken]:
        """Return the tokens of one user, or of all users (None), ordered by id."""
        columns: dict[str, Any] = {} if user_id is None else {"user_id": user_id}
        return sorted(await self._database.find_all(USER_TOKENS, **columns), key=lambda token: token.id)

    async def change_user_token(
        self, token_id: int, decide: Callable[[UserToken], UserToken | None]
    ) -> UserToken | None:
        """Store and return what `decide` returns for a token; None if it returns None or there is no such token."""
        return await change_row(self._database, USER_TOKENS, token_id, decide, TOKENS)


async def check_path_is_free(rows: Transaction, path: str, *, but: int | None = None) -> None:
    """Raise ConflictError if a namespace, or a project other than that with the id `but`, already has this path."""
    project = await rows.find(PROJECTS, path_key=path.casefold())
    namespace = await rows.find(NAMESPACES, path_key=path.casefold())
    if namespace or (project and project.id != but):
        raise ConflictError(f"there is a project or group {path} already")


async def _add_namespace(rows: Transaction, namespace: Namespace) -> Namespace:
    await check_path_is_free(rows, namespace.path)
    added = replace(namespace, id=await _draw_free_id(rows, NAMESPACES))
    await rows.add(NAMESPACES, added)
    return added


async def _draw_free_id(rows: Transaction, table: Table[Any]) -> int:
    """Return a new id that no row has: some rows, such as the first ones of a cell, got their ids without `draw_id`."""
    while await rows.find(table, id=(number := await rows.draw_id(table))):
        pass
    return number
