"""The server's answers to uploads and downloads of artifacts by a real agent."""

import re

import pytest
from tests.support.runners.strict_gitlab import CUT, PlannedAnswer, StrictGitLab, StrictJob, answer
from tests.support.runners.strict_scenario import Scenario


class TestArtifacts:
    async def run_job(self, scenario: Scenario, *planned: PlannedAnswer) -> StrictJob:
        gitlab = scenario.gitlab
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
        async with scenario.harness.manager():
            job = await gitlab.enqueue("echo content > file", artifacts=artifacts)
            await scenario.until_closed(job)
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
    async def test_artifacts_are_uploaded(self, scenario: Scenario, planned: list[PlannedAnswer]) -> None:
        job = await self.run_job(scenario, *planned)
        assert job.status == "success", bytes(job.trace).decode()
        query, name, content = job.files[-1]
        assert query["artifact_type"] == "archive"
        assert name == "things.zip"
        assert content.startswith(b"PK")

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
    async def test_a_refused_upload_fails_the_job(self, scenario: Scenario, status: int) -> None:
        job = await self.run_job(scenario, answer(status, b'{"message": "because"}', Content_Type="application/json"))
        assert (job.status, job.files) == ("failed", [])
        assert re.search(rb"because|too large for this server", bytes(job.trace))

    async def test_the_next_job_downloads_them(self, scenario: Scenario, gitlab: StrictGitLab) -> None:
        first = await self.run_job(scenario)
        dependency = {
            "id": first.id,
            "name": "first",
            "token": first.token,
            "artifacts_file": {"filename": "things.zip", "size": 1},
        }
        gitlab.plan("download", answer(500))
        async with scenario.harness.manager():
            job = await gitlab.enqueue("cat file", dependencies=[dependency])
            await scenario.until_closed(job)
        assert job.status == "success", bytes(job.trace).decode()
        assert b"content" in bytes(job.trace)
