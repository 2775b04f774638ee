"""The time until a runner requests the next job."""

from remuda.manager.core.poll_pace import LONGEST_WAIT_SECONDS, Health, Pace


def test_the_next_request_follows_a_job_at_once_unless_the_interval_is_strict() -> None:
    assert Pace(check_interval_seconds=3).after(201, took_seconds=0.1)[1] == 0
    assert Pace(check_interval_seconds=3, strict=True).after(201, took_seconds=1)[1] == 2


def test_a_held_answer_is_followed_at_once() -> None:
    assert Pace(check_interval_seconds=3).after(204, took_seconds=50)[1] == 0


def test_the_first_quick_answer_is_followed_at_once_and_later_ones_after_the_interval() -> None:
    pace, wait = Pace(check_interval_seconds=3).after(204, took_seconds=0.01)
    assert wait == 0
    pace, wait = pace.after(204, took_seconds=0.5)
    assert wait == 2.5
    pace, wait = pace.after(204, took_seconds=50)
    assert (wait, pace.quick) == (0, 0)


def test_a_request_that_may_not_be_held_is_repeated_after_the_interval() -> None:
    assert Pace(check_interval_seconds=3).after(204, took_seconds=0, may_hold=False)[1] == 3


def test_waits_after_refusals_grow_up_to_a_minute() -> None:
    pace, waits = Pace(check_interval_seconds=3), []
    for _ in range(10):
        pace, wait = pace.after(403, took_seconds=0)
        waits.append(wait)
    assert waits[:3] == [1, 2, 4]
    assert waits[-1] == 60
    pace, _ = pace.after(204, took_seconds=50)
    assert pace.refusals == 0


def test_waits_after_errors_grow() -> None:
    pace, first = Pace(check_interval_seconds=3).after(None, took_seconds=0)
    pace, second = pace.after(503, took_seconds=0)
    assert 0 < first < second
    assert pace.after(409, took_seconds=1)[1] == 2


def test_the_wait_that_a_server_requests_is_respected_up_to_a_maximum() -> None:
    pace = Pace(check_interval_seconds=3)
    assert pace.after(429, took_seconds=0, asked_seconds=60, jitter=0)[1] == 60
    assert 60 < pace.after(503, took_seconds=0, asked_seconds=60, jitter=0.5)[1] <= 66
    assert pace.after(403, took_seconds=0, asked_seconds=1e6, jitter=0)[1] == LONGEST_WAIT_SECONDS
    assert pace.after(503, took_seconds=0, asked_seconds=0)[1] > 0


def test_health_after_answers() -> None:
    pace = Pace(check_interval_seconds=3)
    assert pace.health is Health.WELL
    refused, _ = pace.after(403, took_seconds=0)
    assert refused.health is Health.REFUSED
    troubled, _ = refused.after(None, took_seconds=0)
    assert troubled.health is Health.TROUBLED
    assert troubled.after(204, took_seconds=0)[0].health is Health.WELL
    assert troubled.after(409, took_seconds=0)[0].health is Health.WELL
