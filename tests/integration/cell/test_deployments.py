"""Environments, deployments and resource groups, with python-gitlab as the client and a scripted runner."""

import gzip
from datetime import UTC, datetime, timedelta

import gitlab
import pytest
from gitlab.v4.objects import Project
from tests.support.cells.people import add_member, create_person
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

from remuda.testing.waiting import wait_until

PIPELINE = """
deploy:
  script: [make]
  resource_group: review
  environment: {name: review/$CI_COMMIT_REF_NAME, url: "https://$HOST/", on_stop: end, auto_stop_in: 2 days}
end:
  script: [make]
  when: manual
  resource_group: review
  environment: {name: review/$CI_COMMIT_REF_NAME, action: stop}
look:
  script: [make]
  needs: [deploy]
  environment: {name: review/$CI_COMMIT_REF_NAME, action: verify}
"""


@pytest.fixture
def project(cell: ServedCell, client: gitlab.Gitlab) -> Project:
    return client.projects.get(cell.new_project("app", PIPELINE))


def test_a_review_app(project: Project, runner: ScriptedRunner) -> None:
    [environment] = project.environments.list(get_all=True)
    assert (environment.name, environment.state, environment.tier) == ("review/main", "available", "development")
    assert environment.slug.startswith("review-main-")
    assert environment.project["id"] == project.id
    [deployment] = project.deployments.list(get_all=True)
    assert (deployment.status, deployment.iid) == ("created", 1)
    assert deployment.deployable["name"] == "deploy"
    assert deployment.environment["name"] == "review/main"
    assert deployment.user["username"] == "root"
    assert project.environments.get(environment.id).last_deployment is None
    job = runner.take()
    assert project.deployments.get(deployment.id).status == "running"
    report = gzip.compress(b"HOST=review.example\n")
    assert runner.upload(job, report, query="?artifact_type=dotenv&artifact_format=gzip").status == 201
    runner.put(job, "success")
    environment = project.environments.get(environment.id)
    assert environment.external_url == "https://review.example/"
    assert environment.last_deployment["id"] == deployment.id
    assert environment.last_deployment["deployable"]["pipeline"]["ref"] == "main"
    stop_at = datetime.fromisoformat(environment.auto_stop_at) - datetime.now(UTC)
    assert timedelta(days=1, hours=23) < stop_at < timedelta(days=2)
    runner.put(runner.take(), "success")  # look
    environment.stop()
    assert project.environments.get(environment.id).state == "stopping"
    with pytest.raises(gitlab.GitlabDeleteError, match="403"):
        environment.delete()
    runner.put(runner.take(), "success")
    environment = project.environments.get(environment.id)
    assert (environment.state, environment.auto_stop_at) == ("stopped", None)
    # A rollback: the job again.
    project.jobs.get(job["id"]).retry()
    runner.put(runner.take(), "success")
    assert project.environments.get(environment.id).state == "available"
    assert [row.iid for row in project.deployments.list(environment="review/main", status="success", sort="desc")] == [
        2,
        1,
    ]
    assert project.environments.list(get_all=True, states="stopped") == []


def test_environments_of_a_client(cell: ServedCell, project: Project) -> None:
    new = project.environments.create({"name": "production", "external_url": "https://prod.example"})
    assert (new.tier, new.slug) == ("production", "production")
    new.external_url, new.tier = "https://other.example", "staging"
    new.save()
    assert project.environments.get(new.id).external_url == "https://other.example"
    assert [row.name for row in project.environments.list(search="PROD", get_all=True)] == ["production"]
    assert [row.name for row in project.environments.list(name="production", get_all=True)] == ["production"]
    for body, place in (
        ({"name": "production"}, "name"),
        ({"name": "a b/"}, "name"),
        ({"name": "a", "external_url": "javascript:x"}, "external_url"),
        ({"name": "a", "tier": "gold"}, "tier"),
        ({}, "name"),
    ):
        answer = cell.api("POST", f"/projects/{project.id}/environments", body)
        assert (answer.status, place in answer.body.decode()) == (400, True), answer
    assert cell.api("GET", f"/projects/{project.id}/environments?search=ab").status == 400
    assert cell.api("GET", f"/projects/{project.id}/environments?search=abc&name=x").status == 400
    assert cell.api("GET", f"/projects/{project.id}/environments/99999").status == 404
    new.stop()
    new.delete()
    assert [row.name for row in project.environments.list(get_all=True)] == ["review/main"]


def test_many_environments_at_once(cell: ServedCell, project: Project) -> None:
    root = f"/projects/{project.id}/environments"
    [environment] = project.environments.list(get_all=True)
    environment.stop()
    later = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    answer = cell.api("DELETE", f"{root}/review_apps?before={later}")
    assert [entry["name"] for entry in answer.json()["scheduled_entries"]] == ["review/main"]
    assert cell.api("DELETE", f"{root}/review_apps").json()["scheduled_entries"] == []
    assert len(project.environments.list(get_all=True)) == 1
    answer = cell.api("DELETE", f"{root}/review_apps?before={later}&dry_run=false")
    assert (answer.status, len(answer.json()["scheduled_entries"])) == (200, 1)
    assert project.environments.list(get_all=True) == []
    assert cell.api("POST", f"{root}/stop_stale", {"before": later}).status == 400
    stale = cell.api("POST", f"{root}/stop_stale", {"before": "2025-01-01T00:00:00Z"})
    assert (stale.status, stale.json()["message"]) == (200, "Successfully scheduled stale environments to stop")


def test_deployments_of_a_client(cell: ServedCell, project: Project) -> None:
    sha = project.commits.get("main").id
    given = {"environment": "production", "sha": sha, "ref": "main", "tag": False, "status": "running"}
    first = project.deployments.create(given)
    assert (first.status, first.deployable, first.environment["name"]) == ("running", None, "production")
    root = f"/projects/{project.id}/deployments"
    assert "running" in cell.api("DELETE", f"{root}/{first.id}").json()["message"]
    first.status = "success"
    first.save()
    assert "currently deployed" in cell.api("DELETE", f"{root}/{first.id}").json()["message"]
    second = project.deployments.create(given | {"status": "success"})
    assert cell.api("DELETE", f"{root}/{first.id}").status == 204
    assert second.mergerequests.list(get_all=True) == []
    [of_job] = project.deployments.list(environment="review/main", get_all=True)
    of_job.status = "failed"
    with pytest.raises(gitlab.GitlabUpdateError, match="403"):
        of_job.save()
    for wrong in ({"sha": "feed"}, {"ref": "nowhere"}, {"status": "created"}, {"environment": " "}):
        assert cell.api("POST", root, given | wrong).status == 400, wrong
    assert cell.api("GET", f"{root}?status=unknown").status == 400
    assert cell.api("GET", f"{root}?updated_after=2020-01-01T00:00:00Z&order_by=updated_at").status == 200
    assert cell.api("GET", f"{root}?finished_before=2020-01-01T00:00:00Z").json() == []
    assert cell.api("GET", f"{root}/99999").status == 404


def test_resource_groups(project: Project, runner: ScriptedRunner) -> None:
    first = runner.take()
    newest = [project.pipelines.create({"ref": "main"}) for _ in range(2)][-1]
    [group] = project.resource_groups.list(get_all=True)
    assert (group.key, group.process_mode) == ("review", "unordered")
    group.process_mode = "newest_ready_first"
    group.save()
    group = project.resource_groups.get("review")
    assert group.process_mode == "newest_ready_first"
    upcoming = group.upcoming_jobs.list(get_all=True)
    assert [job.pipeline["id"] for job in upcoming] == [newest.id, newest.id - 1]
    runner.put(first, "success")
    jobs = {job.pipeline["id"]: job.status for job in project.jobs.list(get_all=True) if job.name == "deploy"}
    assert [jobs[key] for key in sorted(jobs)] == ["success", "waiting_for_resource", "pending"]


def test_who_may_do_what(cell: ServedCell, project: Project) -> None:
    [environment] = project.environments.list(get_all=True)
    reporter, developer = create_person(cell, "rita"), create_person(cell, "dora")
    add_member(cell, f"projects/{project.id}", reporter, 20)
    add_member(cell, f"projects/{project.id}", developer, 30)
    root = f"/projects/{project.id}/environments"
    assert reporter.api("GET", root).status == 200
    assert reporter.api("POST", f"{root}/{environment.id}/stop").status == 403
    assert developer.api("POST", f"{root}/{environment.id}/stop").status == 200


def test_a_deleted_branch_stops_its_environment(cell: ServedCell, project: Project, runner: ScriptedRunner) -> None:
    project.branches.create({"branch": "side", "ref": "main"})
    cell.until_pipelines(2)
    while (job := runner.take())["git_info"]["ref"] != "side":
        runner.put(job, "failed")
    runner.put(job, "success")
    [environment] = project.environments.list(name="review/side", get_all=True)
    project.branches.get("side").delete()
    wait_until(lambda: project.environments.get(environment.id).state == "stopping", "the environment stops")


def test_a_job_calls_with_its_token(cell: ServedCell, client: gitlab.Gitlab, runner: ScriptedRunner) -> None:
    project = client.projects.get(cell.new_project("app", "job: {script: [make], environment: staging}"))
    other = cell.new_project("other")
    job = runner.take()
    of_job = gitlab.Gitlab(cell.url, job_token=job["token"]).projects.get(project.id, lazy=True)
    [environment] = of_job.environments.list(get_all=True)
    assert of_job.environments.get(environment.id).name == "staging"
    given = {"environment": "canary", "sha": job["git_info"]["sha"], "ref": "main", "tag": False, "status": "running"}
    recorded = of_job.deployments.create(given)
    assert recorded.user["username"] == "root"
    recorded.status = "success"
    recorded.save()
    assert [row.status for row in of_job.deployments.list(get_all=True)] == ["running", "success"]
    [canary] = of_job.environments.list(name="canary", get_all=True)
    canary.stop()
    assert project.environments.get(canary.id).state == "stopped"
    answer = cell.send("GET", f"/api/v4/projects/{other}/environments", JOB_TOKEN=job["token"])
    assert answer.status == 404
    events = cell.api("GET", f"/projects/{project.id}/audit_events").json()
    [stopped] = [event for event in events if "environment_stopped" in str(event)]
    assert stopped["details"]["author_name"] == f"job {job['id']}"
