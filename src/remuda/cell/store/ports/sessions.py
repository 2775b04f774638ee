"""The store's interface to sessions in browsers, and to links that sign in once."""

from collections.abc import Sequence

from msgspec.structs import replace

from remuda.cell.store.ports.database import Database, Transaction, add_row
from remuda.cell.store.ports.tables import SIGN_IN_LINKS, WEB_SESSIONS
from remuda.cell.values.sessions import SignInLink, WebSession


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
