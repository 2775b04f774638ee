"""Which tokens a cell makes and what it reads from them: runner tokens (routable) and job tokens (signed).

The caller brings random bytes and the time. A runner token is stored only as its hash; a signed job token is not stored
at all, its signature and the job's row decide together (the row in `remuda.cell.secrets.key_ring`). Of the keys that
sign job tokens the newest signs; the others are good until the tokens that they signed are over.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from remuda.cell.values import ORGANIZATION_ID, USER_ID, Job
from remuda.model.runner import RunnerType
from remuda.wire import job_token
from remuda.wire.job_token import JobClaims, SigningKey
from remuda.wire.routable_token import REGISTERED_RUNNER_PREFIX, RUNNER_PREFIX, TokenError, encode

RANDOM_BYTES = 16
"""How much randomness a runner token has."""

MINIMUM_LIFE_SECONDS = 3600
"""A job token is good for at least this long, plus the leeway."""

REMEMBERED_TOKENS = 10_000
"""How many tokens are not verified again: a job sends the same one every few seconds, and a signature costs more than
all the rest of such a call."""

KEPT_SECONDS = 24 * 3600
"""How long at least a key is kept that another has replaced. It covers clocks that differ, processes that have not seen
the new key yet, and messages about the end of a job that come late."""

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
    """A new runner's token. One that came through a registration token has a prefix of its own and names no user."""
    routing = {"c": cell_id, "o": organization_id, "t": _TYPE_NUMBERS[runner_type]}
    if group_id is not None:
        routing["g"] = group_id
    if project_id is not None:
        routing["p"] = project_id
    if not registered:
        routing["u"] = user_id
    prefix = REGISTERED_RUNNER_PREFIX if registered else RUNNER_PREFIX
    return encode(prefix=prefix, routing=routing, random=random)


def key_name(cell_id: int, now: float, random: bytes) -> str:
    """What a new key is called. The name tells when it was made."""
    return f"cell{cell_id}-{int(now)}-{random.hex()}"


def creation_time(kid: str) -> int | None:
    """When a key was made; None for a name that does not tell."""
    found = re.fullmatch(r"cell[0-9]+-([0-9]{1,12})(-[0-9a-f]+)?", kid, re.ASCII)
    return int(found[1]) if found else None


def retirable_keys(kids: Sequence[str], *, oldest_lease: float | None, now: float) -> list[str]:
    """Of the keys, oldest first, those that no token needs any more. `oldest_lease` is the earliest hand-out among the
    jobs that runners have."""
    latest = now if oldest_lease is None else min(now, oldest_lease)
    replaced_at = {old: creation_time(successor) for old, successor in pairwise(kids)}
    return [kid for kid, at in replaced_at.items() if at is not None and at + KEPT_SECONDS <= latest]


class JobTokens:
    """Makes the cell's job tokens with its newest key and reads those of all its keys."""

    def __init__(self, keys: Sequence[SigningKey], *, cell_id: int, issuer: str) -> None:
        if not keys:
            raise ValueError("job tokens need a signing key")
        self.keys = {key.kid: key for key in keys}
        self._newest = keys[-1]
        self._cell_id = cell_id
        self._issuer = issuer
        self._verified: dict[str, JobClaims] = {}

    def issue(self, job: Job, *, timeout_seconds: float, now: float, user_id: int = USER_ID) -> str:
        """The token of a hand-out: it outlives the job's timeout, so that the end can still be sent."""
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
        """A signature that is known to be right need not be looked at again."""
        if len(self._verified) >= REMEMBERED_TOKENS:
            del self._verified[next(iter(self._verified))]
        self._verified[token] = claims

    def read(self, token: str, *, now: float) -> JobClaims:
        """What a token claims, once its signature, its age and its cell are right; TokenError otherwise."""
        claims = self.claims_from_cache(token, now=now)
        if claims is None:
            claims = job_token.verify(token, self.keys, now=now)
            if claims.cell_id != self._cell_id:
                raise TokenError(f"the job token belongs to cell {claims.cell_id}")
            self._remember(token, claims)
        return claims

    def claims_from_cache(self, token: str, *, now: float) -> JobClaims | None:
        """The same of a token that was seen before; None of one that was not, or that has expired."""
        claims = self._verified.get(token)
        return None if claims is None or claims.expires_at <= now else claims
