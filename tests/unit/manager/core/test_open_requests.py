"""The number of job requests that may be open."""

from hypothesis import given
from hypothesis import strategies as st

from remuda.manager.core.open_requests import RequestLimit


def after(limit: RequestLimit, *statuses: int | None) -> RequestLimit:
    for status in statuses:
        limit = limit.after(status)
    return limit


def test_the_limit_starts_with_one_and_grows_with_every_job() -> None:
    limit = RequestLimit(hard=50)
    used = []
    for _ in range(14):
        used.append(limit.used)
        limit = limit.after(201)
    assert used[:4] == [1, 2, 3, 4]
    assert after(RequestLimit(hard=50, adaptive=40.0), 201).adaptive == 44.0


def test_each_empty_answer_lowers_the_limit_by_a_tenth() -> None:
    assert after(RequestLimit(hard=50, adaptive=10.0), 204).used == 9
    assert after(RequestLimit(hard=50, adaptive=10.0), *[204] * 40).used == 1


def test_errors_do_not_change_the_limit() -> None:
    limit = RequestLimit(hard=9, adaptive=4.0)
    assert after(limit, None, 403, 409, 500) == limit


def test_without_adaption_the_configured_number_is_used() -> None:
    limit = RequestLimit(hard=7, is_adaptive=False)
    assert limit.used == after(limit, 204, 204, 201).used == 7


@given(hard=st.integers(1, 100), statuses=st.lists(st.sampled_from([201, 204, 403, None])))
def test_the_limit_is_between_one_and_the_configured_number(hard: int, statuses: list[int | None]) -> None:
    limit = after(RequestLimit(hard=hard), *statuses)
    assert 1 <= limit.used <= hard
