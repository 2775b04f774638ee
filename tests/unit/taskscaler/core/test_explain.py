"""The text that explains a plan."""

import re
from pathlib import Path
from string import Formatter

import pytest

from remuda.taskscaler.core.decisions import Because, Reason
from remuda.taskscaler.core.explain import _WORDS, describe, explain
from remuda.taskscaler.core.plan import plan
from remuda.taskscaler.core.policy import Policy
from remuda.taskscaler.core.values import Fleet, Group, Instance, InstanceState, Limits, Request
from remuda.testing.fleets import START, a_demand

PAGE = Path(__file__).parents[4] / "docs/reference/scaling.md"


def test_a_whole_plan() -> None:
    spot = Group(name="spot", limits=Limits(max_instances=3, capacity_per_instance=2))
    dear = Group(name="dear", limits=Limits(throttle_limit=1, throttle_burst=1, capacity_per_instance=2))
    instances = (
        Instance(id="i-1", group="spot", slots_used=2, uses=2),
        Instance(id="i-2", group="spot", state=InstanceState.LOST, slots_used=1),
        Instance(id="i-3", group="spot", state=InstanceState.DRAINING, uses=8),
        Instance(id="i-4", group="dear", slots_used=1, uses=1, failures=3),
    )
    fleet = Fleet(groups=(spot, dear), instances=instances, reserved=4)
    policy = Policy(idle_count=2, idle_seconds=600.0, because="* 8-18 * * mon-fri", until=START + 42.0)
    result = plan(fleet, a_demand(waiting=3, ready=2, running=3), policy, START)
    assert explain(result, now=START) == (
        "Policy: * 8-18 * * mon-fri\n"
        "Wanted: 3 in use + 3 waiting + 2 ready + 0 soon + 2 idle = 10 slots\n"
        "There: 3 in use + 0 free + 0 coming = 3 slots, by 3 instances\n"
        "Missing: 7; ready and not wanted: 0\n"
        "Create 1 instance in spot, slots: 2 for jobs that wait here\n"
        "Create 1 instance in dear, slots: 1 for jobs that wait here, 1 for jobs that wait at the server\n"
        "Remove i-3: was drained, and its jobs have ended\n"
        "Drain i-4: 3 failed health checks or bad reports of jobs in a row; jobs on it: 1\n"
        "Forget i-2: is gone, and this manager did not remove it; jobs on it: 1\n"
        "Cannot create 3 instances in spot: max_instances is 3\n"
        "Cannot create 2 instances in dear: the rate limit is 1 per second\n"
        "Wanted most by: linux (5)\n"
        "Requests for jobs may reserve any number of slots, and reserve 4\n"
        "The plan may change by itself in 1s at the earliest\n"
    )


def test_nothing_to_do() -> None:
    text = explain(plan(Fleet(), a_demand(), Policy(), START), now=START)
    assert "Nothing to do\n" in text
    assert "no policy matches" in text


def test_only_some_of_many_instances_are_named() -> None:
    fleet = Fleet(instances=tuple(Instance(id=f"i-{number:02}", idle_since=0.0) for number in range(30)))
    text = explain(plan(fleet, a_demand(), Policy(), START), now=START)
    assert text.count("Remove i-") == 10
    assert "Remove 20 more\n" in text


def test_undelivered_requests() -> None:
    fleet = Fleet(requests=(Request(count=2, asked_at=START - 700.0),))
    text = explain(plan(fleet, a_demand(), Policy(), START), now=START)
    assert "Forget 2 requested instances: requested 11m40s ago, and never listed by the group\n" in text


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_text_and_a_row_in_the_documentation(reason: Reason) -> None:
    names = {name for _, name, _, _ in Formatter().parse(_WORDS[reason]) if name}
    text = describe(Because(reason=reason, numbers=dict.fromkeys(names, 3)))
    assert text
    assert "{" not in text
    row = re.search(rf"^\| `{reason}` \|.*$", PAGE.read_text(), re.MULTILINE)
    assert row is not None, f"{PAGE.name} has no row for {reason}"
    assert set(re.findall(r"`(\w+)`", row[0].split("|")[3])) == names
