"""The server's answers to keep-alives and to the final update of a job."""

from zlib import crc32

import pytest
from tests.support.runners.strict_gitlab import CUT, PlannedAnswer, StrictGitLab, StrictJob, answer
from tests.support.runners.strict_scenario import LOG, Scenario


class TestKeepAlive:
    async def test_keep_alive_of_a_silent_job_has_its_checksum(self, scenario: Scenario, gitlab: StrictGitLab) -> None:
        async with scenario.manager(keep_alive_seconds=0.1):
            job = await gitlab.enqueue("true")
            key = await scenario.environment.agent.job()
            await scenario.environment.agent.write(key, LOG)
            await gitlab.until(lambda: len(job.updates) >= 4)
            await scenario.environment.agent.end(key)
            await scenario.until_closed(job)
        assert job.updates[-2]["output"] == {"checksum": f"crc32:{crc32(LOG):08x}", "bytesize": len(LOG)}

    @pytest.mark.parametrize("planned", [answer(202), answer(400), answer(409), answer(500), CUT], ids=str)
    async def test_job_survives_answers(self, scenario: Scenario, gitlab: StrictGitLab, planned: PlannedAnswer) -> None:
        async with scenario.manager(keep_alive_seconds=0.1):
            job = await gitlab.enqueue("true")
            await scenario.environment.agent.job()
            await gitlab.until(lambda: job.updates)
            gitlab.plan("update", planned)
            await gitlab.until(lambda: len(gitlab.statuses["update"]) >= 4)
            await scenario.play(job)
        assert job.status == "success"

    @pytest.mark.parametrize("planned", [answer(403), answer(404), answer(200, Job_Status="failed")], ids=str)
    async def test_aborted_job_closes(self, scenario: Scenario, gitlab: StrictGitLab, planned: PlannedAnswer) -> None:
        async with scenario.manager(keep_alive_seconds=0.1):
            job = await gitlab.enqueue("true")
            key = await scenario.environment.agent.job()
            await gitlab.until(lambda: job.updates)
            gitlab.plan("update", planned)
            await scenario.environment.agent.until(lambda: key in scenario.environment.agent.closed)
        assert job.is_closed

    @pytest.mark.parametrize("endpoint", ["update", "trace"])
    async def test_canceled_job_still_sends_its_log_and_final_state(self, scenario: Scenario, endpoint: str) -> None:
        async with scenario.manager(keep_alive_seconds=0.1 if endpoint == "update" else 30.0):
            job = await scenario.gitlab.enqueue("true")
            key = await scenario.environment.agent.job()
            await scenario.gitlab.until(lambda: job.is_confirmed)
            job.status = "canceling"
            if endpoint == "trace":
                await scenario.environment.agent.write(key, LOG)
            await scenario.environment.agent.until(lambda: scenario.environment.agent.jobs[key].cancels)
            await scenario.environment.agent.write(key, b"after_script\n")
            await scenario.environment.agent.end(key, "cancelled", "job_canceled")
            await scenario.until_closed(job)
        assert job.status == "canceled"
        assert job.updates[-1]["failure_reason"] == "unknown_failure"
        assert bytes(job.trace).endswith(b"after_script\n")


class TestEnd:
    async def end_job(self, scenario: Scenario, *planned: PlannedAnswer) -> StrictJob:
        gitlab = scenario.gitlab
        async with scenario.manager():
            job = await gitlab.enqueue("true")
            key = await scenario.environment.agent.job()
            await scenario.environment.agent.write(key, LOG)
            await gitlab.until(lambda: len(job.trace) == len(LOG))
            gitlab.plan("update", *planned)
            await scenario.environment.agent.end(key)
            await scenario.until_closed(job)
            await scenario.environment.agent.until(lambda: key in scenario.environment.agent.closed)
        return job

    @pytest.mark.parametrize(
        "planned",
        [
            answer(202, X_GitLab_Trace_Update_Interval="1"),
            answer(400),
            answer(409),
            answer(422),
            answer(429, Retry_After="1"),
            answer(500),
            answer(500, processed=True),
            answer(503),
            CUT,
        ],
        ids=lambda planned: f"{planned.status}{'-taken' if planned.processed else ''}",
    )
    async def test_final_state_is_sent_until_it_is_accepted(self, scenario: Scenario, planned: PlannedAnswer) -> None:
        job = await self.end_job(scenario, planned)
        assert job.status == "success"
        assert bytes(job.trace) == LOG

    async def test_the_final_state_is_sent_again_after_five_failed_attempts(self, scenario: Scenario) -> None:
        job = await self.end_job(scenario, *[answer(502)] * 5)
        assert job.status == "success"
        assert scenario.gitlab.statuses["update"] == [200, *[502] * 5, 200]

    async def test_a_log_with_a_wrong_checksum_is_sent_again(self, scenario: Scenario) -> None:
        job = await self.end_job(scenario, answer(412, X_GitLab_Trace_Update_Interval="1"))
        assert job.patches == [(0, len(LOG)), (0, len(LOG))]
        assert job.status == "success"

    @pytest.mark.parametrize(
        "planned",
        [answer(403), answer(404), answer(403, Job_Status="canceled"), answer(202, Job_Status="failed")],
        ids=["403", "404", "403 canceled", "202 failed"],
    )
    async def test_a_refused_final_state_is_not_repeated(self, scenario: Scenario, planned: PlannedAnswer) -> None:
        job = await self.end_job(scenario, planned)
        assert scenario.gitlab.statuses["update"] == [200, planned.status]
        assert job.is_closed
