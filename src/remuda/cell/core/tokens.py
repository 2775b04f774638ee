"""Which tokens a cell makes and what it reads from them: runner tokens (routable) and job tokens (signed).

The caller brings random bytes and the time. A runner token is stored only as its hash; a job token is not stored at
all, its signature and the job's row decide together (the row in `remuda.cell.dispatch`).
"""

from collections.abc import Sequence

from remuda.cell.values import ORGANIZATION_ID, USER_ID, Job
from remuda.model.runner import RunnerType
from remuda.wire import job_token
from remuda.wire.job_token import JobClaims, SigningKey
from remuda.wire.routable import REGISTERED_RUNNER_PREFIX, RUNNER_PREFIX, TokenError, encode

RANDOM_BYTES = 16
"""How much randomness a runner token has."""

MINIMUM_LIFE_SECONDS = 3600
"""A job token is good for at least this long, plus the leeway."""

REMEMBERED_TOKENS = 10_000
"""How many tokens are not verified again: a job sends the same one every few seconds, and a signature costs more than
all the rest of such a call."""

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


class JobTokens:
    """Makes the cell's job tokens with its newest key and reads those of all its keys."""

    def __init__(self, keys: Sequence[SigningKey], *, cell_id: int, issuer: str) -> None:
        if not keys:
            raise ValueError("job tokens need a signing key")
        self._keys = {key.kid: key for key in keys}
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
        return job_token.sign(claims, self._newest, issuer=self._issuer, now=now)

    def read(self, token: str, *, now: float) -> JobClaims:
        """What a token claims, once its signature, its age and its cell are right; TokenError otherwise."""
        claims = self._verified.get(token)
        if claims is None:
            claims = job_token.verify(token, self._keys, now=now)
            if claims.cell_id != self._cell_id:
                raise TokenError(f"the job token belongs to cell {claims.cell_id}")
            if len(self._verified) >= REMEMBERED_TOKENS:
                del self._verified[next(iter(self._verified))]
            self._verified[token] = claims
        if claims.expires_at <= now:
            raise TokenError("the job token has expired")
        return claims
