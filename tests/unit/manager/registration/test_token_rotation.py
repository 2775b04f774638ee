"""The time at which a runner's token is renewed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from remuda.manager.config.values import RunnerConfig
from remuda.manager.registration.token_rotation import FLAG, due_at

OBTAINED = datetime(2026, 1, 1, tzinfo=UTC)
EXPIRES = OBTAINED + timedelta(days=40)
NEVER = datetime(1, 1, 1, tzinfo=UTC)


def due_date(obtained: Any, expires: Any, **flags: bool) -> datetime | None:
    timestamp = due_at(RunnerConfig(token_obtained_at=obtained, token_expires_at=expires, feature_flags=flags))
    return None if timestamp is None else datetime.fromtimestamp(timestamp, UTC)


def test_a_token_is_renewed_after_three_quarters_of_its_lifetime() -> None:
    assert due_date(OBTAINED, EXPIRES) == OBTAINED + timedelta(days=30)
    assert due_date("2026-01-01T00:00:00Z", "2026-02-10T00:00:00Z") == OBTAINED + timedelta(days=30)
    assert due_date(OBTAINED.replace(tzinfo=None), EXPIRES.replace(tzinfo=None)) == OBTAINED + timedelta(days=30)


@pytest.mark.parametrize("expires", [NEVER, "", "0001-01-01T00:00:00Z", "soon", 5])
def test_a_token_without_an_expiry_is_not_renewed(expires: Any) -> None:
    assert due_date(OBTAINED, expires) is None


@pytest.mark.parametrize("obtained", [NEVER, "", EXPIRES + timedelta(days=1)])
def test_a_token_of_unknown_age_is_renewed_a_day_before_it_expires(obtained: Any) -> None:
    assert due_date(obtained, EXPIRES) == EXPIRES - timedelta(days=1)


def test_a_feature_flag_disables_the_renewal() -> None:
    assert due_date(OBTAINED, EXPIRES, **{FLAG: True}) is None
    assert due_date(OBTAINED, EXPIRES, **{FLAG: False}) is not None
