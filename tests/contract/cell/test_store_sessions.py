"""Contract tests of the store: sessions in browsers, links that sign in once, users of an OpenID Connect provider."""

import asyncio

import pytest
from msgspec.structs import replace

from remuda.cell.errors import ConflictError
from remuda.cell.store.ports import Store
from remuda.cell.values.people import Namespace, User
from remuda.cell.values.sessions import Identity, SignInLink, WebSession

SESSION = WebSession(token_hash="h", user_id=7, method="token", created_at=1, expires_at=10, last_used_at=1)
LINK = SignInLink(code_hash="c", user_id=7, user_token_id=3, created_at=1, expires_at=10)
IDENTITY = Identity(issuer="https://login.example", subject="u 1", user_id=7, created_at=1)
ADA = User(id=0, username="ada", name="Ada", email="", created_at=1)
HOME = Namespace(id=0, path="ada", name="Ada", created_at=1)


async def test_sessions(store: Store) -> None:
    first = await store.sessions.add_session(SESSION)
    second = await store.sessions.add_session(replace(SESSION, token_hash="i"))
    other = await store.sessions.add_session(replace(SESSION, token_hash="j", user_id=8))
    assert len({first.id, second.id, other.id, 0}) == 4
    assert await store.sessions.find_session("h") == await store.sessions.load_session(first.id) == first
    assert await store.sessions.find_session("unknown") is None
    assert await store.sessions.list_sessions(7) == [second, first]
    with pytest.raises(ConflictError):
        await store.sessions.add_session(SESSION)
    await store.sessions.note_use(first, 5)
    assert await store.sessions.find_session("h") == replace(first, last_used_at=5)
    assert await store.sessions.remove_session(first.id)
    assert not await store.sessions.remove_session(first.id)
    assert await store.sessions.find_session("h") is None
    await store.sessions.note_use(first, 6)
    assert await store.sessions.find_session("h") is None, "a use that is noted late does not bring a session back"


async def test_all_sessions_of_a_user_end_but_one(store: Store) -> None:
    sessions = [await store.sessions.add_session(replace(SESSION, token_hash=f"h{number}")) for number in range(3)]
    other = await store.sessions.add_session(replace(SESSION, token_hash="j", user_id=8))
    await store.sessions.add_link(LINK)
    assert await store.sessions.remove_sessions_of(7, but=sessions[1].id) == 2
    assert await store.sessions.list_sessions(7) == [sessions[1]]
    assert await store.sessions.take_link("c") is None
    assert await store.sessions.remove_sessions_of(7) == 1
    assert await store.sessions.list_sessions(8) == [other]


async def test_expired_sessions_and_links_are_removed(store: Store) -> None:
    for number in range(4):
        await store.sessions.add_session(replace(SESSION, token_hash=f"h{number}", expires_at=number))
        await store.sessions.add_link(replace(LINK, code_hash=f"c{number}", expires_at=number))
    assert await store.sessions.remove_expired(2, limit=2) == 4
    assert await store.sessions.remove_expired(2, limit=2) == 2
    assert await store.sessions.remove_expired(2, limit=2) == 0
    assert [session.token_hash for session in await store.sessions.list_sessions(7)] == ["h3"]
    assert await store.sessions.take_link("c3") is not None


async def test_a_link_is_taken_once(store: Store) -> None:
    await store.sessions.add_link(LINK)
    taken = [*await _take_at_once(store, 5)]
    assert len([link for link in taken if link is not None]) == 1
    [link] = filter(None, taken)
    assert replace(link, id=0) == LINK
    assert await store.sessions.take_link("unknown") is None


async def _take_at_once(store: Store, times: int) -> list[SignInLink | None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(store.sessions.take_link("c")) for _ in range(times)]
    return [task.result() for task in tasks]


async def test_identities(store: Store) -> None:
    added = await store.sessions.add_identity(IDENTITY)
    other = await store.sessions.add_identity(replace(IDENTITY, issuer="https://other.example"))
    assert await store.sessions.find_identity("https://login.example", "u 1") == added
    assert await store.sessions.find_identity("https://login.example", "u") is None
    assert await store.sessions.list_identities(7) == [added, other]
    with pytest.raises(ConflictError):
        await store.sessions.add_identity(replace(IDENTITY, user_id=8))


async def test_a_user_and_the_identity_are_stored_together(store: Store) -> None:
    ada = await store.people.add_user(ADA, HOME, replace(IDENTITY, user_id=0))
    identity = await store.sessions.find_identity("https://login.example", "u 1")
    assert identity is not None
    assert identity.user_id == ada.id
    with pytest.raises(ConflictError):
        await store.people.add_user(replace(ADA, username="bob"), replace(HOME, path="bob"), IDENTITY)
    assert await store.people.find_user("bob") is None
    bob = await store.people.add_user(replace(ADA, username="bob"), replace(HOME, path="bob"))
    assert await store.sessions.list_identities(bob.id) == []


async def test_a_removed_user_leaves_nothing(store: Store) -> None:
    ada = await store.people.add_user(ADA, HOME, IDENTITY)
    await store.sessions.add_session(replace(SESSION, user_id=ada.id))
    await store.sessions.add_link(replace(LINK, user_id=ada.id))
    assert await store.people.remove_user(ada.id)
    assert await store.sessions.find_session("h") is None
    assert await store.sessions.take_link("c") is None
    assert await store.sessions.find_identity(IDENTITY.issuer, IDENTITY.subject) is None
