"""The keys of a cell's job tokens as its processes see them: loaded, rotated, retired; and which job a token opens.

Decided here: when keys are read again (every few seconds while they are used, and at once for a token whose key is not
known), so that all processes of a cell see a rotation without being told; and that both kinds of job tokens are read,
whichever kind is made. What a token says is decided in `core.tokens`; which state of a job it opens, in `holders`.

Invariant: a token opens the job only if the row has the epoch that the token was made for. An opaque token's hash is
in the row before the token goes out (`handout` sees to that).
"""

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
from remuda.model.job import HELD, JobId
from remuda.wire import job_token
from remuda.wire.id_token import KEY_PREFIX as ID_KEY_PREFIX
from remuda.wire.job_token import JobClaims, SigningKey, UnknownKeyError, load_key, new_key
from remuda.wire.routable_token import TokenError, token_hash

REFRESH_SECONDS = 10
"""How old the known keys may be."""
JOB_TOKENS = "job tokens"
REGISTRY_KEY_PREFIX = "registry-"
"""Names of keys that sign tokens for the registry begin so."""


def purpose_of(kid: str) -> str:
    """What a stored key signs."""
    if kid.startswith(ID_KEY_PREFIX):
        return "identity tokens"
    return "registry tokens" if kid.startswith(REGISTRY_KEY_PREFIX) else JOB_TOKENS


async def job_token_keys(store: Store) -> Sequence[SigningKey]:
    """The keys that sign job tokens, the newest last."""
    stored = await store.settings.load_signing_keys()
    return [load_key(kid, pem) for kid, pem in stored.items() if purpose_of(kid) == JOB_TOKENS]


async def rotate(store: Store, *, cell_id: int, now: float, at_once: bool = False) -> str:
    """A new key, which signs from now on; its name. `at_once`: the tokens of all others are dead."""
    old = await job_token_keys(store)
    key = new_key(key_name(cell_id, now, secrets.token_bytes(4)))
    await store.settings.add_signing_key(key.kid, key.pem())
    for one in old if at_once else ():
        await store.settings.remove_signing_key(one.kid)
    return key.kid


async def retire(store: Store, now: float) -> list[str]:
    """Remove the keys that no token needs any more; their names."""
    kids = [key.kid for key in await job_token_keys(store)]
    if len(kids) < 2:
        return []
    leased = [job.leased_at for job in await store.jobs.list_jobs_in(HELD) if job.leased_at is not None]
    retired = retirable_keys(kids, oldest_lease=min(leased, default=None), now=now)
    for kid in retired:
        await store.settings.remove_signing_key(kid)
    return retired


class KeyRing:
    """Makes job tokens and finds the jobs of those that come back."""

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
        """Read the keys; the first start of a cell makes one."""
        async with self._reading:
            while not (keys := await job_token_keys(self._store)):
                # The same name in all processes that start at this moment, so that one of them makes it.
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
        """The token of a hand-out. What is `kept` of it must be in the job's row before it goes out."""
        if self._opaque:
            return job_token.opaque(job.id, secrets.token_bytes(job_token.OPAQUE_RANDOM_BYTES))
        tokens = await self._current()
        return tokens.issue(job, timeout_seconds=timeout_seconds, now=self._clock.now(), user_id=user_id)

    def kept(self, job: Job, token: str) -> str:
        """What the row has to have of a token, `token_hash`; empty for one that proves itself."""
        return _hash(job, token) if self._opaque else ""

    def opens_known(self, token: str, scope: str, known: Callable[[JobId], Job | None]) -> Job | None:
        """The same as `opens` where token, keys and job are known; None where the store has to be asked."""
        if self._tokens is None or self._clock.monotonic() - self._read_at >= REFRESH_SECONDS:
            return None
        claims = self._tokens.claims_from_cache(token, now=self._clock.now())
        job = known(JobId(claims.job_id)) if claims is not None and scope in claims.scopes else None
        if claims is None or job is None or (job.project_id, job.epoch) != (claims.project_id, claims.epoch):
            return None
        return job

    async def opens(self, token: str, scope: str, known: Callable[[JobId], Job | None] = lambda _: None) -> Job:
        """The job that this token was made for; TokenError when it proves nothing, or not any more.

        One that is `known` is not read again if the token fits it.
        """
        number = job_token.opaque_job(token)
        if number is not None:
            job = await self._store.jobs.load_job(JobId(number))
            kept = job.token_hash if job else ""
            if job is None or not hmac.compare_digest(kept, _hash(job, token)):
                raise TokenError("it is of no job, or of an earlier hand-out")
            return job
        if (there := self.opens_known(token, scope, known)) is not None:
            return there
        claims = await self._claims(token)
        if scope not in claims.scopes:
            raise TokenError(f"it lacks the scope {scope}")
        job = await self._store.jobs.load_job(JobId(claims.job_id))
        if job is None or job.project_id != claims.project_id:
            raise TokenError("there is no such job")
        if job.epoch != claims.epoch:
            raise TokenError("the job was handed out anew; this token is of an earlier hand-out")
        return job

    async def _claims(self, token: str) -> JobClaims:
        tokens = await self._current()
        try:
            return tokens.read(token, now=self._clock.now())
        except UnknownKeyError:
            # Another process may have signed it with a newer key than this one has seen: only the store knows.
            return (await self.load()).read(token, now=self._clock.now())


def _hash(job: Job, token: str) -> str:
    """What the row has of an opaque token. The epoch is in it, so that the next hand-out kills the token."""
    return token_hash(f"{job.epoch} {token}")
