"""Rate limits: how often a caller may call, and the headers that tell the caller about it.

There is a limit for each token and one for each client address. A call is counted for the token in its headers or query
if an earlier call with that token succeeded. Otherwise, and with a token only in the body, it is counted for the
client's address. So nobody can avoid the limit by inventing tokens, or use up the limit of somebody else's token. Calls
of runners, jobs and git have a limit of their own, far above what they need; health, metrics and static files of web
pages have none. Each process counts for itself: with three processes a caller can make three times as many calls."""

import re
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from email.utils import formatdate
from urllib.parse import parse_qs

from starlette.types import Scope

from remuda.cell.core.access.rate_limits import Bucket, Rate, Verdict, spend
from remuda.cell.http.edge.errors import ApiError
from remuda.cell.settings import CellSettings
from remuda.lib.clock import Clock

REMEMBERED = 50_000
"""How many keys (tokens or addresses) one `Buckets` remembers by default."""
_FREE = ("/-/health", "/-/liveness", "/-/readiness", "/-/metrics", "/-/static/")
_RUNNERS = re.compile(
    r"/api/v4/(jobs|runners)(/.*)?|/api/remuda/v1/(jobs/\d+/results|runners/.*)"
    r"|/(?!api/).+/(info/refs|git-upload-pack|git-receive-pack|info/lfs/.+|gitlab-lfs/.+)"
)
"""Paths that runners and jobs call. A personal token counts like a runner's there."""
_JOBS_OF_AN_ADDRESS = 10
"""An address gets this many times the limit of a job token: the first call of each job counts for the address, and all
jobs of a manager call from the same one."""
_ACCEPTED = range(200, 400)
"""Statuses that prove a valid token: an error may come before the token is checked."""
_TOKEN_HEADERS = frozenset({b"private-token", b"job-token", b"runner-token", b"authorization"})
_SESSION = re.compile(rb"(?:^|;) *(__Host-)?remuda_session=([^; ]+)")
_API = "/api/"
"""Below this path a cookie counts as a token: there every call checks it. Web pages count for the address."""
_TOKEN_PARAMETERS = ("private_token", "job_token", "token", "access_token")


class Buckets:
    """Limits calls per key, such as a token, by token buckets; drops the least recently used key above `most`."""

    def __init__(self, rate: Rate, *, most: int = REMEMBERED) -> None:
        self._rate = rate
        self._most = most
        self._buckets: OrderedDict[Hashable, Bucket] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._buckets

    def __len__(self) -> int:
        return len(self._buckets)

    def spend(self, key: Hashable, now: float) -> Verdict | None:
        """Count a call for this key. Returns whether it is within the limit and how many remain; None: no limit."""
        if not self._rate.calls:
            return None
        bucket, verdict = spend(self._buckets.get(key), self._rate, now)
        self._buckets[key] = bucket
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return verdict


class RateLimits:
    def __init__(self, settings: CellSettings, clock: Clock) -> None:
        self._clock = clock
        jobs = Rate(calls=settings.job_requests_per_minute)
        anonymous = Rate(calls=settings.anonymous_requests_per_minute)
        self._tokens = {"user": Buckets(Rate(calls=settings.requests_per_minute)), "jobs": Buckets(jobs)}
        jobs_of_address = Rate(calls=_JOBS_OF_AN_ADDRESS * jobs.calls)
        self._addresses = {"user": Buckets(anonymous), "jobs": Buckets(jobs_of_address)}

    def admit(self, scope: Scope) -> "Admitted":
        """Count a call for its token, if accepted before, or for its address. Raises ApiError 429 above the limit."""
        path: str = scope["path"]
        if path.startswith(_FREE):
            return Admitted()
        kind = "jobs" if _RUNNERS.fullmatch(path) else "user"
        token = _token_in(scope)
        now = self._clock.monotonic()
        tokens = self._tokens[kind]
        if token is not None and token in tokens:
            verdict, name = tokens.spend(token, now), kind
        else:
            client = scope.get("client")
            address = client[0] if client else ""
            verdict, name = self._addresses[kind].spend(address, now), f"{kind} by address"
        if verdict is None:
            return Admitted(token=token, tokens=tokens)
        if not verdict.allowed:
            wait = str(verdict.retry_after_seconds)
            reason = f"too many requests; try again in {wait} seconds"
            now = self._clock.now()
            headers = _headers(verdict, name, now)
            headers["RateLimit-ResetTime"] = formatdate(now + verdict.reset_seconds, usegmt=True)
            raise ApiError(429, {"message": f"429 Too Many Requests - {reason}"}, Retry_After=wait, **headers)
        # Runners call often and do not read these headers.
        return Admitted(_headers(verdict, name, self._clock.now()) if kind == "user" else None, token, tokens)

    def note_answer(self, admitted: "Admitted", status: int) -> None:
        """If this answer shows that the token is valid, count later calls for the token, not for the client's address.
        Do not call it for an endpoint that checks no token: there invented tokens succeed, too."""
        token, tokens = admitted.token, admitted.tokens
        if token is not None and tokens is not None and status in _ACCEPTED and token not in tokens:
            tokens.spend(token, self._clock.monotonic())


class Admitted:
    """A call within its rate limit: headers for its response, hash of its token, and the `Buckets` for that token."""

    __slots__ = ("headers", "token", "tokens")

    def __init__(
        self, headers: Mapping[str, str] | None = None, token: int | None = None, tokens: Buckets | None = None
    ) -> None:
        self.headers = headers or {}
        self.token = token
        self.tokens = tokens


def _headers(verdict: Verdict, name: str, now: float) -> dict[str, str]:
    return {
        "RateLimit-Limit": str(verdict.limit),
        "RateLimit-Name": name.replace(" ", "_"),
        "RateLimit-Observed": str(verdict.limit - verdict.remaining),
        "RateLimit-Remaining": str(verdict.remaining),
        "RateLimit-Reset": str(int(now) + verdict.reset_seconds),
    }


def _token_in(scope: Scope) -> int | None:
    """A hash of the user, runner or job token in the headers or query; None if there is none. Python's hash is seeded
    per process, so nobody outside can choose two tokens with the same hash."""
    for name, value in scope["headers"]:
        if name in _TOKEN_HEADERS:
            return hash(value)
        if name == b"cookie" and scope["path"].startswith(_API) and (session := _SESSION.search(value)):
            # Only the session: other cookies, which the browser's user may choose, would make many tokens of one.
            return hash(session[2])
    query: bytes = scope["query_string"]
    if b"token" in query:
        values = parse_qs(query.decode("latin-1"), max_num_fields=None)
        for parameter in _TOKEN_PARAMETERS:
            if parameter in values:
                return hash(values[parameter][0].encode())
    return None
