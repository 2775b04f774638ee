"""The keys that sign job tokens: loading, rotation, removal. Also finds the job that a token belongs to.

Keys are read again every few seconds while they are used, and at once for a token with an unknown key, so that all
processes notice a rotation. A job token is either signed (a JWT) or opaque (a random text whose hash is stored); both
kinds are accepted, whichever is issued. Invariant: a token is valid only for the hand-out of the job (its epoch) for
which it was issued. Callers of `issue` store the hash of an opaque token."""

import asyncio
import hmac
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress

from remuda.cell.core.access.tokens import JobTokens, key_name, retirable_keys
from remuda.cell.errors import ConflictError
from remuda.cell.store.ports import Store
from remuda.cell.values import Job
from remuda.lib.clock import Clock
from remuda.model.job import ASSIGNED, JobId
from remuda.wire import job_token
from remuda.wire.id_token import KEY_PREFIX as ID_KEY_PREFIX
from remuda.wire.job_token import JobClaims, SigningKey, UnknownKeyError, load_key, new_key
from remuda.wire.routable_token import TokenError, token_hash

REFRESH_SECONDS = 10
"""The maximum age of cached keys."""
JOB_TOKENS = "job tokens"
REGISTRY_KEY_PREFIX = "registry-"
"""Prefix of the names of keys that sign registry tokens."""


def purpose_of(kid: str) -> str:
    """Return for which kind of tokens a key is used. The prefix of its name (`kid`) says that."""
    if kid.startswith(ID_KEY_PREFIX):
        return "identity tokens"
    return "registry tokens" if kid.startswith(REGISTRY_KEY_PREFIX) else JOB_TOKENS


async def load_job_token_keys(store: Store) -> Sequence[SigningKey]:
    """Return the keys for job tokens, oldest first. The newest one signs, the older ones only verify."""
    stored = await store.settings.load_signing_keys()
    return [load_key(kid, pem) for kid, pem in stored.items() if purpose_of(kid) == JOB_TOKENS]


async def rotate(store: Store, *, cell_id: int, now: float, at_once: bool = False) -> str:
    """Add a key, which signs job tokens from now on, and return its name. `at_once`: also remove all older keys, so
    that the tokens they have signed become invalid now."""
    old = await load_job_token_keys(store)
    key = new_key(key_name(cell_id, now, secrets.token_bytes(4)))
    await store.settings.add_signing_key(key.kid, key.pem())
    for old_key in old if at_once else ():
        await store.settings.remove_signing_key(old_key.kid)
    return key.kid


async def retire(store: Store, now: float) -> list[str]:
    """Remove older job token keys that no token of an assigned job can need any more. Returns their names."""
    kids = [key.kid for key in await load_job_token_keys(store)]
    if len(kids) < 2:
        return []
    leased = [job.leased_at for job in await store.jobs.list_jobs_in(ASSIGNED) if job.leased_at is not None]
    retired = retirable_keys(kids, oldest_lease=min(leased, default=None), now=now)
    for kid in retired:
        await store.settings.remove_signing_key(kid)
    return retired


class KeyRing:
    """Issues job tokens, and finds the job that a token belongs to."""

    def __init__(self, store: Store, clock: Clock, *, cell_id: int, issuer: str, opaque: bool = False) -> None:
        self._store = store
        self._clock = clock
        self._cell_id = cell_id
        self._issuer = issuer
        self._opaque = opaque
        self._tokens: JobTokens | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()

    async def load(self) -> JobTokens:
        """Read the keys that sign and verify job tokens from the store; create the first one if there is none."""
        async with self._reading:
            while not (keys := await load_job_token_keys(self._store)):
                # Processes that start in the same second use the same name, so that only one adds a key.
                key = new_key(f"cell{self._cell_id}-{int(self._clock.now())}")
                with suppress(ConflictError):
                    await self._store.settings.add_signing_key(key.kid, key.pem())
            if self._tokens is None or [key.kid for key in keys] != list(self._tokens.keys):
                self._tokens = JobTokens(keys, cell_id=self._cell_id, issuer=self._issuer)
            self._read_at = self._clock.monotonic()
            return self._tokens

    async def _current(self) -> JobTokens:
        if self._tokens is None or self._clock.monotonic() - self._read_at >= REFRESH_SECONDS:
            return await self.load()
        return self._tokens

    async def issue(self, job: Job, *, timeout_seconds: float, user_id: int) -> str:
        """Create the token for a job that is handed out. Store its `stored_hash` with the job before it is sent."""
        if self._opaque:
            return job_token.opaque(job.id, secrets.token_bytes(job_token.OPAQUE_RANDOM_BYTES))
        tokens = await self._current()
        return tokens.issue(job, timeout_seconds=timeout_seconds, now=self._clock.now(), user_id=user_id)

    def stored_hash(self, job: Job, token: str) -> str:
        """Return `token_hash` for the job's row: the hash of an opaque (random) token, empty for a signed one."""
        return _hash(job, token) if self._opaque else ""

    def find_cached_job(self, token: str, scope: str, get_cached: Callable[[JobId], Job | None]) -> Job | None:
        """Return the job of a signed token, without the store; `get_cached` looks up cached jobs. None if keys, token
        or job are not cached, or the token does not fit the cached job: then call `find_job`."""
        if self._tokens is None or self._clock.monotonic() - self._read_at >= REFRESH_SECONDS:
            return None
        claims = self._tokens.claims_from_cache(token, now=self._clock.now())
        job = get_cached(JobId(claims.job_id)) if claims is not None and scope in claims.scopes else None
        if claims is None or job is None or (job.project_id, job.epoch) != (claims.project_id, claims.epoch):
            return None
        return job

    async def find_job(self, token: str, scope: str, get_cached: Callable[[JobId], Job | None] = lambda _: None) -> Job:
        """Return the job of a token: from `get_cached` if that one fits the token, else from the store. Raises
        TokenError if the token is invalid, or is signed and lacks the scope; opaque (random) ones have every scope."""
        number = job_token.opaque_job(token)
        if number is not None:
            job = await self._store.jobs.load_job(JobId(number))
            stored = job.token_hash if job else ""
            if job is None or not hmac.compare_digest(stored, _hash(job, token)):
                raise TokenError("it belongs to no job, or to an earlier hand-out")
            return job
        if (cached := self.find_cached_job(token, scope, get_cached)) is not None:
            return cached
        claims = await self._claims(token)
        if scope not in claims.scopes:
            raise TokenError(f"it lacks the scope {scope}")
        job = await self._store.jobs.load_job(JobId(claims.job_id))
        if job is None or job.project_id != claims.project_id:
            raise TokenError("there is no such job")
        if job.epoch != claims.epoch:
            raise TokenError("the job was handed out again; this token belongs to an earlier hand-out")
        return job

    async def _claims(self, token: str) -> JobClaims:
        tokens = await self._current()
        try:
            return tokens.read(token, now=self._clock.now())
        except UnknownKeyError:
            # Another process may have signed it with a key that is newer than the cache.
            return (await self.load()).read(token, now=self._clock.now())


def _hash(job: Job, token: str) -> str:
    """Return the hash of an opaque token. It includes the job's epoch (the number of the hand-out), so the token
    becomes invalid when the job is handed out again."""
    return token_hash(f"{job.epoch} {token}")
