"""How long a job waits for its client."""

from remuda.steps.engine.client_presence import ClientPresence


def test_a_job_waits_for_its_client_as_long_as_it_is_told_to() -> None:
    attention = ClientPresence(60, now=1000.0)
    assert attention.has_patience
    assert not attention.is_expired(1059.0)
    assert attention.is_expired(1060.0)


def test_a_client_that_is_there_may_take_its_time() -> None:
    attention, client = ClientPresence(60, now=1000.0), object()
    attention.attach(client)
    assert not attention.is_expired(9000.0)
    attention.detach(client, 9000.0)
    assert not attention.is_expired(9059.0)
    assert attention.is_expired(9060.0)


def test_an_old_connection_that_ends_late_takes_nothing_from_the_new_one() -> None:
    attention, old, new = ClientPresence(60, now=0.0), object(), object()
    attention.attach(old)
    attention.attach(new)
    attention.detach(old, 10.0)
    assert not attention.is_expired(1e6)


def test_without_a_limit_a_job_stays() -> None:
    attention = ClientPresence(0, now=0.0)
    assert not attention.has_patience
    assert not attention.is_expired(1e9)
