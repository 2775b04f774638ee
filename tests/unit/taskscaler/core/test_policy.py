"""Which policy applies at a given time."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from remuda.taskscaler.core.policy import DEFAULT_IDLE_SECONDS, PolicyRule, mistakes, resolve

ALWAYS = PolicyRule(idle_count=1)
OFFICE = PolicyRule(periods=("* 8-17 * * mon-fri",), timezone="Europe/Berlin", idle_count=10, idle_seconds=1800)
LUNCH = PolicyRule(periods=("* 12 * * *",), timezone="Europe/Berlin", idle_count=4, preemptive=False)


def moment(text: str, zone: str = "Europe/Berlin") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("text", "idle_count"),
    [
        ("2026-07-01T07:59:59", 1),
        ("2026-07-01T08:00:00", 10),
        ("2026-07-01T12:00:00", 4),
        ("2026-07-01T17:59:59", 10),
        ("2026-07-01T18:00:00", 1),
        ("2026-07-04T08:00:00", 1),
        ("2026-12-01T08:00:00", 10),  # winter time: the same hours by the clock on the wall
        ("2026-12-01T18:00:00", 1),
    ],
)
def test_the_last_policy_that_matches_wins(text: str, idle_count: int) -> None:
    assert resolve([ALWAYS, OFFICE, LUNCH], moment(text)).idle_count == idle_count


def test_a_rule_without_a_zone_is_by_local_time() -> None:
    rule = PolicyRule(periods=("* 8 * * *",), idle_count=3)
    now = moment("2026-07-01T08:30:00", "Asia/Tokyo")
    assert resolve([rule], now).idle_count == 0
    assert resolve([rule], now, local=ZoneInfo("Asia/Tokyo")).idle_count == 3


def test_defaults_for_missing_settings() -> None:
    none = resolve([], 0.0)
    assert (none.idle_count, none.idle_seconds, none.preemptive, none.until) == (0, DEFAULT_IDLE_SECONDS, False, None)
    assert resolve([ALWAYS], 0.0).idle_seconds == DEFAULT_IDLE_SECONDS
    assert resolve([PolicyRule(idle_seconds=0.0)], 0.0).idle_seconds == 0.0
    assert resolve([ALWAYS], 0.0).preemptive
    assert not resolve([PolicyRule()], 0.0).preemptive
    assert not resolve([LUNCH], moment("2026-07-01T12:00:00")).preemptive


def test_the_time_until_which_a_policy_applies() -> None:
    assert resolve([ALWAYS], 90.0).until is None
    assert resolve([ALWAYS, OFFICE], 90.0).until == 120.0
    assert resolve([ALWAYS, OFFICE], 120.0).until == 180.0
    by_the_second = PolicyRule(periods=("0-29 * * * * * *",), is_machine=True)
    assert resolve([by_the_second], 90.5).until == 91.0


def test_the_matching_period_is_named() -> None:
    assert resolve([ALWAYS, OFFICE], moment("2026-07-01T08:00:00")).because == "* 8-17 * * mon-fri"
    assert resolve([OFFICE], moment("2026-07-04T08:00:00")).because == "no policy matches"


def test_mistakes() -> None:
    assert mistakes([ALWAYS, OFFICE, LUNCH], has_demand=False) == []
    result = mistakes(
        [
            PolicyRule(periods=("* 25 * * *", "nonsense"), timezone="Mars/Phobos"),
            PolicyRule(preemptive=True),
            PolicyRule(idle_count=5, scale_factor=1.0, scale_factor_limit=2),
        ],
        has_demand=False,
    )
    assert [(mistake.policy, mistake.key) for mistake in result] == [
        (0, "periods"),
        (0, "periods"),
        (0, "timezone"),
        (1, "preemptive_mode"),
        (2, "scale_factor_limit"),
    ]
    assert "never takes a job" in result[3].text
    assert "scale_factor_limit 2 is below idle_count 5" in result[4].text


def test_with_demand_from_the_server_preemptive_mode_needs_no_idle_instances() -> None:
    assert mistakes([PolicyRule(preemptive=True)], has_demand=True) == []
