"""What the end of a job makes of its environment, and which job stops one."""

from typing import Any

import pytest
from msgspec.structs import replace

from remuda.cell.core.jobs.environments import after_job, ends_use, find_stop_job, is_valid_url, plan_environment
from remuda.cell.values.deployments import Environment
from remuda.cell.values.jobs import EnvironmentPlan
from remuda.model.job import JobState, ProjectId
from remuda.pipeline.spec import Environment as Keyword
from remuda.pipeline.syntax.variable_expansion import Expansion
from remuda.testing.builders import NOW, a_job


def an_environment(**changes: Any) -> Environment:
    values: dict[str, Any] = {
        "id": 1,
        "project_id": ProjectId(1),
        "name": "review/a",
        "slug": "review-a",
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Environment(**(values | changes))


def a_deploy_job(state: JobState = JobState.SUCCESS, action: str = "start", **plan: str) -> Any:
    return a_job(
        "deploy",
        state=state,
        finished_at=NOW + 10,
        environment="review/a",
        environment_action=action,
        environment_plan=EnvironmentPlan(**plan) if plan else None,
    )


def test_variables_that_are_unknown_stay_in_the_plan() -> None:
    expansion = Expansion({"HOST": "a"}, keep_unknown=True)
    keyword = Keyword(name="x", url="https://$HOST.$LATER", auto_stop_in="$DAYS", on_stop="stop")
    plan = plan_environment(keyword, expansion)
    assert plan == EnvironmentPlan(url="https://a.$LATER", auto_stop_in="$DAYS", on_stop="stop")
    assert plan_environment(Keyword(name="x"), expansion) is None


@pytest.mark.parametrize("state", ["available", "stopping", "stopped"])
def test_a_successful_deployment_makes_an_environment_available(state: str) -> None:
    job = a_deploy_job(url="https://$HOST/$CI_JOB_ID", tier="staging", auto_stop_in="2 hours")
    changed = after_job(an_environment(state=state), job, {"HOST": "a.example"})
    assert (changed.state, changed.external_url, changed.tier) == ("available", "https://a.example/1", "staging")
    assert changed.auto_stop_at == NOW + 10 + 7200
    again = after_job(replace(changed, state="stopped"), a_deploy_job(), {})
    assert (again.external_url, again.tier, again.auto_stop_at) == (
        changed.external_url,
        changed.tier,
        changed.auto_stop_at,
    )


@pytest.mark.parametrize(
    ("action", "state", "before", "after"),
    [
        ("start", JobState.FAILED, "stopped", "stopped"),
        ("stop", JobState.SUCCESS, "available", "stopped"),
        ("stop", JobState.SUCCESS, "stopping", "stopped"),
        ("stop", JobState.FAILED, "stopping", "available"),
        ("stop", JobState.CANCELED, "stopping", "available"),
        ("stop", JobState.FAILED, "stopped", "stopped"),
        ("prepare", JobState.SUCCESS, "stopped", "stopped"),
        ("verify", JobState.SUCCESS, "stopping", "stopping"),
        ("access", JobState.SUCCESS, "available", "available"),
    ],
)
def test_states(action: str, state: JobState, before: str, after: str) -> None:
    assert after_job(an_environment(state=before), a_deploy_job(state, action), {}).state == after


@pytest.mark.parametrize(("action", "renews"), [("prepare", True), ("access", True), ("verify", False)])
def test_actions_that_renew_the_time_of_the_stop(action: str, renews: bool) -> None:
    changed = after_job(an_environment(auto_stop_at=1.0), a_deploy_job(action=action, auto_stop_in="1 hour"), {})
    assert changed.auto_stop_at == (NOW + 10 + 3600 if renews else 1.0)


def test_a_stop_clears_the_time() -> None:
    assert after_job(an_environment(auto_stop_at=1.0), a_deploy_job(action="stop"), {}).auto_stop_at is None


@pytest.mark.parametrize(
    "url",
    [
        "$NOTHING",
        "javascript:alert(1)",
        "javascript://a/%0aalert(1)",
        "ftp://a",
        "https://",
        "https://a\n",
        f"https://a/{'x' * 300}",
    ],
)
def test_a_url_that_is_none_is_ignored(url: str) -> None:
    assert after_job(an_environment(external_url="https://old"), a_deploy_job(url=url), {}).external_url == (
        "https://a" if url == "https://a\n" else "https://old"
    )
    assert not is_valid_url(url)


def test_which_ends_change_an_environment() -> None:
    assert ends_use(a_deploy_job())
    assert not ends_use(a_job(state=JobState.SUCCESS))
    assert not ends_use(replace(a_deploy_job(), retried=True))
    assert not ends_use(a_deploy_job(JobState.SKIPPED))
    assert not ends_use(a_deploy_job(JobState.RUNNING))


@pytest.mark.parametrize(
    ("state", "can_start"),
    [
        (JobState.MANUAL, True),
        (JobState.SUCCESS, True),
        (JobState.FAILED, True),
        (JobState.RUNNING, True),
        (JobState.CREATED, False),
        (JobState.SKIPPED, False),
    ],
)
def test_the_job_that_stops(state: JobState, can_start: bool) -> None:
    stop = a_job("stop", state=state)
    assert find_stop_job(a_deploy_job(on_stop="stop"), [a_job(), stop]) == (stop if can_start else None)
    assert find_stop_job(a_deploy_job(on_stop="other"), [stop]) is None
    assert find_stop_job(a_deploy_job(), [stop]) is None
    assert find_stop_job(None, [stop]) is None
