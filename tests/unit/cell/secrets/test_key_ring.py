"""Rotation of the job token keys as seen by several processes of a cell, and opaque tokens."""

import pytest
from msgspec.structs import replace

from remuda.cell.core.access.tokens import KEPT_SECONDS
from remuda.cell.errors import StoreError
from remuda.cell.secrets.key_ring import REFRESH_SECONDS, KeyRing, load_job_token_keys, retire, rotate
from remuda.cell.store.memory.store import MemoryStore
from remuda.cell.values import Job
from remuda.lib.clock import VirtualClock
from remuda.testing.builders import a_spec
from remuda.testing.memory_cell import MemoryCell
from remuda.wire.routable_token import TokenError


@pytest.fixture
async def job(cell: MemoryCell) -> Job:
    """A job that is assigned to a runner."""
    await cell.push(a_spec())
    return (await cell.start())[0]


def a_ring(cell: MemoryCell, *, opaque: bool = False, cell_id: int = 1) -> KeyRing:
    return KeyRing(cell.store, cell.clock, cell_id=cell_id, issuer="https://ci.example", opaque=opaque)


async def issue(cell: MemoryCell, ring: KeyRing, job: Job) -> str:
    """Issue a token and store its hash, as a hand-out does."""
    token = await ring.issue(job, timeout_seconds=3600, user_id=1)
    await cell.store.jobs.change_job(job.id, lambda row: replace(row, token_hash=ring.stored_hash(job, token)))
    return token


async def load_kids(cell: MemoryCell) -> list[str]:
    return [key.kid for key in await load_job_token_keys(cell.store)]


async def is_refused(ring: KeyRing, token: str, scope: str = "job") -> bool:
    try:
        await ring.find_job(token, scope)
    except TokenError:
        return True
    return False


async def test_a_new_key_is_seen_by_all_processes(cell: MemoryCell, job: Job) -> None:
    first_ring, second_ring = a_ring(cell), a_ring(cell)
    before = await issue(cell, first_ring, job)
    assert (await second_ring.find_job(before, "job")).id == job.id
    new = await rotate(cell.store, cell_id=1, now=cell.clock.now())
    assert (await load_kids(cell))[-1] == new
    late = await issue(cell, first_ring, job)  # this process has not refreshed its keys yet
    await cell.clock.advance(REFRESH_SECONDS)
    after = await issue(cell, first_ring, job)
    assert after.split(".")[0] != late.split(".")[0] == before.split(".")[0]
    for ring in (first_ring, second_ring):
        for token in (before, late, after):
            assert (await ring.find_job(token, "job")).id == job.id
    # The first process does not know this key yet, so it must read the keys again.
    newest = await rotate(cell.store, cell_id=1, now=cell.clock.now())
    assert newest != new
    fresh = a_ring(cell)
    assert (await first_ring.find_job(await issue(cell, fresh, job), "job")).id == job.id


async def test_an_old_key_stays_until_its_tokens_have_expired(cell: MemoryCell, job: Job) -> None:
    ring = a_ring(cell)
    await ring.load()
    await rotate(cell.store, cell_id=1, now=cell.clock.now())
    assert await retire(cell.store, cell.clock.now() + KEPT_SECONDS - 2) == []
    # The job of the old key is still assigned to its runner, so the key stays however old it is.
    assert await retire(cell.store, cell.clock.now() + 10 * KEPT_SECONDS) == []
    token = await issue(cell, ring, job)
    await cell.put(token, "success")
    old = (await load_kids(cell))[0]
    assert await retire(cell.store, cell.clock.now() + KEPT_SECONDS) == [old]
    assert len(await load_kids(cell)) == 1
    assert await retire(cell.store, cell.clock.now() + KEPT_SECONDS) == []


async def test_a_compromised_key_is_removed_at_once(cell: MemoryCell, job: Job) -> None:
    ring = a_ring(cell)
    token = await issue(cell, ring, job)
    await rotate(cell.store, cell_id=1, now=cell.clock.now(), at_once=True)
    assert len(await load_kids(cell)) == 1
    await cell.clock.advance(REFRESH_SECONDS)
    assert await is_refused(ring, token)
    assert not await is_refused(ring, await issue(cell, ring, job))


async def test_scopes_are_those_of_the_token(cell: MemoryCell, job: Job) -> None:
    ring = a_ring(cell)
    token = await issue(cell, ring, job)
    for scope in ("job", "artifacts", "repository", "registry"):
        assert not await is_refused(ring, token, scope)
    assert await is_refused(ring, token, "api")


async def test_a_token_of_another_cell_is_refused(cell: MemoryCell, job: Job) -> None:
    token = await issue(cell, a_ring(cell, cell_id=2), job)
    assert await is_refused(a_ring(cell), token)


class TestOpaque:
    async def test_it_finds_its_job_and_is_stored_as_a_hash(self, cell: MemoryCell, job: Job) -> None:
        opaque, signed = a_ring(cell, opaque=True), a_ring(cell)
        token = await issue(cell, opaque, job)
        assert token.startswith(f"glcbt-{job.id:x}_")
        for ring in (opaque, signed):
            assert (await ring.find_job(token, "registry")).id == job.id
        row = await cell.job(job.id)
        assert row.token_hash
        assert token not in repr(row)

    async def test_a_changed_token_is_refused(self, cell: MemoryCell, job: Job) -> None:
        ring = a_ring(cell, opaque=True)
        token = await issue(cell, ring, job)
        swapped = "b" if token[-1] == "a" else "a"
        for wrong in (token[:-1] + swapped, token[:-1], token + "a", token.replace(f"{job.id:x}_", "ffff_"), token[6:]):
            assert await is_refused(ring, wrong), wrong
        assert not await is_refused(ring, token)

    async def test_the_next_hand_out_invalidates_it(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, _ = await cell.take()
        ring = a_ring(cell, opaque=True)
        token = await issue(cell, ring, job)
        await cell.dispatch.changes.release(job)
        again, _ = await cell.take()
        assert again.id == job.id
        assert await is_refused(ring, token)
        assert not await is_refused(ring, await issue(cell, ring, again))

    async def test_a_job_without_a_token_hash_accepts_no_token(self, cell: MemoryCell, job: Job) -> None:
        assert await is_refused(a_ring(cell), f"glcbt-{job.id:x}_{'A' * 20}")


async def test_processes_that_start_together_create_one_key() -> None:
    store, clock = MemoryStore(), VirtualClock()
    rings = [KeyRing(store, clock, cell_id=1, issuer="i") for _ in range(2)]
    for ring in rings:
        await ring.load()
    assert len(await store.settings.load_signing_keys()) == 1


async def test_a_store_error_is_not_a_refusal(cell: MemoryCell, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal makes a runner drop its job, so the cell must refuse only if it knows that the token is invalid."""
    ring = a_ring(cell)
    await ring.load()
    await rotate(cell.store, cell_id=1, now=cell.clock.now())
    token = await issue(cell, a_ring(cell), job)

    async def fail() -> dict[str, bytes]:
        raise StoreError("the store is unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(cell.store.settings, "load_signing_keys", fail)
        with pytest.raises(StoreError):
            await ring.find_job(token, "job")
    assert not await is_refused(ring, token)
