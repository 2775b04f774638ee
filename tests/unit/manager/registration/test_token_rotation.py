"""When a runner's token is to be renewed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from remuda.manager.config.values import RunnerConfig
from remuda.manager.registration.token_rotation import FLAG, due_at

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
ENDS = BEGAN + timedelta(days=40)
NEVER = datetime(1, 1, 1, tzinfo=UTC)


def due(began: Any, ends: Any, **flags: bool) -> datetime | None:
    found = due_at(RunnerConfig(token_obtained_at=began, token_expires_at=ends, feature_flags=flags))
    return None if found is None else datetime.fromtimestamp(found, UTC)


def test_at_three_quarters_of_its_life() -> None:
    assert due(BEGAN, ENDS) == BEGAN + timedelta(days=30)
    assert due("2026-01-01T00:00:00Z", "2026-02-10T00:00:00Z") == BEGAN + timedelta(days=30)
    assert due(BEGAN.replace(tzinfo=None), ENDS.replace(tzinfo=None)) == BEGAN + timedelta(days=30)


@pytest.mark.parametrize("ends", [NEVER, "", "0001-01-01T00:00:00Z", "soon", 5])
def test_a_token_without_an_end_is_left_alone(ends: Any) -> None:
    assert due(BEGAN, ends) is None


@pytest.mark.parametrize("began", [NEVER, "", ENDS + timedelta(days=1)])
def test_a_token_whose_begin_nobody_knows_is_renewed_a_day_before_its_end(began: Any) -> None:
    assert due(began, ENDS) == ENDS - timedelta(days=1)


def test_a_flag_switches_it_off() -> None:
    assert due(BEGAN, ENDS, **{FLAG: True}) is None
    assert due(BEGAN, ENDS, **{FLAG: False}) is not None
