"""Runner tokens and signed job tokens: how they are made and read, and which signing keys are still needed. A runner
token contains ids for routing and is stored only as its hash. A job token is not stored: its signature, its expiry and
the job's epoch (number of hand-outs) decide. The newest key signs; older keys stay until their tokens have expired."""

import re
from collections.abc import Sequence
from itertools import pairwise

from remuda.cell.values import ORGANIZATION_ID, USER_ID, Job
from remuda.model.runner import RunnerType
from remuda.wire import job_token
from remuda.wire.job_token import JobClaims, SigningKey
from remuda.wire.routable_token import REGISTERED_RUNNER_PREFIX, RUNNER_PREFIX, TokenError, encode

RANDOM_BYTES = 16
"""Random bytes of a runner token."""

MINIMUM_LIFE_SECONDS = 3600
"""A job token is valid for at least this long, plus the leeway."""

REMEMBERED_TOKENS = 10_000
"""Size of the cache of verified tokens: a job sends its token every few seconds, and checking the signature costs more
than the rest of such a call."""

KEPT_SECONDS = 24 * 3600
"""Minimum time for which a replaced key is kept: for clocks that differ, processes that have not read the new key yet,
and late messages about the end of a job."""

_TYPE_NUMBERS = {RunnerType.INSTANCE: 1, RunnerType.GROUP: 2, RunnerType.PROJECT: 3}


def runner_token(
    *,
    cell_id: int,
    runner_type: RunnerType,
    random: bytes,
    organization_id: int = ORGANIZATION_ID,
    group_id: int | None = None,
    project_id: int | None = None,
    user_id: int = USER_ID,
    registered: bool = False,
) -> str:
    """Create a runner token, which contains these ids so that requests can be routed by it. That of an instance runner
    names no organization: it stays with its cell if an organization moves to another. `registered`: the runner used a
    registration token; then its token has another prefix and no user id."""
    routing = {"c": cell_id, "t": _TYPE_NUMBERS[runner_type]}
    if runner_type is not RunnerType.INSTANCE:
        routing["o"] = organization_id
    if group_id is not None:
        routing["g"] = group_id
    if project_id is not None:
        routing["p"] = project_id
    if not registered:
        routing["u"] = user_id
    prefix = REGISTERED_RUNNER_PREFIX if registered else RUNNER_PREFIX
    return encode(prefix=prefix, routing=routing, random=random)


def key_name(cell_id: int, now: float, random: bytes) -> str:
    """Return the name (`kid`) of a new signing key, which contains its creation time."""
    return f"cell{cell_id}-{int(now)}-{random.hex()}"


def creation_time(kid: str) -> int | None:
    """Return the creation time that the name of a signing key contains; None for a name of another form."""
    match = re.fullmatch(r"cell[0-9]+-([0-9]{1,12})(-[0-9a-f]+)?", kid, re.ASCII)
    return int(match[1]) if match else None


def retirable_keys(kids: Sequence[str], *, oldest_lease: float | None, now: float) -> list[str]:
    """Return the signing keys (`kids`: all, oldest first) that can be removed: the next key was created more than
    `KEPT_SECONDS` ago, and that long before `oldest_lease`, the time when a runner got the longest running job."""
    latest = now if oldest_lease is None else min(now, oldest_lease)
    replaced_at = {old: creation_time(successor) for old, successor in pairwise(kids)}
    return [kid for kid, time in replaced_at.items() if time is not None and time + KEPT_SECONDS <= latest]


class JobTokens:
    """Signs job tokens with the newest key of the cell, and verifies tokens that any of its keys has signed."""

    def __init__(self, keys: Sequence[SigningKey], *, cell_id: int, issuer: str) -> None:
        if not keys:
            raise ValueError("job tokens need a signing key")
        self.keys = {key.kid: key for key in keys}
        self._newest = keys[-1]
        self._cell_id = cell_id
        self._issuer = issuer
        self._verified: dict[str, JobClaims] = {}

    def issue(self, job: Job, *, timeout_seconds: float, now: float, user_id: int = USER_ID) -> str:
        """Create the token of a job for its runner. It is valid longer than the job's timeout, for the final report."""
        claims = JobClaims(
            cell_id=self._cell_id,
            organization_id=job.organization_id,
            project_id=job.project_id,
            user_id=user_id,
            job_id=job.id,
            epoch=job.epoch,
            expires_at=int(now + max(timeout_seconds, MINIMUM_LIFE_SECONDS) + job_token.LEEWAY_SECONDS),
        )
        token = job_token.sign(claims, self._newest, issuer=self._issuer, now=now)
        self._remember(token, claims)
        return token

    def _remember(self, token: str, claims: JobClaims) -> None:
        if len(self._verified) >= REMEMBERED_TOKENS:
            del self._verified[next(iter(self._verified))]
        self._verified[token] = claims

    def read(self, token: str, *, now: float) -> JobClaims:
        """Verify a job token and return its claims. Raises TokenError if it is forged, expired or of another cell."""
        claims = self.claims_from_cache(token, now=now)
        if claims is None:
            claims = job_token.verify(token, self.keys, now=now)
            if claims.cell_id != self._cell_id:
                raise TokenError(f"the job token belongs to cell {claims.cell_id}")
            self._remember(token, claims)
        return claims

    def claims_from_cache(self, token: str, *, now: float) -> JobClaims | None:
        """Return the claims of a token that was verified before; None if it is not cached or has expired."""
        claims = self._verified.get(token)
        return None if claims is None or claims.expires_at <= now else claims
