"""Every answer to the files of a job; a real agent makes these calls."""

import re

import pytest
from tests.support.runners.strict_gitlab import CUT, Planned, StrictGitLab, StrictJob, answer
from tests.support.runners.strict_playbook import Playbook


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
