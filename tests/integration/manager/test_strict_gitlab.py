"""Every answer that a GitLab server may give, and what the manager does then, before a server that checks each request.

Each test is a playbook: jobs, answers in place of the usual ones, and what came of it. The server fails the test for
whatever the manager did that the Runner API does not allow, or for an answer that nobody came for.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from zlib import crc32

import pytest

from remuda.manager import polling
from remuda.manager.features import runner_info
from remuda.testing.agent_process import until
from remuda.testing.coordinator import Coordinator
from remuda.testing.environment import FakeEnvironment
from remuda.testing.manager_bench import ManagerBench, ManagerEvents
from remuda.testing.strict_gitlab import CUT, RUNNER_TOKEN, SILENCE, Planned, StrictGitLab, StrictJob, answer
from remuda.wire import runner_client

LOG = b"some bytes\n"


@pytest.fixture
async def gitlab() -> AsyncIterator[StrictGitLab]:
    features = runner_info(executor="shell").features
    assert features is not None
    async with StrictGitLab(features=features) as server:
        yield server
        server.check()


class Playbook:
    """A manager before the server; jobs are played by the test, or run by a real agent."""

    def __init__(self, folder: Path, gitlab: StrictGitLab, environment: FakeEnvironment) -> None:
        self.gitlab = gitlab
        self.environment = environment
        self.bench = ManagerBench(folder, Coordinator())
        self.bench.config.write_text(
            f'concurrent = 2\ncheck_interval = 0.2\n[[runners]]\nurl = "{gitlab.url}/"\n'
            f'token = "{RUNNER_TOKEN}"\nexecutor = "shell"\n'
        )

    @asynccontextmanager
    async def manager(self, *, keep_alive_seconds: float = 30.0) -> AsyncIterator[ManagerEvents]:
        async with self.bench.manager(self.environment, keep_alive_seconds=keep_alive_seconds) as events:
            yield events

    async def until_closed(self, job: StrictJob) -> None:
        await self.gitlab.until(lambda: job.is_closed)

    async def play(self, job: StrictJob, *, status: str = "success", reason: str = "", exit_code: int = 0) -> None:
        """The job writes its log and ends."""
        key = await self.environment.agent.job()
        await self.environment.agent.write(key, LOG)
        await self.environment.agent.end(key, status, reason, exit_code)
        await self.until_closed(job)


@pytest.fixture
async def book(tmp_path: Path, gitlab: StrictGitLab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Playbook]:
    monkeypatch.setattr(polling, "YOUNG_SECONDS", 0.1)  # else every drain takes two seconds
    environment = FakeEnvironment(tmp_path)
    playbook = Playbook(tmp_path, gitlab, environment)
    yield playbook
    await playbook.bench.close()
    await environment.remove()


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


class TestLogs:
    @pytest.mark.parametrize(
        "planned",
        [
            answer(400),
            answer(404),
            answer(409),
            answer(413),
            answer(429, Retry_After="1"),
            answer(500),
            answer(502),
            answer(503, takes=True),
            answer(504),
            CUT,
            Planned(takes=True),
        ],
        ids=lambda planned: f"{planned.status}{'-taken' if planned.takes else ''}",
    )
    async def test_a_piece_that_was_not_taken_goes_again(
        self, book: Playbook, gitlab: StrictGitLab, planned: Planned
    ) -> None:
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            gitlab.plan("trace", planned)
            await book.environment.agent.write(key, LOG)
            await gitlab.until(lambda: len(gitlab.statuses["trace"]) >= 2)
            await book.environment.agent.end(key)
            await book.until_closed(job)
        assert (job.status, bytes(job.trace)) == ("success", LOG)

    @pytest.mark.parametrize("place", ["0-4", "", "rubbish", "0-99"])
    async def test_the_server_says_where_it_stands(self, book: Playbook, gitlab: StrictGitLab, place: str) -> None:
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            await book.environment.agent.write(key, LOG)
            await gitlab.until(lambda: len(job.trace) == len(LOG))
            kept = int(place[2:]) if place == "0-4" else 0
            if place != "0-99":
                del job.trace[kept:]
            gitlab.plan("trace", answer(416, Range=place) if place else answer(416))
            if place == "0-99":
                gitlab.plan("trace", answer(416, Range=f"0-{len(LOG)}"))
            await book.environment.agent.write(key, b"x" * 200)
            await gitlab.until(lambda: len(job.trace) == len(LOG) + 200)
            await book.environment.agent.end(key)
            await book.until_closed(job)
        assert bytes(job.trace) == LOG + b"x" * 200

    async def test_a_log_is_sent_in_pieces_of_a_mebibyte_at_most(self, book: Playbook, gitlab: StrictGitLab) -> None:
        log = bytes(range(256)) * 10_000
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            await book.environment.agent.write(key, log)
            await book.environment.agent.end(key)
            await book.until_closed(job)
        assert bytes(job.trace) == log
        assert job.updates[-1]["output"] == {"checksum": f"crc32:{crc32(log):08x}", "bytesize": len(log)}

    async def test_pieces_get_smaller_for_a_server_that_takes_only_small_ones(
        self, book: Playbook, gitlab: StrictGitLab
    ) -> None:
        log = b"0123456789abcdef" * (1 << 16)
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            gitlab.plan("trace", answer(413), answer(413))
            await book.environment.agent.write(key, log)
            await book.environment.agent.end(key)
            await book.until_closed(job)
        assert bytes(job.trace) == log
        assert max(size for _, size in job.patches) == 1 << 18

    @pytest.mark.parametrize(
        "planned",
        [answer(403), answer(202, Job_Status="canceled"), answer(202, Job_Status="failed")],
        ids=["403", "canceled", "failed"],
    )
    async def test_a_job_that_is_no_more_wanted_is_ended_here_without_a_word(
        self, book: Playbook, gitlab: StrictGitLab, planned: Planned
    ) -> None:
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            gitlab.plan("trace", planned)
            await book.environment.agent.write(key, LOG)
            await book.environment.agent.until(lambda: key in book.environment.agent.closed)
        assert [update["state"] for update in job.updates] == ["running"]

    async def test_a_last_piece_for_a_job_that_is_gone_ends_the_log_not_the_job(
        self, book: Playbook, gitlab: StrictGitLab
    ) -> None:
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            gitlab.plan("trace", answer(404))
            gitlab.plan("update", *[])
            gitlab.violations = Expected(gitlab.violations, f"bytesize {len(LOG)}, the log has 0")
            book.environment.agent.jobs[key].log += LOG
            await book.environment.agent.end(key)
            await book.until_closed(job)
        assert job.updates[-1]["state"] == "success"

    async def test_the_server_says_how_often_it_wants_to_hear(self, book: Playbook, gitlab: StrictGitLab) -> None:
        """The server's own rule: a piece that comes before the interval is over is the last one, or a violation."""
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            for number in range(3):
                await book.environment.agent.write(key, LOG)
                size = len(LOG) * (number + 1)
                await gitlab.until(lambda size=size: len(job.trace) >= size)  # type: ignore[misc]
            gitlab.interval = "900"
            await book.environment.agent.write(key, LOG)
            await gitlab.until(lambda: len(job.trace) == 4 * len(LOG))
            await book.environment.agent.write(key, LOG)
            await book.environment.agent.end(key)
            await book.until_closed(job)
        assert len(job.patches) == 5


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


class TestArtifacts:
    """With a real agent, whose steps make these calls."""

    async def ran(self, book: Playbook, *planned: Planned) -> StrictJob:
        gitlab = book.gitlab
        gitlab.plan("upload", *planned)
        artifacts = [
            {
                "name": "things",
                "paths": ["file"],
                "when": "on_success",
                "expire_in": "1 day",
                "artifact_type": "archive",
                "artifact_format": "zip",
            }
        ]
        async with book.bench.manager():
            job = await gitlab.enqueue("echo content > file", artifacts=artifacts)
            await book.until_closed(job)
        return job

    @pytest.mark.parametrize(
        "planned",
        [
            [],
            [answer(503, Retry_After="1")],
            [answer(429)],
            [answer(500)],
            [answer(307, Location="/api/v4/jobs/501/artifacts?artifact_format=zip&artifact_type=archive")],
            [CUT],
        ],
        ids=["201", "503", "429", "500", "307", "cut"],
    )
    async def test_files_arrive(self, book: Playbook, planned: list[Planned]) -> None:
        job = await self.ran(book, *planned)
        assert job.status == "success", bytes(job.trace).decode()
        query, name, content = job.files[-1]
        assert query["artifact_type"] == "archive"
        assert name == "things.zip"
        assert content.startswith(b"PK")

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
    async def test_a_refusal_is_final_and_fails_the_job(self, book: Playbook, status: int) -> None:
        job = await self.ran(book, answer(status, b'{"message": "because"}', Content_Type="application/json"))
        assert (job.status, job.files) == ("failed", [])
        assert re.search(rb"because|too large for this server", bytes(job.trace))

    async def test_the_next_job_gets_them(self, book: Playbook, gitlab: StrictGitLab) -> None:
        first = await self.ran(book)
        dependency = {
            "id": first.id,
            "name": "first",
            "token": first.token,
            "artifacts_file": {"filename": "things.zip", "size": 1},
        }
        gitlab.plan("download", answer(500))
        async with book.bench.manager():
            job = await gitlab.enqueue("cat file", dependencies=[dependency])
            await book.until_closed(job)
        assert job.status == "success", bytes(job.trace).decode()
        assert b"content" in bytes(job.trace)


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


class Expected(list[str]):
    """Violations of which one is meant to be."""

    def __init__(self, found: list[str], meant: str) -> None:
        super().__init__(found)
        self._meant = meant

    def __iter__(self):  # type: ignore[no-untyped-def]
        return (text for text in super().__iter__() if self._meant not in text)
