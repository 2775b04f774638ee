"""Pipelines of every source with python-gitlab, and Remuda's own endpoint, which takes more parameters."""

from pathlib import Path
from typing import Any

import gitlab
import pytest
from gitlab.v4.objects import Project
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell
from tests.support.git_client import Clone

from remuda.testing.waiting import wait_until

PIPELINE = """
spec:
  inputs:
    size:
      default: small
---
workflow:
  name: Build of $CI_COMMIT_REF_NAME
stages: [build, test, deploy]
build:
  stage: build
  script: ["echo $[[ inputs.size ]]"]
test:
  stage: test
  needs: [build]
  script: [make test]
deploy:
  stage: deploy
  needs: [test]
  when: manual
  script: [make deploy]
later:
  stage: build
  when: delayed
  start_in: 1 day
  script: [make later]
"""


@pytest.fixture
def project(cell: ServedCell, client: gitlab.Gitlab) -> Project:
    return client.projects.get(cell.new_project("app", PIPELINE))


def commit(project: Project, branch: str, **files: str) -> str:
    actions = [{"action": "create", "file_path": path, "content": text} for path, text in files.items()]
    body = {"branch": branch, "start_branch": "main", "commit_message": f"Go on with {branch}", "actions": actions}
    return str(project.commits.create(body).id)


def cancel_all(project: Project) -> None:
    for pipeline in project.pipelines.list(get_all=True):
        pipeline.cancel()


class TestCreation:
    def test_with_all_parameters_of_gitlab(self, project: Project, runner: ScriptedRunner) -> None:
        cancel_all(project)
        pipeline = project.pipelines.create(
            {
                "ref": "refs/heads/main",
                "variables": [
                    {"key": "COLOUR", "value": "red"},
                    {"key": "NOTES", "value": "long", "variable_type": "file"},
                    {"key": "COUNT", "value": 3},
                ],
                "inputs": {"size": "large"},
            }
        )
        assert (pipeline.source, pipeline.ref, pipeline.tag, pipeline.name) == ("api", "main", False, "Build of main")
        assert pipeline.detailed_status["group"] == pipeline.status
        assert [
            (variable.key, variable.value, variable.variable_type) for variable in pipeline.variables.list(get_all=True)
        ] == [
            ("COLOUR", "red", "env_var"),
            ("NOTES", "long", "file"),
            ("COUNT", "3", "env_var"),
        ]
        job = runner.take()
        assert job["steps"][0]["script"] == ["echo large"]
        sent = {variable["key"]: variable for variable in job["variables"]}
        assert (sent["COLOUR"]["value"], sent["NOTES"]["file"]) == ("red", True)

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ({}, "ref is missing"),
            ({"ref": "refs/merge-requests/9/head"}, "Reference not found"),
            ({"ref": "main", "variables": [{"key": "A", "value": "1", "variable_type": "box"}]}, "variable_type"),
            ({"ref": "main", "variables": [{"key": "A-B", "value": "1"}]}, "letters, digits"),
            ({"ref": "main", "variables": [{"key": "A", "value": "\0"}]}, "NUL"),
            ({"ref": "main", "variables": [{"value": "1"}]}, "key"),
            ({"ref": "main", "inputs": {"siez": "large"}}, "size"),
        ],
    )
    def test_invalid_requests(self, cell: ServedCell, project: Project, body: dict[str, Any], reason: str) -> None:
        answer = cell.api("POST", f"/projects/{project.id}/pipeline", body)
        assert answer.status == 400
        assert reason in answer.body.decode()

    def test_for_a_merge_request(self, cell: ServedCell, project: Project, tmp_path: Path) -> None:
        request = project.mergerequests.get(7, lazy=True)
        with pytest.raises(gitlab.GitlabCreateError, match="404 Merge Request Not Found"):
            request.pipelines.create({})
        clone = Clone(tmp_path / "work")
        url = cell.url.replace("://", f"://oauth2:{cell.token}@")
        clone.run("init", "--quiet", "-b", "topic")
        sha = clone.commit(**{".gitlab-ci.yml": "a:\n  script: [x]\n  rules: [{if: $CI_MERGE_REQUEST_IID == '7'}]\n"})
        clone.run("push", f"{url}/root/app.git", "topic:refs/merge-requests/7/head")
        created = request.pipelines.create({})
        assert (created.source, created.sha, created.ref) == ("merge_request_event", sha, "refs/merge-requests/7/head")
        assert created.id in [pipeline.id for pipeline in request.pipelines.list(get_all=True)]


class TestLists:
    def test_filters(self, cell: ServedCell, project: Project) -> None:
        sha = commit(project, "topic", a="a")
        project.pipelines.create({"ref": "topic"}).cancel()
        nightly = project.pipelineschedules.create({"description": "n", "ref": "main", "cron": "@daily"})
        nightly.play()

        def ids(**filters: Any) -> list[int]:
            return [pipeline.id for pipeline in project.pipelines.list(get_all=True, **filters)]

        assert ids() == [4, 3, 2, 1]
        assert ids(sort="asc") == [1, 2, 3, 4]
        assert ids(ref="topic") == ids(sha=sha) == [3, 2]
        assert ids(source="push") == [2, 1]
        assert ids(source="schedule") == ids(scope="running", ref="main", source="schedule") == [4]
        assert ids(status="canceled") == ids(scope="finished") == [3]
        assert ids(scope="finished", status="running") == []
        assert ids(name="Build of topic") == [3, 2]
        assert ids(username="root") == [4, 3, 2, 1]
        assert ids(username="nobody") == []
        assert ids(scope="tags") == []
        assert ids(order_by="ref", sort="asc") == [1, 4, 2, 3]
        assert ids(updated_after="2000-01-01T00:00:00Z", created_before="2999-01-01") == [4, 3, 2, 1]
        assert ids(updated_before="2000-01-01T00:00:00Z") == []
        assert project.pipelines.latest(ref="topic").id == 3
        for wrong in ("scope=x", "status=leased", "source=x", "order_by=body", "sort=up", "updated_after=soon"):
            assert cell.api("GET", f"/projects/{project.id}/pipelines?{wrong}").status == 400

    def test_a_name_can_be_given_later(self, cell: ServedCell, project: Project) -> None:
        path = f"/projects/{project.id}/pipelines/1/metadata"
        assert cell.api("PUT", path, {"name": "The first"}).json()["name"] == "The first"
        assert cell.api("PUT", path, {"name": "x" * 300}).status == 400
        assert cell.api("PUT", path, {}).json() == {"error": "name is missing"}
        assert project.pipelines.get(1).name == "The first"


class TestJobs:
    def test_a_manual_job_gets_variables(self, cell: ServedCell, project: Project, runner: ScriptedRunner) -> None:
        for _ in ("build", "test"):
            runner.put(runner.take(), "success")
        jobs = {job.name: job.id for job in project.pipelines.get(1).jobs.list(get_all=True)}
        body = {"job_variables_attributes": [{"key": "TARGET", "value": "moon"}]}
        assert cell.api("POST", f"/projects/{project.id}/jobs/{jobs['deploy']}/play", body).status == 200
        taken = runner.take()
        assert {variable["key"]: variable["value"] for variable in taken["variables"]}["TARGET"] == "moon"
        wrong = {"job_variables_attributes": [{"key": "A-B", "value": "x"}]}
        assert cell.api("POST", f"/projects/{project.id}/jobs/{jobs['later']}/play", wrong).status == 400

    def test_inputs_of_a_job_can_be_given_and_changed(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        number = cell.new_project(
            "inputs",
            """
deploy:
  when: manual
  inputs:
    env: {default: staging, options: [staging, production]}
    count: {type: number, default: 1}
  script: ["deploy ${{ job.inputs.env }} ${{ job.inputs.count }}"]
""",
        )
        job = cell.api("GET", f"/projects/{number}/jobs").json()[0]["id"]
        path = f"/projects/{number}/jobs/{job}"
        wrong = cell.api("POST", f"{path}/play", {"job_inputs": {"env": "moon", "cuont": 2}})
        assert (wrong.status, wrong.json()["message"]) == (
            400,
            '400 Bad request - env: "moon" is none of the options; cuont: the job has no input "cuont"',
        )
        assert cell.api("POST", f"{path}/play", {"job_inputs": {"env": "production"}}).status == 200
        taken = runner.take()
        assert taken["steps"][0]["script"] == ["deploy production 1"]
        runner.put(taken, "failed")
        assert cell.api("POST", f"{path}/retry", {"job_inputs": {"count": "7"}}).status == 201
        assert runner.take()["steps"][0]["script"] == ["deploy production 7"]

    def test_an_unscheduled_job_becomes_manual(self, cell: ServedCell, project: Project) -> None:
        jobs = {job.name: job for job in project.pipelines.get(1).jobs.list(get_all=True)}
        assert jobs["later"].status == "scheduled"
        path = f"/projects/{project.id}/jobs/{jobs['later'].id}"
        assert cell.api("POST", f"{path}/unschedule").json()["status"] == "manual"
        assert cell.api("POST", f"{path}/unschedule").status == 400
        assert cell.api("POST", f"{path}/play").json()["status"] == "pending"

    def test_trigger_jobs_are_bridges(self, cell: ServedCell) -> None:
        client = gitlab.Gitlab(cell.url, private_token=cell.token)
        text = "go:\n  trigger: {include: child.yml}\nplain:\n  script: [x]\n"
        project = client.projects.get(cell.new_project("parent", text, **{"child.yml": "c:\n  script: [x]\n"}))
        [parent] = project.pipelines.list(get_all=True)
        assert [job.name for job in parent.jobs.list(get_all=True)] == ["plain"]
        wait_until(lambda: bool(parent.bridges.list(get_all=True)[0].downstream_pipeline), "the child")
        [bridge] = parent.bridges.list(get_all=True)
        child = project.pipelines.get(bridge.downstream_pipeline["id"])
        assert (bridge.name, child.source) == ("go", "parent_pipeline")
        assert [job.name for job in project.jobs.list(get_all=True)] == ["c", "plain"]
        assert [pipeline.id for pipeline in project.pipelines.list(get_all=True)] == [parent.id]
        assert [pipeline.id for pipeline in project.pipelines.list(get_all=True, source="parent_pipeline")] == [
            child.id
        ]

    def test_metrics_count_unfinished_jobs(self, cell: ServedCell, project: Project) -> None:
        lines = cell.send("GET", "/-/metrics").body.decode().splitlines()
        for state, count in (("created", 2.0), ("scheduled", 1.0), ("pending", 1.0), ("waiting_for_resource", 0.0)):
            assert f'remuda_cell_jobs{{state="{state}"}} {count}' in lines
        assert 'remuda_cell_pipelines{status="running"} 1.0' in lines


class TestRemudaEndpoint:
    """POST /api/remuda/v1/projects/:id/pipelines."""

    def create(self, cell: ServedCell, project: Project, **fields: Any) -> Answer:
        path = f"/api/remuda/v1/projects/{project.id}/pipelines"
        return cell.send("POST", path, fields, PRIVATE_TOKEN=cell.token)

    def names(self, project: Project, created: Answer) -> list[str]:
        assert created.status == 201, created
        return sorted(job.name for job in project.pipelines.get(created.json()["id"]).jobs.list(get_all=True))

    def test_some_jobs(self, cell: ServedCell, project: Project) -> None:
        assert self.names(project, self.create(cell, project, ref="main")) == ["build", "deploy", "later", "test"]
        assert self.names(project, self.create(cell, project, ref="main", jobs=["test"])) == ["build", "test"]
        alone = self.create(cell, project, ref="main", jobs=["test"], with_needs=False)
        assert self.names(project, alone) == ["test"]
        assert self.names(project, self.create(cell, project, ref="main", stages=["build"])) == ["build", "later"]
        refused = self.create(cell, project, ref="main", jobs=["tset"])
        assert (refused.status, refused.json()["mistakes"]) == (400, [])
        assert "tset" in refused.json()["message"]

    def test_another_file_and_another_source(self, cell: ServedCell, project: Project, runner: ScriptedRunner) -> None:
        cancel_all(project)
        created = self.create(
            cell,
            project,
            ref="main",
            source="web",
            text="a:\n  script: [x]\n  rules:\n    - if: $CI_PIPELINE_SOURCE == 'web' && $B == '1' && $C == 'd'\n",
            variables={"B": "1"},
            file_variables=["B"],
            predefined={"C": "d"},
        )
        assert self.names(project, created) == ["a"]
        assert created.json()["source"] == "web"
        sent = {variable["key"]: variable for variable in runner.take()["variables"]}
        assert (sent["B"]["file"], sent["C"]["value"]) == (True, "d")
        commit(project, "topic", **{"ci/other.yml": "b:\n  script: [x]\n"})
        assert self.names(project, self.create(cell, project, ref="topic", file="ci/other.yml")) == ["b"]

    def test_a_commit_that_is_not_in_the_branch(self, cell: ServedCell, project: Project) -> None:
        sha = commit(project, "topic", **{"a.txt": "a"})
        text = (
            "a:\n  script: [x]\n  rules:\n    - changes: [a.txt]\nb:\n  script: [x]\n  rules:\n    - changes: [b.txt]\n"
        )
        base = project.commits.get(sha).parent_ids[0]
        created = self.create(cell, project, ref="refs/heads/main", sha=sha, text=text, changes_since=base)
        assert self.names(project, created) == ["a"]
        assert (created.json()["ref"], created.json()["sha"]) == ("main", sha)

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({}, "ref is missing"),
            ({"ref": "nowhere"}, "there is no branch or tag 'nowhere'"),
            ({"ref": "main", "sha": "0" * 40}, "full name"),
            ({"ref": "refs/heads/main", "sha": "1" * 40}, "there is no commit"),
            ({"ref": "refs/heads/main", "sha": "HEAD"}, "there is no commit"),
            ({"ref": "main", "source": "magic"}, "source"),
            ({"ref": "main", "file": "../x.yml"}, "inside the repository"),
            ({"ref": "main", "file": "missing.yml"}, "Missing CI config file"),
            ({"ref": "main", "variables": {"A-B": "1"}}, "letters, digits"),
            ({"ref": "main", "jobs": "test"}, "jobs is invalid"),
        ],
    )
    def test_invalid_requests(self, cell: ServedCell, project: Project, fields: dict[str, Any], reason: str) -> None:
        refused = self.create(cell, project, **fields)
        assert refused.status == 400
        assert reason in refused.body.decode()

    def test_mistakes_are_listed_in_the_response(self, cell: ServedCell, project: Project) -> None:
        refused = self.create(cell, project, ref="main", text="a:\n  scrip: x\n  tags: {}\n")
        assert refused.status == 400
        assert {(mistake["line"], mistake["key"]) for mistake in refused.json()["mistakes"]} >= {
            (2, "a:scrip"),
            (3, "a:tags"),
        }
        assert "a:scrip" in refused.json()["message"]

    def test_only_users_may_create_pipelines(self, cell: ServedCell, project: Project, runner: ScriptedRunner) -> None:
        path = f"/api/remuda/v1/projects/{project.id}/pipelines"
        assert cell.send("POST", path, {"ref": "main"}).status == 401
        job = runner.take()
        assert cell.send("POST", path, {"ref": "main"}, JOB_TOKEN=job["token"]).status == 401
