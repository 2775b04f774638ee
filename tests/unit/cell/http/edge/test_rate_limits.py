"""Rate limits: which requests share a limit, the response headers, and the memory bound."""

from typing import Any

import pytest

from remuda.cell.core.access.rate_limits import Rate
from remuda.cell.http.edge.errors import ApiError
from remuda.cell.http.edge.rate_limits import Buckets, RateLimits
from remuda.cell.settings import CellSettings
from remuda.lib.clock import VirtualClock


def a_scope(path: str = "/api/v4/projects", *, address: str = "192.0.2.1", query: bytes = b"", **headers: str) -> Any:
    return {
        "path": path,
        "query_string": query,
        "client": (address, 1),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }


def create_limits(clock: VirtualClock | None = None, **changes: Any) -> RateLimits:
    rates = {"requests_per_minute": 5, "anonymous_requests_per_minute": 3, "job_requests_per_minute": 7} | changes
    return RateLimits(CellSettings(data="x", **rates), clock or VirtualClock())  # type: ignore[arg-type]


def count_admitted(limits: RateLimits, request: Any, *, status: int = 200, attempts: int = 100) -> int:
    """Repeat a request until it is refused; return how many were admitted."""
    for count in range(attempts):
        try:
            limits.note_answer(limits.admit(request), status)
        except ApiError:
            return count
    return attempts


def test_an_accepted_token_has_its_own_allowance() -> None:
    limits = create_limits()
    first, second = a_scope(private_token="glpat-one"), a_scope(private_token="glpat-other")
    assert count_admitted(limits, first) == 1 + 4, "the first call counts for both"
    assert count_admitted(limits, second) == 5
    assert count_admitted(limits, a_scope()) == 1


def test_a_session_has_one_allowance_whatever_other_cookies_there_are() -> None:
    limits = create_limits()
    assert count_admitted(limits, a_scope("/api/v4/user", cookie="remuda_session=one")) == 1 + 4
    for other in ("a=1; remuda_session=one", "remuda_session=one; b=2", "__Host-remuda_session=one"):
        assert count_admitted(limits, a_scope("/api/v4/user", cookie=other)) == 0
    assert count_admitted(limits, a_scope("/api/v4/user", cookie="a=1")) == 2, "counts for the address"


@pytest.mark.parametrize("status", [0, 400, 401, 403, 404, 499, 503])
def test_invented_tokens_count_for_their_address(status: int) -> None:
    limits = create_limits()
    for number in range(3):
        assert count_admitted(limits, a_scope(private_token=f"wrong-{number}"), status=status, attempts=1) == 1
    assert count_admitted(limits, a_scope(private_token="wrong-again"), status=status) == 0
    assert count_admitted(limits, a_scope(private_token="wrong", address="192.0.2.2"), status=status) == 3


def test_runners_jobs_and_git_have_their_own_rate() -> None:
    limits = create_limits()
    runner_paths = ("/api/v4/jobs/request", "/api/v4/jobs/5/trace", "/api/v4/runners/verify")
    for path in (*runner_paths, "/a/b.git/info/refs", "/a/b/info/refs", "/a/b/git-upload-pack"):
        assert count_admitted(create_limits(), a_scope(path)) == 70
    assert count_admitted(limits, a_scope("/api/v4/jobs/5/trace", job_token="glcbt-x")) == 1 + 6
    assert count_admitted(limits, a_scope("/api/remuda/v1/jobs/5/results", job_token="glcbt-y")) == 1 + 6


def test_health_is_not_counted_and_zero_means_no_limit() -> None:
    assert count_admitted(create_limits(), a_scope("/-/health")) == 100
    assert count_admitted(create_limits(requests_per_minute=0, anonymous_requests_per_minute=0), a_scope()) == 100
    assert count_admitted(create_limits(job_requests_per_minute=0), a_scope("/api/v4/jobs/request")) == 100


def test_a_token_in_the_query_has_its_own_limit() -> None:
    limits = create_limits()
    assert count_admitted(limits, a_scope(query=b"private_token=a&x=1")) == 5
    assert count_admitted(limits, a_scope(query=b"private_token=b")) == 5
    assert count_admitted(limits, a_scope(query=b"tokens=%ff&token")) == 1


def test_rate_limit_headers() -> None:
    clock = VirtualClock()
    limits = create_limits(clock)
    admitted = limits.admit(a_scope())
    assert admitted.headers["RateLimit-Limit"] == "3"
    assert admitted.headers["RateLimit-Remaining"] == "2"
    assert admitted.headers["RateLimit-Observed"] == "1"
    assert admitted.headers["RateLimit-Name"] == "user_by_address"
    assert int(admitted.headers["RateLimit-Reset"]) == int(clock.now()) + 20
    count_admitted(limits, a_scope())
    with pytest.raises(ApiError) as raised:
        limits.admit(a_scope())
    assert raised.value.headers["Retry-After"] == "20"
    assert raised.value.headers["RateLimit-Remaining"] == "0"
    assert raised.value.headers["RateLimit-ResetTime"].endswith("GMT")
    clock.jump(20)
    limits.admit(a_scope())


def test_the_number_of_buckets_is_limited() -> None:
    buckets = Buckets(Rate(calls=2), most=10)
    for number in range(1000):
        buckets.spend(number, 0.0)
    assert len(buckets) == 10
    assert 999 in buckets
    assert 0 not in buckets
    for _ in range(3):
        verdict = buckets.spend(999, 0.0)
    assert verdict is not None
    assert not verdict.allowed
