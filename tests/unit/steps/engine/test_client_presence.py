"""The time limit for which a job waits for its client."""

from remuda.steps.engine.client_presence import ClientPresence


def test_a_job_waits_for_its_client_until_the_limit() -> None:
    presence = ClientPresence(60, now=1000.0)
    assert presence.has_patience
    assert not presence.is_expired(1059.0)
    assert presence.is_expired(1060.0)


def test_a_job_does_not_expire_while_a_client_is_connected() -> None:
    presence, client = ClientPresence(60, now=1000.0), object()
    presence.attach(client)
    assert not presence.is_expired(9000.0)
    presence.detach(client, 9000.0)
    assert not presence.is_expired(9059.0)
    assert presence.is_expired(9060.0)


def test_the_end_of_an_old_connection_does_not_detach_the_new_one() -> None:
    presence, old, new = ClientPresence(60, now=0.0), object(), object()
    presence.attach(old)
    presence.attach(new)
    presence.detach(old, 10.0)
    assert not presence.is_expired(1e6)


def test_without_a_limit_a_job_never_expires() -> None:
    presence = ClientPresence(0, now=0.0)
    assert not presence.has_patience
    assert not presence.is_expired(1e9)
