"""A job from start to end, and every answer to the first word about it."""

import asyncio

import pytest
from tests.support.runners.strict_gitlab import CUT, Planned, StrictGitLab, answer
from tests.support.runners.strict_playbook import LOG, Playbook

from remuda.testing.waiting import until


async def test_a_job_from_start_to_end(book: Playbook, gitlab: StrictGitLab) -> None:
    async with book.manager():
        job = await gitlab.enqueue("true")
        await book.play(job)
    assert (job.status, bytes(job.trace)) == ("success", LOG)
    assert [update["state"] for update in job.updates] == ["running", "success"]


async def test_a_failure_has_its_reason_and_exit_code(book: Playbook, gitlab: StrictGitLab) -> None:
    async with book.manager():
        job = await gitlab.enqueue("false")
        await book.play(job, status="failed", reason="script_failure", exit_code=3)
    assert job.updates[-1]["failure_reason"] == "script_failure"
    assert job.updates[-1]["exit_code"] == 3


async def test_a_reason_that_the_server_does_not_know_is_told_by_another(book: Playbook, gitlab: StrictGitLab) -> None:
    async with book.manager():
        job = await gitlab.enqueue("false")
        await book.play(job, status="failed", reason="image_pull_failure")
    assert job.updates[-1]["failure_reason"] == "runner_system_failure"


class TestAcceptance:
    @pytest.mark.parametrize(
        "planned",
        [answer(500), answer(503, Retry_After="1"), answer(429), answer(418), answer(500, takes=True), CUT],
        ids=lambda planned: str(planned.status),
    )
    async def test_what_is_no_answer_is_asked_again(
        self, book: Playbook, gitlab: StrictGitLab, planned: Planned
    ) -> None:
        gitlab.plan("update", planned)
        async with book.manager():
            job = await gitlab.enqueue("true")
            await book.play(job)
        assert job.status == "success"

    @pytest.mark.parametrize("status", [202, 400, 409])
    async def test_what_is_no_refusal_lets_the_job_run(self, book: Playbook, gitlab: StrictGitLab, status: int) -> None:
        gitlab.plan("update", answer(status))
        async with book.manager():
            job = await gitlab.enqueue("true")
            await book.play(job)
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
    async def test_a_job_that_is_refused_never_starts(
        self, book: Playbook, gitlab: StrictGitLab, planned: Planned
    ) -> None:
        async with book.manager():
            gitlab.plan("update", planned)
            refused = await gitlab.enqueue("true")
            await book.until_closed(refused)
            job = await gitlab.enqueue("true")
            await book.play(job)
        assert [key.partition("-")[0] for key in book.environment.agent.closed] == [str(job.id)]
        assert refused.trace == b""

    async def test_one_that_is_being_canceled_fails_without_a_start(self, book: Playbook, gitlab: StrictGitLab) -> None:
        async with book.manager():
            gitlab.plan("update", answer(200, Job_Status="canceling"))
            job = await gitlab.enqueue("true")
            await book.until_closed(job)
        assert job.updates[-1]["state"] == "failed"
        assert job.updates[-1]["failure_reason"] == "unknown_failure"
        assert b"canceled before it started" in bytes(job.trace)
        assert book.environment.agent.closed == []


async def test_jobs_of_a_manager_that_is_told_to_end_go_on_and_their_server_hears_of_it(
    book: Playbook, gitlab: StrictGitLab
) -> None:
    """SIGQUIT: no request any more, and the running job comes to its end."""
    async with book.manager() as events:
        job = await gitlab.enqueue("true")
        key = await book.environment.agent.job()
        await gitlab.until(lambda: job.is_confirmed)
        events.drain.set()
        await asyncio.sleep(0)
        late = await gitlab.enqueue("true")
        await book.environment.agent.write(key, LOG)
        await book.environment.agent.end(key)
        await book.until_closed(job)
        await until(lambda: not book.environment.agent.jobs)
    assert (job.status, late.status) == ("success", "pending")
