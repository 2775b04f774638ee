"""How long a job waits for its client."""

from remuda.steps.engine.client_presence import Attention


def test_a_job_waits_for_its_client_as_long_as_it_is_told_to() -> None:
    attention = Attention(60, now=1000.0)
    assert attention.is_awaited
    assert not attention.is_hopeless(1059.0)
    assert attention.is_hopeless(1060.0)


def test_a_client_that_is_there_may_take_its_time() -> None:
    attention, client = Attention(60, now=1000.0), object()
    attention.given(client)
    assert not attention.is_hopeless(9000.0)
    attention.ended(client, 9000.0)
    assert not attention.is_hopeless(9059.0)
    assert attention.is_hopeless(9060.0)


def test_an_old_connection_that_ends_late_takes_nothing_from_the_new_one() -> None:
    attention, old, new = Attention(60, now=0.0), object(), object()
    attention.given(old)
    attention.given(new)
    attention.ended(old, 10.0)
    assert not attention.is_hopeless(1e6)


def test_without_a_limit_a_job_stays() -> None:
    attention = Attention(0, now=0.0)
    assert not attention.is_awaited
    assert not attention.is_hopeless(1e9)
