"""Every answer while a job runs, and to its end."""

from zlib import crc32

import pytest
from tests.support.runners.strict_gitlab import CUT, Planned, StrictGitLab, StrictJob, answer
from tests.support.runners.strict_playbook import LOG, Playbook


class TestKeepAlive:
    async def test_a_silent_job_is_heard_of_with_its_checksum(self, book: Playbook, gitlab: StrictGitLab) -> None:
        async with book.manager(keep_alive_seconds=0.1):
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            await book.environment.agent.write(key, LOG)
            await gitlab.until(lambda: len(job.updates) >= 4)
            await book.environment.agent.end(key)
            await book.until_closed(job)
        assert job.updates[-2]["output"] == {"checksum": f"crc32:{crc32(LOG):08x}", "bytesize": len(LOG)}

    @pytest.mark.parametrize("planned", [answer(202), answer(400), answer(409), answer(500), CUT], ids=str)
    async def test_an_odd_answer_does_not_hurt(self, book: Playbook, gitlab: StrictGitLab, planned: Planned) -> None:
        async with book.manager(keep_alive_seconds=0.1):
            job = await gitlab.enqueue("true")
            await book.environment.agent.job()
            await gitlab.until(lambda: job.updates)
            gitlab.plan("update", planned)
            await gitlab.until(lambda: len(gitlab.statuses["update"]) >= 4)
            await book.play(job)
        assert job.status == "success"

    @pytest.mark.parametrize("planned", [answer(403), answer(404), answer(200, Job_Status="failed")], ids=str)
    async def test_a_job_that_is_no_more_wanted_is_ended(
        self, book: Playbook, gitlab: StrictGitLab, planned: Planned
    ) -> None:
        async with book.manager(keep_alive_seconds=0.1):
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            await gitlab.until(lambda: job.updates)
            gitlab.plan("update", planned)
            await book.environment.agent.until(lambda: key in book.environment.agent.closed)
        assert job.is_closed

    @pytest.mark.parametrize("endpoint", ["update", "trace"])
    async def test_canceling_ends_the_steps_and_still_brings_log_and_end(
        self, book: Playbook, gitlab: StrictGitLab, endpoint: str
    ) -> None:
        async with book.manager(keep_alive_seconds=0.1 if endpoint == "update" else 30.0):
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            await gitlab.until(lambda: job.is_confirmed)
            job.status = "canceling"
            if endpoint == "trace":
                await book.environment.agent.write(key, LOG)
            await book.environment.agent.until(lambda: book.environment.agent.jobs[key].cancels)
            await book.environment.agent.write(key, b"after_script\n")
            await book.environment.agent.end(key, "cancelled", "job_canceled")
            await book.until_closed(job)
        assert job.status == "canceled"
        assert job.updates[-1]["failure_reason"] == "unknown_failure"
        assert bytes(job.trace).endswith(b"after_script\n")


class TestEnd:
    async def ended(self, book: Playbook, *planned: Planned) -> StrictJob:
        gitlab = book.gitlab
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            await book.environment.agent.write(key, LOG)
            await gitlab.until(lambda: len(job.trace) == len(LOG))
            gitlab.plan("update", *planned)
            await book.environment.agent.end(key)
            await book.until_closed(job)
            await book.environment.agent.until(lambda: key in book.environment.agent.closed)
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
            answer(500, takes=True),
            answer(503),
            CUT,
        ],
        ids=lambda planned: f"{planned.status}{'-taken' if planned.takes else ''}",
    )
    async def test_the_end_is_told_until_it_is_taken(self, book: Playbook, planned: Planned) -> None:
        job = await self.ended(book, planned)
        assert job.status == "success"
        assert bytes(job.trace) == LOG

    async def test_five_attempts_have_one_id_and_then_there_is_another_round(self, book: Playbook) -> None:
        job = await self.ended(book, *[answer(502)] * 5)
        assert job.status == "success"
        assert book.gitlab.statuses["update"] == [200, *[502] * 5, 200]

    async def test_a_log_that_did_not_add_up_goes_again_as_a_whole(self, book: Playbook) -> None:
        job = await self.ended(book, answer(412, X_GitLab_Trace_Update_Interval="1"))
        assert job.patches == [(0, len(LOG)), (0, len(LOG))]
        assert job.status == "success"

    @pytest.mark.parametrize(
        "planned",
        [answer(403), answer(404), answer(403, Job_Status="canceled"), answer(202, Job_Status="failed")],
        ids=["403", "404", "403 canceled", "202 failed"],
    )
    async def test_an_end_that_nobody_wants_is_the_end(self, book: Playbook, planned: Planned) -> None:
        job = await self.ended(book, planned)
        assert book.gitlab.statuses["update"] == [200, planned.status]
        assert job.is_closed
