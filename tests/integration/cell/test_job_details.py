"""Jobs in the Remuda API: why they wait or failed, priorities, times, step results, payloads and policies."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.people import add_member, create_group, create_group_project, create_person
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell

from remuda.cell.dispatch import step_results
from remuda.cell.http.gitlab import jobs as http_jobs
from remuda.cell.http.remuda import pipeline_progress
from remuda.cell.http.runner import results
from remuda.testing.waiting import wait_until

FILE = """
build:
  stage: build
  script: make
test:
  stage: test
  script: make test
gpu:
  stage: build
  tags: [gpu]
  script: make gpu
"""


def send(cell: ServedCell, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    """Send a request below /api/remuda/v1, by default as administrator."""
    return cell.send(method, f"/api/remuda/v1{path}", body, **({"PRIVATE_TOKEN": cell.token} | headers))


def jobs_of(cell: ServedCell) -> dict[str, int]:
    [pipeline] = cell.until_pipelines(1)
    rows = cell.api("GET", f"/projects/{pipeline['project_id']}/pipelines/{pipeline['id']}/jobs").json()
    return {job["name"]: job["id"] for job in rows}


@pytest.fixture
def jobs(cell: ServedCell) -> dict[str, int]:
    cell.new_project("app", FILE.replace("build:\n", "stages: [build, test]\nbuild:\n", 1))
    return jobs_of(cell)


class TestWhy:
    def test_what_the_runner_says_in_words_has_no_secrets(
        self, cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, int]
    ) -> None:
        project = cell.api("GET", "/projects").json()[0]["id"]
        variable = {"key": "PASSWORD", "value": "correct-horse-battery", "masked": True}
        assert cell.api("POST", f"/projects/{project}/variables", variable).status == 201
        job = runner.take()
        warning, message = "image correct-horse-battery\n ignored", "no engine at correct-horse-battery " + "x" * 5000
        assert runner.put(job, "running", remuda_warnings=[warning, *map(str, range(100))]).status == 200
        shown = cell.api("GET", f"/projects/{project}/jobs/{job['id']}").json()
        assert (shown["status"], shown["warnings"][:2]) == ("running", ["image [MASKED] ignored", "0"])
        assert len(shown["warnings"]) == 20
        runner.put(job, "failed", failure_reason="runner_configuration_error", remuda_message=message)
        shown = cell.api("GET", f"/projects/{project}/jobs/{job['id']}").json()
        assert shown["failure_message"].startswith("no engine at [MASKED] x")
        assert len(shown["failure_message"]) == 1000
        why = send(cell, "GET", f"/jobs/{job['id']}/why").json()
        assert (why["failure"]["message"], why["warnings"]) == (shown["failure_message"], shown["warnings"])

    def test_reasons_to_wait_and_to_fail(self, cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, int]) -> None:
        gpu = send(cell, "GET", f"/jobs/{jobs['gpu']}/why").json()
        assert gpu["advice"] == ["no runner has the tag gpu: register one or change the tags"]
        assert gpu["runners"]["others"] == [{"reason": "lacks the tags gpu", "count": 1}]
        build = send(cell, "GET", f"/jobs/{jobs['build']}/why").json()
        assert (build["status"], build["queue"]["ahead"]) == ("pending", 0)
        assert build["runners"]["never_seen"] == 1
        test = send(cell, "GET", f"/jobs/{jobs['test']}/why").json()
        assert {wait["job"]["name"] for wait in test["waits_for"] if wait["kind"] == "job"} == {"build", "gpu"}
        runner.put(runner.take(), "failed", failure_reason="script_failure", exit_code=3)
        failed = send(cell, "GET", f"/jobs/{jobs['build']}/why").json()
        assert failed["failure"] == {"reason": "script_failure", "fault": "user", "exit_code": 3}

    def test_missing_jobs_and_tokens(self, cell: ServedCell, jobs: dict[str, int]) -> None:
        assert send(cell, "GET", "/jobs/999/why").status == 404
        assert cell.send("GET", f"/api/remuda/v1/jobs/{jobs['build']}/why").status == 401

    def test_projects_that_the_user_cannot_see_are_not_named(self, cell: ServedCell) -> None:
        """Checks both projects of a trigger job: the upstream and the downstream one."""
        group = create_group(cell, "acme")
        below = create_group_project(cell, group, "below", "inner: {script: [echo]}\n")
        above = create_group_project(cell, group, "above", "hush: {trigger: {project: acme/below, strategy: depend}}\n")

        def newest(project: int, kind: str) -> dict[str, Any]:
            pipeline = cell.api("GET", f"/projects/{project}/pipelines").json()[0]["id"]
            rows: list[dict[str, Any]] = cell.api("GET", f"/projects/{project}/pipelines/{pipeline}/{kind}").json()
            return rows[0]

        wait_until(lambda: newest(above, "bridges")["downstream_pipeline"], "the trigger job starts a pipeline")
        hush, inner = newest(above, "bridges")["id"], newest(below, "jobs")["id"]
        up, down = create_person(cell, "up"), create_person(cell, "down")
        add_member(cell, f"projects/{above}", up, 20)
        add_member(cell, f"projects/{below}", down, 20)
        for path in (f"/jobs/{hush}/why", f"/jobs/{hush}"):
            assert b"acme/below" in send(cell, "GET", path).body
            response = send(cell, "GET", path, PRIVATE_TOKEN=up.token)
            assert (response.status, b"below" in response.body) == (200, False), path
        assert b"hush" in send(cell, "GET", f"/jobs/{inner}/why").body
        response = send(cell, "GET", f"/jobs/{inner}/why", PRIVATE_TOKEN=down.token)
        assert (response.status, b"hush" in response.body) == (200, False)


class TestPriority:
    def test_next_runner_gets_urgent_job(self, cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, int]) -> None:
        cell.api("PUT", "/runners/1", {"tag_list": ["gpu"]})
        answer = send(cell, "PUT", f"/jobs/{jobs['gpu']}", {"priority": 50})
        assert (answer.status, answer.json()["priority"]) == (200, 50)
        assert runner.take()["id"] == jobs["gpu"]
        refused = send(cell, "PUT", f"/jobs/{jobs['gpu']}", {"priority": 1})
        assert refused.status == 400
        assert "only a job that waits" in refused.json()["message"]

    @pytest.mark.parametrize("body", [{"priority": 101}, {"priority": "x"}, {}, {"priority": None}])
    def test_invalid_priorities(self, cell: ServedCell, jobs: dict[str, int], body: Any) -> None:
        assert send(cell, "PUT", f"/jobs/{jobs['build']}", body).status == 400

    def test_only_administrators_put_jobs_before_other_projects(self, cell: ServedCell, jobs: dict[str, int]) -> None:
        project = cell.api("GET", "/projects").json()[0]["id"]
        ada = create_person(cell, "ada")
        add_member(cell, f"projects/{project}", ada, 40)

        def put(priority: int) -> int:
            return send(cell, "PUT", f"/jobs/{jobs['build']}", {"priority": priority}, PRIVATE_TOKEN=ada.token).status

        assert [put(1), put(0), put(-1), put(0)] == [403, 200, 200, 200]
        assert cell.api("PUT", f"/projects/{project}", {"priority": 5}).status == 200
        assert [put(5), put(6)] == [200, 403]

    def test_of_a_project(self, cell: ServedCell) -> None:
        project = cell.new_project("app")
        assert cell.api("PUT", f"/projects/{project}", {"priority": 101}).status == 400
        assert cell.api("PUT", f"/projects/{project}", {"priority": -100}).status == 200

    def test_of_a_runner(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        assert cell.api("PUT", "/runners/1", {"priority": -7}).json()["priority"] == -7
        assert cell.api("GET", "/runners/1").json()["priority"] == -7
        assert cell.api("PUT", "/runners/1", {"priority": 101}).status == 400


def results_of(job: dict[str, Any], *steps: tuple[str, str, float, float]) -> list[dict[str, Any]]:
    began = datetime.now(UTC)
    return [
        {
            "version": 1,
            "seq": number,
            "event": "finished",
            "name": name,
            "path": f"/{name}",
            "reference": f"builtin://{package}@1",
            "origin": "compiled",
            "status": "success",
            "started_at": (began + timedelta(seconds=start)).isoformat(),
            "finished_at": (began + timedelta(seconds=start + took)).isoformat(),
        }
        for number, (name, package, start, took) in enumerate(steps, start=1)
    ]


class TestTimes:
    def test_by_steps(self, cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, int]) -> None:
        job = runner.take()
        results = results_of(
            job, ("get_sources", "checkout", 0, 1e-3), ("upload_artifacts", "artifacts_upload", 0, 1e-3)
        )
        send(cell, "POST", f"/jobs/{job['id']}/results", {"results": results}, JOB_TOKEN=job["token"])
        runner.put(job, "success")
        split = send(cell, "GET", f"/jobs/{job['id']}").json()["times"]["split"]
        assert split["source"] == "steps"
        assert sum(split["parts"].values()) == pytest.approx(split["total_seconds"], abs=1e-6)
        assert split["parts"]["clone"] > 0
        assert split["parts"]["script"] == 0

    def test_by_sections_of_a_long_log(self, cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, int]) -> None:
        job = runner.take()
        now = int(datetime.now(UTC).timestamp())
        log = (
            f"section_start:{now}:get_sources\r\x1b[0Kx\nsection_end:{now}:get_sources\r\x1b[0K\n"
            f"section_start:{now}:step_script\r\x1b[0K\n" + "y" * 1_500_000 + "\n"
            f"section_end:{now + 60}:step_script\r\x1b[0K\n"
        ).encode()
        for start in range(0, len(log), 1_000_000):
            runner.patch(job, start, log[start : start + 1_000_000])
        runner.put(job, "success")
        split = send(cell, "GET", f"/jobs/{job['id']}").json()["times"]["split"]
        assert split["source"] == "sections"
        assert split["parts"]["script"] > 0
        assert split["parts"]["clone"] == 0

    def test_without_steps_and_sections(self, cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, int]) -> None:
        job = runner.take()
        runner.put(job, "success")
        split = send(cell, "GET", f"/jobs/{job['id']}").json()["times"]["split"]
        assert (split["source"], list(split["parts"])) == ("times", ["waiting", "running"])


class TestResults:
    def test_in_pages_and_without_secrets(self, cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, int]) -> None:
        cell.api("POST", "/projects/1/variables", {"key": "P", "value": "hunter2-hunter2", "masked": True})
        job = runner.take()
        results: list[dict[str, Any]] = [
            {"seq": number, "event": "started", "name": f"s{number}"} for number in range(1, 8)
        ]
        results[2]["error"] = f"no hunter2-hunter2, no {job['token']}"
        results[3] |= {"outputs": {"long": "x" * 300_000}, "usage": {"cpu": 1}}
        path = f"/jobs/{job['id']}"
        assert send(cell, "POST", f"{path}/results", {"results": results}, JOB_TOKEN=job["token"]).status == 200
        first = send(cell, "GET", f"{path}/steps?limit=4").json()
        assert [result["seq"] for result in first["results"]] == [1, 2, 3, 4]
        assert first["results"][2]["error"] == "no [MASKED], no glcbt-[MASKED]"
        expected = {"seq": 4, "event": "started", "name": "s4", "usage": {"cpu": 1}}
        assert first["results"][3] == expected | {"cut": True, "left_out": ["outputs"]}
        rest = send(cell, "GET", f"{path}/steps?limit=4&after={first['next_after']}").json()
        assert [result["seq"] for result in rest["results"]] == [5, 6, 7]
        assert rest["next_after"] is None
        for wrong in ("x", "9" * 19):
            assert send(cell, "GET", f"{path}/steps?after={wrong}").status == 400
        assert send(cell, "GET", f"{path}/steps?limit=0").status == 200

    def test_limits(self, cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, int]) -> None:
        job = runner.take()
        path = f"/jobs/{job['id']}/results"
        many = send(cell, "POST", path, {"results": [{"seq": 50_001}]}, JOB_TOKEN=job["token"])
        assert many.status == 413
        deep = json.loads("[" * 300 + "]" * 300)
        nested = send(cell, "POST", path, {"results": [{"seq": 1, "outputs": deep}]}, JOB_TOKEN=job["token"])
        assert nested.status == 400


def test_results_above_the_size_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job goes on, and responses say that results are missing."""
    monkeypatch.setattr(step_results, "PAGE", 2)
    monkeypatch.setattr(pipeline_progress, "STEPS_BYTES", 150)
    monkeypatch.setattr(results, "PAGE_BYTES", 400)
    with ServedCell(tmp_path / "cell", results_total_limit_bytes=1000) as cell:
        cell.new_project("app", "build:\n  script: make\n")
        runner = cell.new_runner()
        job = runner.take()
        path = f"/jobs/{job['id']}"
        for number in range(1, 10):
            step = {"seq": number, "event": "finished", "name": "s", "outputs": {"text": "x" * 100}}
            answer = send(cell, "POST", f"{path}/results", {"results": [step]}, JOB_TOKEN=job["token"])
            assert (answer.status, answer.json()["next_seq"]) == (200, number + 1)
        assert runner.put(job, "success").status == 200
        stored: list[Any] = []
        after: int | None = 0
        while after is not None:
            page = send(cell, "GET", f"{path}/steps?after={after}").json()
            assert 0 < len(page["results"]) <= 3
            stored, after = stored + page["results"], page["next_after"]
        assert [step["event"] for step in stored[-2:]] == ["finished", "cut"]
        assert [step["seq"] for step in stored] == list(range(1, len(stored) + 1))
        assert "1000 bytes" in stored[-1]["note"]
        times = send(cell, "GET", path).json()["times"]
        assert (len(times["steps"]), times["note"]) == (len(stored) - 1, stored[-1]["note"])
        [pipeline] = cell.until_pipelines(1)
        job_progress = send(cell, "GET", f"/pipelines/{pipeline['id']}/progress?details=all").json()["jobs"][0]
        without_outputs = [{name: value for name, value in step.items() if name != "outputs"} for step in stored]
        assert job_progress["steps"] == without_outputs[: len(job_progress["steps"])]
        assert 0 < len(job_progress["steps"]) < len(stored)
        assert (
            job_progress["steps_note"] == f"not all steps fit into this answer: GET /api/remuda/v1{path}/steps has all"
        )


def test_times_are_read_from_a_limited_number_of_results(
    cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_jobs, "RESULTS", 3)
    job = runner.take()
    sent = [{"seq": number, "event": "finished", "name": f"s{number}"} for number in range(1, 5)]
    assert send(cell, "POST", f"/jobs/{job['id']}/results", {"results": sent}, JOB_TOKEN=job["token"]).status == 200
    times = send(cell, "GET", f"/jobs/{job['id']}").json()["times"]
    assert [step["name"] for step in times["steps"]] == ["s1", "s2", "s3"]
    assert times["note"] == "only the first 3 step events are counted"


class TestPayload:
    def test_without_secrets(self, cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, int]) -> None:
        cell.api("POST", "/projects/1/variables", {"key": "P", "value": "hunter2-hunter2", "masked": True})
        job = runner.take()
        response = send(cell, "GET", f"/jobs/{job['id']}/payload")
        assert response.status == 200
        assert "attachment" in response.headers["Content-Disposition"]
        assert job["token"].encode() not in response.body
        assert b"hunter2" not in response.body
        assert set(response.json()) == set(job)
        assert response.json()["features"] == job["features"]
        assert response.json()["steps"] == job["steps"]


class TestPolicies:
    def test_layers_and_versions_in_it(self, cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, int]) -> None:
        assert send(cell, "GET", "/policies/project/1").json() == {
            "scope": "project",
            "id": 1,
            "version": 0,
            "document": {},
            "updated_at": None,
        }
        put = send(cell, "PUT", "/policies/project/1", {"document": {"rules": [{"allow": "builtin"}]}})
        assert (put.status, put.json()["version"]) == (200, 1)
        organization = send(cell, "PUT", "/policies/organization/1", {"document": {"default": "deny"}, "version": 0})
        assert organization.status == 200
        late = send(cell, "PUT", "/policies/project/1", {"document": {}, "version": 0})
        assert late.status == 409
        layers = runner.take()["remuda"]["step_policy"]["layers"]
        assert [(layer["scope"], layer["version"]) for layer in layers] == [("organization", 1), ("project", 1)]

    @pytest.mark.parametrize(
        ("path", "status"),
        [
            ("/policies/project/99", 404),
            ("/policies/group/99", 404),
            ("/policies/organization/9", 404),
            ("/policies/galaxy/1", 400),
            ("/policies/project/x", 400),
        ],
    )
    def test_missing_scopes(self, cell: ServedCell, path: str, status: int) -> None:
        assert send(cell, "GET", path).status == status
        assert send(cell, "PUT", path, {"document": {}}).status == status

    @pytest.mark.parametrize("body", [{}, {"document": []}, {"document": "x"}, {"document": {"x": "y" * 70_000}}])
    def test_invalid_policies(self, cell: ServedCell, jobs: dict[str, int], body: Any) -> None:
        assert send(cell, "PUT", "/policies/project/1", body).status == 400

    def test_mistakes_in_a_policy_are_named(self, cell: ServedCell, jobs: dict[str, int]) -> None:
        refused = send(cell, "PUT", "/policies/project/1", {"document": {"ruels": []}})
        assert refused.status == 400
        assert b"policy of project 1: ruels: unknown key; did you mean rules?" in refused.body
