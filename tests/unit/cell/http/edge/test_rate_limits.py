"""Who is counted together, and what is remembered."""

from typing import Any

import pytest

from remuda.cell.core.access.rate_limits import Rate
from remuda.cell.http.edge.errors import ApiError
from remuda.cell.http.edge.rate_limits import Buckets, RateLimits
from remuda.cell.settings import CellSettings
from remuda.lib.clock import VirtualClock


def scope(path: str = "/api/v4/projects", *, address: str = "192.0.2.1", query: bytes = b"", **headers: str) -> Any:
    return {
        "path": path,
        "query_string": query,
        "client": (address, 1),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }


def limits(clock: VirtualClock | None = None, **changes: Any) -> RateLimits:
    rates = {"requests_per_minute": 5, "anonymous_requests_per_minute": 3, "job_requests_per_minute": 7} | changes
    return RateLimits(CellSettings(data="x", **rates), clock or VirtualClock())  # type: ignore[arg-type]


def calls(limit: RateLimits, request: Any, *, status: int = 200, most: int = 100) -> int:
    """How many go through in a row."""
    for count in range(most):
        try:
            limit.note_answer(limit.admit(request), status)
        except ApiError:
            return count
    return most


def test_an_accepted_token_has_its_own_allowance() -> None:
    limit = limits()
    one, other = scope(private_token="glpat-one"), scope(private_token="glpat-other")
    assert calls(limit, one) == 1 + 4, "the first call counts for the address; that it was accepted counts as one"
    assert calls(limit, other) == 5
    assert calls(limit, scope()) == 1


@pytest.mark.parametrize("status", [0, 400, 401, 403, 404, 499, 503])
def test_invented_tokens_count_for_their_address(status: int) -> None:
    limit = limits()
    for number in range(3):
        assert calls(limit, scope(private_token=f"wrong-{number}"), status=status, most=1) == 1
    assert calls(limit, scope(private_token="wrong-again"), status=status) == 0
    assert calls(limit, scope(private_token="wrong", address="192.0.2.2"), status=status) == 3


def test_runners_jobs_and_git_have_another_rate() -> None:
    limit = limits()
    for path in ("/api/v4/jobs/request", "/api/v4/jobs/5/trace", "/api/v4/runners/verify", "/a/b.git/info/refs"):
        assert calls(limits(), scope(path)) == 70
    assert calls(limit, scope("/api/v4/jobs/5/trace", job_token="glcbt-x")) == 1 + 6
    assert calls(limit, scope("/api/remuda/v1/jobs/5/results", job_token="glcbt-y")) == 1 + 6


def test_health_is_not_counted_and_zero_means_no_limit() -> None:
    assert calls(limits(), scope("/-/health")) == 100
    assert calls(limits(requests_per_minute=0, anonymous_requests_per_minute=0), scope()) == 100
    assert calls(limits(job_requests_per_minute=0), scope("/api/v4/jobs/request")) == 100


def test_a_token_may_stand_in_the_query_too() -> None:
    limit = limits()
    assert calls(limit, scope(query=b"private_token=a&x=1")) == 5
    assert calls(limit, scope(query=b"private_token=b")) == 5
    assert calls(limit, scope(query=b"tokens=%ff&token")) == 1


def test_what_a_caller_is_told() -> None:
    clock = VirtualClock()
    limit = limits(clock)
    admitted = limit.admit(scope())
    assert admitted.headers["RateLimit-Limit"] == "3"
    assert admitted.headers["RateLimit-Remaining"] == "2"
    assert admitted.headers["RateLimit-Observed"] == "1"
    assert admitted.headers["RateLimit-Name"] == "user_by_address"
    assert int(admitted.headers["RateLimit-Reset"]) == int(clock.now()) + 20
    calls(limit, scope())
    with pytest.raises(ApiError) as raised:
        limit.admit(scope())
    assert raised.value.headers["Retry-After"] == "20"
    assert raised.value.headers["RateLimit-Remaining"] == "0"
    assert raised.value.headers["RateLimit-ResetTime"].endswith("GMT")
    clock.jump(20)
    limit.admit(scope())


def test_what_is_remembered_is_bounded() -> None:
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
