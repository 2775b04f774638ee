"""Selects the scaling policy that applies at a time: the last one with a matching period, or else the default.

A policy without `idle_time` has the default time, not 0: immediate removal must be configured. Outside of all periods
no idle instances are wanted, and existing ones are removed after the default time."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo

import msgspec

from remuda.taskscaler.core.periods import Period, period, zone

DEFAULT_IDLE_SECONDS = 300.0
NO_POLICY = "no policy matches"


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True):
    """One policy section as configured, with the periods in which it applies."""

    periods: tuple[str, ...] = ("* * * * *",)
    timezone: str = ""
    idle_count: int = 0
    """Number of idle slots, not of instances."""
    idle_seconds: float | None = None
    """None: `DEFAULT_IDLE_SECONDS`."""
    scale_factor: float = 0.0
    scale_factor_limit: int = 0
    preemptive: bool | None = None
    """None: true if `idle_count` is above 0."""
    is_machine: bool = False
    """From a Docker Machine section: its periods may have seconds and years."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for idle instances that apply at a given time."""

    idle_count: int = 0
    idle_seconds: float = DEFAULT_IDLE_SECONDS
    scale_factor: float = 0.0
    scale_factor_limit: int = 0
    preemptive: bool = False
    """The manager requests a job only when a ready slot exists for it."""
    because: str = NO_POLICY
    """The period that matched, as text."""
    is_ending: bool = False
    """The fleet ends with its current jobs."""
    until: float | None = None
    """Another policy may apply from then on; None: never."""


def resolve(rules: Sequence[PolicyRule], now: float, *, local: tzinfo = UTC) -> Policy:
    """The policy at `now`. `local`: time zone of rules that name none. Raises PeriodError if a rule is invalid."""
    until = _changes_at(rules, now)
    for rule in reversed(rules):
        moment = datetime.fromtimestamp(now, zone(rule.timezone, local))
        for candidate in _periods(rule):
            if candidate.matches(moment):
                return Policy(
                    idle_count=max(rule.idle_count, 0),
                    idle_seconds=DEFAULT_IDLE_SECONDS if rule.idle_seconds is None else max(rule.idle_seconds, 0.0),
                    scale_factor=max(rule.scale_factor, 0.0),
                    scale_factor_limit=max(rule.scale_factor_limit, 0),
                    preemptive=rule.idle_count > 0 if rule.preemptive is None else rule.preemptive,
                    because=candidate.text,
                    until=until,
                )
    return Policy(until=until)


def policy_for_draining(policy: Policy, *, is_ending: bool = False) -> Policy:
    """The policy for a fleet that requests no more jobs: no idle slots. `is_ending`: no job will ever be requested
    again, so starting instances that no job waits for are removed at once."""
    because = f"{policy.because}; no more jobs are requested, so no idle slots are wanted"
    return msgspec.structs.replace(policy, idle_count=0, scale_factor=0.0, is_ending=is_ending, because=because)


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    policy: int
    """Index of the policy, from 0."""
    key: str
    """Name of the setting in `[[runners.autoscaler.policy]]`."""
    text: str


def mistakes(rules: Sequence[PolicyRule], *, has_demand: bool) -> list[Mistake]:
    """Find invalid periods and time zones, and settings that cannot work together. `has_demand`: the server reports how
    many jobs wait (GitLab does not)."""
    return [
        Mistake(policy=number, key=key, text=text)
        for number, rule in enumerate(rules)
        for key, text in _mistakes(rule, has_demand=has_demand)
    ]


def _mistakes(rule: PolicyRule, *, has_demand: bool) -> Iterator[tuple[str, str]]:
    for line in rule.periods:
        try:
            period(line, machine=rule.is_machine)
        except ValueError as error:
            yield "periods", str(error)
    try:
        zone(rule.timezone)
    except ValueError as error:
        yield "timezone", str(error)
    if rule.preemptive and rule.idle_count <= 0 and not has_demand:
        yield (
            "preemptive_mode",
            "preemptive_mode without an idle_count never takes a job: no job is requested without a ready instance, "
            "and no instance is created without a job. Set idle_count, or remove preemptive_mode",
        )
    if 0 < rule.scale_factor_limit < rule.idle_count and rule.scale_factor > 0:
        yield (
            "scale_factor_limit",
            f"scale_factor_limit {rule.scale_factor_limit} is below idle_count {rule.idle_count}, so scale_factor has "
            "no effect; raise the limit",
        )


def _periods(rule: PolicyRule) -> list[Period]:
    return [period(line, machine=rule.is_machine) for line in rule.periods]


def _changes_at(rules: Sequence[PolicyRule], now: float) -> float | None:
    periods = [parsed for rule in rules for parsed in _periods(rule)]
    if all(parsed.is_always for parsed in periods):
        return None
    step = 1 if any(parsed.is_by_the_second for parsed in periods) else 60
    return (now // step + 1) * step
