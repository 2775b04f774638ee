"""Organizations, namespaces, users, their memberships and their access tokens."""

from collections.abc import Callable, Sequence
from typing import Protocol

from remuda.cell.values import Page, UserToken
from remuda.cell.values.people import Member, Namespace, NamespaceFilter, Organization, User
from remuda.model.runner import Pool


class PeopleStore(Protocol):
    """Organizations, namespaces, users, members and user tokens.

    A new store has FIRST_ORGANIZATION, FIRST_NAMESPACE and FIRST_USER of `remuda.cell.values.people`. Every `add_*`
    method gives a new id and ignores the one in the value. Paths and user names are unique without regard to case:
    ConflictError when one is taken.
    """

    async def add_organization(self, organization: Organization) -> Organization: ...

    async def load_organization(self, organization_id: int) -> Organization | None: ...

    async def list_organizations(self) -> Sequence[Organization]:
        """Ordered by id."""
        ...

    async def add_namespace(self, namespace: Namespace, *, first: Member | None = None) -> Namespace:
        """Add it with its first member. ConflictError when a namespace or a project has the path."""
        ...

    async def load_namespace(self, namespace_id: int) -> Namespace | None: ...

    async def find_namespace(self, path: str) -> Namespace | None: ...

    async def list_namespaces(self, page: Page, wanted: NamespaceFilter) -> tuple[Sequence[Namespace], int]:
        """One page, ordered by path, and the total."""
        ...

    async def put_namespace(self, namespace: Namespace) -> None:
        """Change a namespace except for its path. NotFoundError when it does not exist."""
        ...

    async def remove_namespace(self, namespace_id: int) -> bool:
        """Remove it with its members and variables. ConflictError while it contains a project or a namespace."""
        ...

    async def add_user(self, user: User, namespace: Namespace) -> User:
        """Add a user and the user's own namespace, in one transaction."""
        ...

    async def load_user(self, user_id: int) -> User | None: ...

    async def find_user(self, username: str) -> User | None: ...

    async def list_users(
        self, page: Page, *, search: str = "", organization_id: int | None = None
    ) -> tuple[Sequence[User], int]:
        """One page, newest first, and the total. `search` is part of a name, or a whole mail address."""
        ...

    async def put_user(self, user: User) -> None:
        """Change a user except for the username. NotFoundError when the user does not exist."""
        ...

    async def put_member(self, member: Member) -> None: ...

    async def remove_member(self, owner: Pool, user_id: int) -> bool: ...

    async def list_members(self, owner: Pool) -> Sequence[Member]:
        """Ordered by user."""
        ...

    async def list_memberships(self, user_id: int) -> Sequence[Member]:
        """Memberships of one user, ordered by owner."""
        ...

    async def add_user_token(self, token: UserToken, *, instead_of: int | None = None) -> UserToken:
        """Store a token and revoke the one with the id `instead_of`, in one transaction.

        ConflictError when that one is revoked already, or when the hash exists.
        """
        ...

    async def find_user_token(self, token_hash: str) -> UserToken | None: ...

    async def load_user_token(self, token_id: int) -> UserToken | None: ...

    async def list_user_tokens(self) -> Sequence[UserToken]:
        """Tokens of all users, in the order in which they were added."""
        ...

    async def list_user_tokens_of(self, user_id: int | None) -> Sequence[UserToken]:
        """Tokens of one user, or of all (None), ordered by id."""
        ...

    async def put_user_token(self, token: UserToken) -> None: ...

    async def change_user_token(
        self, token_id: int, decide: Callable[[UserToken], UserToken | None]
    ) -> UserToken | None:
        """Store and return what `decide` returns; None when it returns None or the token does not exist."""
        ...
