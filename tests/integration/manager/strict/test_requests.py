"""The server's answers to a job request; the manager always gets the job in the end."""

import pytest
from tests.support.runners.strict_gitlab import CUT, NO_ANSWER, PlannedAnswer, StrictGitLab, StrictJob, answer
from tests.support.runners.strict_scenario import Scenario, ViolationsExcept

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
    async def test_job_after_any_answer(self, scenario: Scenario, gitlab: StrictGitLab, planned: PlannedAnswer) -> None:
        job = await gitlab.enqueue("true")
        gitlab.plan("request", planned)
        if planned.body == b'{"id": 1, "token": "x"}':
            gitlab.jobs[1] = StrictJob(id=1, payload=job.payload, status="canceled")
            gitlab.plan("update", answer(403))
            # The manager refuses the job with the token that it received.
            gitlab.violations = ViolationsExcept(gitlab.violations, "token 'x'")
        async with scenario.manager():
            await scenario.play(job)
        assert gitlab.statuses["request"][0] == planned.status
        assert job.status == "success"

    async def test_redirect_on_same_server_keeps_the_body(self, scenario: Scenario, gitlab: StrictGitLab) -> None:
        gitlab.plan("request", answer(307, Location="/api/v4/jobs/request"))
        gitlab.plan("update", answer(308, Location=f"{gitlab.url}/api/v4/jobs/501"))
        async with scenario.manager():
            job = await gitlab.enqueue("true")
            await scenario.play(job)
        assert job.status == "success"

    async def test_unanswered_request_is_repeated(self, scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runner_client, "POLL_TIMEOUT_SECONDS", 0.2)
        scenario.gitlab.plan("request", NO_ANSWER)
        job = await scenario.gitlab.enqueue("true")
        async with scenario.manager():
            await scenario.play(job)
        assert scenario.gitlab.statuses["request"][:2] == [0, 201]

    async def test_requests_continue_after_several_refusals(self, scenario: Scenario, gitlab: StrictGitLab) -> None:
        gitlab.plan("request", answer(403), answer(403), answer(403))
        async with scenario.manager():
            job = await gitlab.enqueue("true")
            await scenario.play(job)
        assert gitlab.statuses["request"][:3] == [403, 403, 403]

    async def test_the_cursor_is_that_of_the_last_answer(self, scenario: Scenario, gitlab: StrictGitLab) -> None:
        async with scenario.manager():
            job = await gitlab.enqueue("true")
            gitlab.plan("update", answer(200, X_GitLab_Last_Update="fresh"))
            await scenario.play(job)
            await gitlab.until(lambda: len(gitlab.statuses["request"]) >= 1)
