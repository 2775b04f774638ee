"""The store's interface to sessions in browsers, links that sign in once, and users of an OpenID Connect provider."""

from collections.abc import Sequence

from msgspec.structs import replace

from remuda.cell.store.ports.database import Database, Transaction, add_row
from remuda.cell.store.ports.tables import IDENTITIES, SIGN_IN_LINKS, WEB_SESSIONS
from remuda.cell.values.sessions import Identity, SignInLink, WebSession


class SessionStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_session(self, session: WebSession) -> WebSession:
        """Store a session with a new id."""
        return await add_row(self._database, WEB_SESSIONS, session, taken="there is a session with this secret already")

    async def find_session(self, token_hash: str) -> WebSession | None:
        return await self._database.find(WEB_SESSIONS, token_hash=token_hash)

    async def load_session(self, session_id: int) -> WebSession | None:
        return await self._database.find(WEB_SESSIONS, id=session_id)

    async def list_sessions(self, user_id: int) -> Sequence[WebSession]:
        """Return the sessions of a user, newest first. Some may have expired."""
        return await self._database.find_all(WEB_SESSIONS, order=("id DESC",), user_id=user_id)

    async def note_use(self, session: WebSession, at: float) -> None:
        """Store when a session was used last, unless it was removed."""
        await self._database.update(WEB_SESSIONS, replace(session, last_used_at=at))

    async def remove_session(self, session_id: int) -> bool:
        return bool(await self._database.remove(WEB_SESSIONS, id=session_id))

    async def remove_sessions_of(self, user_id: int, *, but: int = 0) -> int:
        """Remove the sessions of a user except the one with the id `but`, and the user's links. Returns how many
        sessions were removed."""

        async def remove(rows: Transaction) -> int:
            sessions = await rows.find_all(WEB_SESSIONS, user_id=user_id)
            removed = [session for session in sessions if session.id != but]
            for session in removed:
                await rows.remove(WEB_SESSIONS, id=session.id)
            await rows.remove(SIGN_IN_LINKS, user_id=user_id)
            return len(removed)

        return await self._database.change(remove)

    async def remove_expired(self, now: float, *, limit: int) -> int:
        """Remove at most `limit` expired sessions and as many expired links. Returns the number of both."""
        sessions = await self._database.remove_some(WEB_SESSIONS, ("expires_at", "<=", now), limit=limit)
        return sessions + await self._database.remove_some(SIGN_IN_LINKS, ("expires_at", "<=", now), limit=limit)

    async def add_link(self, link: SignInLink) -> None:
        """Store a link with a new id."""
        await add_row(self._database, SIGN_IN_LINKS, link)

    async def take_link(self, code_hash: str) -> SignInLink | None:
        """Remove and return the link with this code. Of several calls with one code, one gets the link."""

        async def take(rows: Transaction) -> SignInLink | None:
            link = await rows.find(SIGN_IN_LINKS, code_hash=code_hash)
            is_removed = link is not None and await rows.remove(SIGN_IN_LINKS, code_hash=code_hash)
            return link if is_removed else None

        return await self._database.change(take)

    async def find_identity(self, issuer: str, subject: str) -> Identity | None:
        return await self._database.find(IDENTITIES, name=f"{issuer} {subject}")

    async def list_identities(self, user_id: int) -> Sequence[Identity]:
        """Return the identities with which a user can sign in."""
        return await self._database.find_all(IDENTITIES, order=("id",), user_id=user_id)

    async def add_identity(self, identity: Identity) -> Identity:
        """Store an identity with a new id. Raises ConflictError if the provider's user has one already."""
        return await add_row(self._database, IDENTITIES, identity, taken="this user of the provider is known already")
