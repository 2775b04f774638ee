"""A job from start to end, and the server's answers to the acknowledgement of a job."""

import asyncio

import pytest
from tests.support.runners.strict_gitlab import CUT, PlannedAnswer, StrictGitLab, answer
from tests.support.runners.strict_scenario import LOG, Scenario

from remuda.testing.waiting import until


async def test_a_job_from_start_to_end(scenario: Scenario, gitlab: StrictGitLab) -> None:
    async with scenario.manager():
        job = await gitlab.enqueue("true")
        await scenario.play(job)
    assert (job.status, bytes(job.trace)) == ("success", LOG)
    assert [update["state"] for update in job.updates] == ["running", "success"]


async def test_a_failure_has_its_reason_and_exit_code(scenario: Scenario, gitlab: StrictGitLab) -> None:
    async with scenario.manager():
        job = await gitlab.enqueue("false")
        await scenario.play(job, status="failed", reason="script_failure", exit_code=3)
    assert job.updates[-1]["failure_reason"] == "script_failure"
    assert job.updates[-1]["exit_code"] == 3


async def test_an_unknown_failure_reason_is_replaced(scenario: Scenario, gitlab: StrictGitLab) -> None:
    async with scenario.manager():
        job = await gitlab.enqueue("false")
        await scenario.play(job, status="failed", reason="image_pull_failure")
    assert job.updates[-1]["failure_reason"] == "runner_system_failure"


class TestAcceptance:
    @pytest.mark.parametrize(
        "planned",
        [answer(500), answer(503, Retry_After="1"), answer(429), answer(418), answer(500, processed=True), CUT],
        ids=lambda planned: str(planned.status),
    )
    async def test_acknowledgement_without_answer_is_repeated(self, scenario: Scenario, planned: PlannedAnswer) -> None:
        scenario.gitlab.plan("update", planned)
        async with scenario.manager():
            job = await scenario.gitlab.enqueue("true")
            await scenario.play(job)
        assert job.status == "success"

    @pytest.mark.parametrize("status", [202, 400, 409])
    async def test_job_runs_unless_it_is_refused(self, scenario: Scenario, gitlab: StrictGitLab, status: int) -> None:
        gitlab.plan("update", answer(status))
        async with scenario.manager():
            job = await gitlab.enqueue("true")
            await scenario.play(job)
        assert job.status == "success"
        assert gitlab.statuses["update"] == [status, 200]

    @pytest.mark.parametrize(
        "planned",
        [
            answer(403),
            answer(404),
            answer(403, Job_Status="failed"),
            answer(200, Job_Status="canceled"),
            answer(500, Job_Status="failed"),
        ],
        ids=["403", "404", "403 failed", "200 canceled", "500 failed"],
    )
    async def test_no_start_if_refused(self, scenario: Scenario, gitlab: StrictGitLab, planned: PlannedAnswer) -> None:
        async with scenario.manager():
            gitlab.plan("update", planned)
            refused = await gitlab.enqueue("true")
            await scenario.until_closed(refused)
            job = await gitlab.enqueue("true")
            await scenario.play(job)
        assert [key.partition("-")[0] for key in scenario.environment.agent.closed] == [str(job.id)]
        assert refused.trace == b""

    async def test_job_that_is_being_canceled_never_starts(self, scenario: Scenario, gitlab: StrictGitLab) -> None:
        async with scenario.manager():
            gitlab.plan("update", answer(200, Job_Status="canceling"))
            job = await gitlab.enqueue("true")
            await scenario.until_closed(job)
        assert job.updates[-1]["state"] == "failed"
        assert job.updates[-1]["failure_reason"] == "unknown_failure"
        assert b"canceled before it started" in bytes(job.trace)
        assert scenario.environment.agent.closed == []


async def test_a_draining_manager_finishes_its_jobs(scenario: Scenario, gitlab: StrictGitLab) -> None:
    """As after SIGQUIT: no more requests are sent, and the running job ends."""
    async with scenario.manager() as events:
        job = await gitlab.enqueue("true")
        key = await scenario.environment.agent.job()
        await gitlab.until(lambda: job.is_confirmed)
        events.drain.set()
        await asyncio.sleep(0)
        late = await gitlab.enqueue("true")
        await scenario.environment.agent.write(key, LOG)
        await scenario.environment.agent.end(key)
        await scenario.until_closed(job)
        await until(lambda: not scenario.environment.agent.jobs)
    assert (job.status, late.status) == ("success", "pending")
