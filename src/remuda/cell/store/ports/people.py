"""The part of the store that keeps organizations, groups and people."""

from collections.abc import Callable, Sequence
from typing import Protocol

from remuda.cell.values import Page, Project, ProjectVariable, Runner, UserToken
from remuda.cell.values.people import Member, Namespace, NamespaceFilter, Organization, User
from remuda.model.job import ProjectId, RunnerId
from remuda.model.runner import Pool


class PeopleStore(Protocol):
    """Organizations, groups, people.

    A new store has FIRST_ORGANIZATION, FIRST_NAMESPACE and FIRST_USER of `remuda.cell.values.people`. What is added
    gets a new id, the one it comes with is ignored; an id that is taken is passed over. Paths and names are unique
    without regard to case: ConflictError when one is taken.
    """

    async def add_organization(self, organization: Organization) -> Organization: ...
    async def organization(self, organization_id: int) -> Organization | None: ...
    async def organizations(self) -> Sequence[Organization]:
        """All, by their ids."""
        ...

    async def add_namespace(self, namespace: Namespace, *, first: Member | None = None) -> Namespace:
        """With its first member, in one transaction. ConflictError when a namespace or a project has the path."""
        ...

    async def namespace(self, namespace_id: int) -> Namespace | None: ...
    async def namespace_by_path(self, path: str) -> Namespace | None: ...
    async def namespaces(self, page: Page, wanted: NamespaceFilter) -> tuple[Sequence[Namespace], int]:
        """A page, by path, and the total."""
        ...

    async def put_namespace(self, namespace: Namespace) -> None:
        """Change it; its path stays as it is. NotFoundError when there is none."""
        ...

    async def remove_namespace(self, namespace_id: int) -> bool:
        """With its members and variables. ConflictError while a project or a namespace is in it."""
        ...

    async def add_user(self, user: User, namespace: Namespace) -> User:
        """A user with a namespace of their own, in one transaction; each gets the other's id."""
        ...

    async def user(self, user_id: int) -> User | None: ...
    async def user_by_name(self, username: str) -> User | None: ...
    async def users(
        self, page: Page, *, search: str = "", organization_id: int | None = None
    ) -> tuple[Sequence[User], int]:
        """A page, newest first, and the total; `search` is part of a name, or a whole address of mail."""
        ...

    async def put_user(self, user: User) -> None:
        """Change it; the username stays as it is. NotFoundError when there is none."""
        ...

    async def put_member(self, member: Member) -> None: ...
    async def remove_member(self, owner: Pool, user_id: int) -> bool: ...
    async def members(self, owner: Pool) -> Sequence[Member]:
        """By user."""
        ...

    async def memberships(self, user_id: int) -> Sequence[Member]:
        """Of a user, by owner."""
        ...

    async def add_user_token(self, token: UserToken, *, instead_of: int | None = None) -> UserToken:
        """Store a token; the one with the id `instead_of` is revoked in the same transaction.

        ConflictError when that one is revoked already, or there is one with this hash.
        """
        ...

    async def user_token_by_id(self, token_id: int) -> UserToken | None: ...
    async def user_tokens_of(self, user_id: int | None) -> Sequence[UserToken]:
        """A user's, or all (None), by id."""
        ...

    async def change_user_token(
        self, token_id: int, decide: Callable[[UserToken], UserToken | None]
    ) -> UserToken | None: ...

    async def change_runner(self, runner_id: RunnerId, decide: Callable[[Runner], Runner | None]) -> Runner | None:
        """The result of `decide`, None when it declined or there is no such runner."""
        ...

    async def change_project(
        self, project_id: ProjectId, decide: Callable[[Project], Project | None]
    ) -> Project | None:
        """ConflictError when its new path is taken."""
        ...

    async def shared_variables(self, group_ids: Sequence[int]) -> Sequence[ProjectVariable]:
        """The variables of all of the cell and those of these groups, by group, key and environment scope."""
        ...
