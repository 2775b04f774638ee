"""Every answer to a request for a job, and that the job comes in the end."""

import pytest
from tests.support.runners.strict_gitlab import CUT, SILENCE, Planned, StrictGitLab, StrictJob, answer
from tests.support.runners.strict_playbook import Expected, Playbook

from remuda.wire import runner_client


class TestRequests:
    @pytest.mark.parametrize(
        "planned",
        [
            answer(204),
            answer(204, X_GitLab_Last_Update="another"),
            answer(400),
            answer(401),
            answer(403),
            answer(404),
            answer(405),
            answer(408),
            answer(409),
            answer(410),
            answer(413),
            answer(422),
            answer(429, Retry_After="1"),
            answer(429, Retry_After="soon"),
            answer(500),
            answer(501),
            answer(502, b"<html>bad gateway</html>", Content_Type="text/html"),
            answer(503, Retry_After="1"),
            answer(504),
            answer(520),
            answer(200, b"{}", Content_Type="application/json"),
            answer(201, b"{}", Content_Type="application/json"),
            answer(201, b"[1, 2", Content_Type="application/json"),
            answer(201, b'{"id": 1, "token": "x"}', Content_Type="text/html"),
            answer(301, Location="/elsewhere"),
            answer(307, Location="http://127.0.0.2:1/api/v4/jobs/request"),
            CUT,
        ],
        ids=lambda planned: f"{planned.status}{planned.headers.get('Retry-After', '')}{planned.body[:9].decode()}",
    )
    async def test_whatever_the_answer_is_the_job_comes_in_the_end(
        self, book: Playbook, gitlab: StrictGitLab, planned: Planned
    ) -> None:
        job = await gitlab.enqueue("true")
        gitlab.plan("request", planned)
        if planned.body == b'{"id": 1, "token": "x"}':
            gitlab.jobs[1] = StrictJob(id=1, payload=job.payload, status="canceled")
            gitlab.plan("update", answer(403))
            gitlab.violations = Expected(gitlab.violations, "token 'x'")  # it is refused with the token that came
        async with book.manager():
            await book.play(job)
        assert gitlab.statuses["request"][0] == planned.status
        assert job.status == "success"

    async def test_a_redirect_on_the_same_server_is_followed_with_the_body(
        self, book: Playbook, gitlab: StrictGitLab
    ) -> None:
        gitlab.plan("request", answer(307, Location="/api/v4/jobs/request"))
        gitlab.plan("update", answer(308, Location=f"{gitlab.url}/api/v4/jobs/501"))
        async with book.manager():
            job = await gitlab.enqueue("true")
            await book.play(job)
        assert job.status == "success"

    async def test_a_server_that_says_nothing_is_given_up_and_asked_again(
        self, book: Playbook, gitlab: StrictGitLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runner_client, "POLL_TIMEOUT_SECONDS", 0.2)
        gitlab.plan("request", SILENCE)
        job = await gitlab.enqueue("true")
        async with book.manager():
            await book.play(job)
        assert gitlab.statuses["request"][:2] == [0, 201]

    async def test_refusals_one_after_the_other_are_no_hours_silence(
        self, book: Playbook, gitlab: StrictGitLab
    ) -> None:
        gitlab.plan("request", answer(403), answer(403), answer(403))
        async with book.manager():
            job = await gitlab.enqueue("true")
            await book.play(job)
        assert gitlab.statuses["request"][:3] == [403, 403, 403]

    async def test_the_cursor_is_that_of_the_last_answer_of_any_kind(
        self, book: Playbook, gitlab: StrictGitLab
    ) -> None:
        async with book.manager():
            job = await gitlab.enqueue("true")
            gitlab.plan("update", answer(200, X_GitLab_Last_Update="fresh"))
            await book.play(job)
            await gitlab.until(lambda: len(gitlab.statuses["request"]) >= 1)
