"""A tour of a Remuda cell with python-gitlab, the library that scripts for GitLab are written with.

    remuda up                       # in another terminal; it prints the address and an administrator's token
    pip install python-gitlab
    python tour.py http://127.0.0.1:8929 glpat-...

It makes a group with a project and a user, runs pipelines on a runner that is there, looks at everything that comes of
them, and removes it all again. Whatever is not as it should be ends it with an AssertionError.
"""

import io
import sys
import time
import uuid
import zipfile

import gitlab
from gitlab.v4.objects import Group, Project, ProjectJob, ProjectPipeline

PIPELINE = """
stages: [build, test, deploy]

make:
  stage: build
  script:
    - echo "colour is $COLOUR"
    - mkdir out
    - echo made > out/made.txt
    - echo '<testsuite name="unit"><testcase name="works" classname="made"/></testsuite>' > report.xml
  artifacts:
    paths: [out/]
    expire_in: 1 week
    reports:
      junit: report.xml

check:
  stage: test
  script:
    - cat out/made.txt

breaks:
  stage: test
  script:
    - test -e mended
  allow_failure: true

ship:
  stage: deploy
  when: manual
  script:
    - echo "shipping to $TARGET"
"""


def wait(pipeline: ProjectPipeline, *, seconds: float = 120) -> str:
    """The status that a pipeline ends with, or waits for a person with."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pipeline.refresh()
        if pipeline.status in ("success", "failed", "canceled", "skipped", "manual"):
            return str(pipeline.status)
        time.sleep(0.2)
    raise SystemExit(f"pipeline {pipeline.id} is still {pipeline.status}; does a runner ask this cell for jobs?")


def wait_for_job(job: ProjectJob, *, seconds: float = 60) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        job.refresh()
        if job.status in ("success", "failed", "canceled"):
            return str(job.status)
        time.sleep(0.2)
    raise SystemExit(f"job {job.id} is still {job.status}")


def look_around(gl: gitlab.Gitlab) -> None:
    """Who am I, and where?"""
    gl.auth()
    assert gl.user is not None
    print(f"I am {gl.user.username} at GitLab API {gl.version()[0]}")
    settings = gl.settings.get()
    settings.allow_runner_registration_token = True
    settings.save()
    assert any(one.kind == "user" for one in gl.namespaces.list(get_all=True))
    assert gl.namespaces.get(gl.user.username).kind == "user"
    assert gl.namespaces.exists(gl.user.username).exists


def make_places(gl: gitlab.Gitlab, name: str) -> tuple[Group, Project]:
    """A group in a group, with a project."""
    group = gl.groups.create({"name": name, "path": name, "visibility": "private"})
    inner = gl.groups.create({"name": "Inner", "path": "inner", "parent_id": group.id})
    assert gl.groups.get(f"{name}/inner").id == inner.id
    assert [one.id for one in group.subgroups.list(get_all=True)] == [inner.id]
    assert [one.id for one in group.descendant_groups.list(get_all=True)] == [inner.id]
    group.description = "For a tour"
    group.save()
    assert name in [one.path for one in gl.groups.list(search=name, get_all=True)]

    project = gl.projects.create({"name": "Shop", "namespace_id": inner.id})
    assert gl.projects.get(f"{name}/inner/shop".replace("shop", project.path)).id == project.id
    project.description = "Sells things"
    project.save()
    assert [one.id for one in group.projects.list(include_subgroups=True, get_all=True)] == [project.id]
    for number in range(3):
        gl.projects.create({"name": f"More {number}", "namespace_id": inner.id})
    # Long lists are walked by ids: nothing is counted, and what is added meanwhile moves nothing.
    walked = [one.id for one in gl.projects.list(iterator=True, pagination="keyset", order_by="id", per_page=2)]
    assert walked == sorted(walked, reverse=True)
    assert project.id in walked
    return group, project


def invite_people(gl: gitlab.Gitlab, project: Project, group: Group, name: str) -> None:
    """A user with a token of their own, as a member."""
    user = gl.users.create({"username": f"{name}-ann", "name": "Ann", "email": f"{name}@example.com"})
    assert gl.users.list(username=user.username, get_all=True)[0].id == user.id
    assert gl.users.get(user.id).name == "Ann"
    token = user.personal_access_tokens.create({"name": "tour", "scopes": ["api"]})
    ann = gitlab.Gitlab(gl.url, private_token=token.token)
    ann.auth()
    assert ann.projects.list(search=project.path, get_all=True) == []

    member = project.members.create({"user_id": user.id, "access_level": gitlab.const.AccessLevel.REPORTER})
    assert ann.projects.get(project.id).name == project.name
    member.access_level = gitlab.const.AccessLevel.DEVELOPER
    member.save()
    assert project.members.get(user.id).access_level == 30
    assert user.id in [one.id for one in project.members.list(get_all=True)]
    group.members.create({"user_id": user.id, "access_level": gitlab.const.AccessLevel.GUEST})
    assert user.id in [one.id for one in project.members_all.list(get_all=True)]
    assert user.id in [one.id for one in project.users.list(get_all=True)]
    group.members.delete(user.id)

    own = ann.personal_access_tokens.get("self")
    assert own.scopes == ["api"]
    rotated = ann.personal_access_tokens.rotate(own.id)
    assert rotated["token"] != token.token
    assert [one.id for one in gl.personal_access_tokens.list(user_id=user.id, state="active", get_all=True)]
    gl.personal_access_tokens.delete(rotated["id"])
    project.members.delete(user.id)
    user.block()
    user.unblock()


def set_variables(gl: gitlab.Gitlab, project: Project, group: Group) -> None:
    """Plain ones, secrets, files, some only for one environment; of the project, the group and the whole cell."""
    project.variables.create({"key": "COLOUR", "value": "red", "raw": True})
    project.variables.create({"key": "PASSWORD", "value": "hunter2hunter2", "masked": True, "protected": True})
    project.variables.create({"key": "CONFIG", "value": "a = 1\n", "variable_type": "file"})
    project.variables.create({"key": "TARGET", "value": "nowhere"})
    project.variables.create({"key": "TARGET", "value": "the moon", "environment_scope": "production"})
    secret = project.variables.get("PASSWORD")
    assert (secret.masked, secret.protected) == (True, True)
    one = project.variables.get("TARGET", filter={"environment_scope": "production"})
    assert one.value == "the moon"
    assert project.variables.get("CONFIG").variable_type == "file"
    project.variables.update("COLOUR", {"value": "blue"})
    assert len(project.variables.list(get_all=True)) == 5
    project.variables.delete("CONFIG")
    group.variables.create({"key": "FROM_GROUP", "value": "yes"})
    assert group.variables.get("FROM_GROUP").value == "yes"
    gl.variables.create({"key": "TOUR_FROM_CELL", "value": "yes"})
    assert "TOUR_FROM_CELL" in [variable.key for variable in gl.variables.list(get_all=True)]
    gl.variables.delete("TOUR_FROM_CELL")


def make_runners(gl: gitlab.Gitlab, project: Project, group: Group) -> None:
    """Runners for a project and for a group; they are only looked at, the jobs go to the one that is there."""
    assert gl.user is not None
    made = gl.user.runners.create(
        {"runner_type": "project_type", "project_id": project.id, "tag_list": ["tour"], "run_untagged": False}
    )
    gl.runners.verify(made.token)
    # The library has no name for this call of GitLab's, and sends it all the same.
    renewed = gl.http_post(f"/runners/{made.id}/reset_authentication_token")
    assert isinstance(renewed, dict)
    assert renewed["token"] != made.token
    gl.runners.verify(renewed["token"])
    runner = gl.runners.get(made.id)
    assert (runner.tag_list, runner.runner_type) == (["tour"], "project_type")
    runner.description = "On tour"
    runner.paused = True
    runner.save()
    gl.runners.update(runner.id, {"paused": False})
    assert made.id in [one.id for one in gl.runners.list(tag_list="tour", get_all=True)]
    assert made.id in [one.id for one in gl.runners_all.list(type="project_type", get_all=True)]
    assert made.id in [one.id for one in gl.runners.all()]
    assert runner.jobs.list(get_all=True) == []

    other = gl.projects.list(search="more-0", get_all=True)[0]
    other.runners.create({"runner_id": made.id})
    assert made.id in [one.id for one in other.runners.list(get_all=True)]
    other.runners.delete(made.id)
    of_group = gl.user.runners.create({"runner_type": "group_type", "group_id": group.id})
    assert of_group.id in [one.id for one in group.runners.list(get_all=True)]
    gl.runners.delete(of_group.id)
    runner.delete()


def write_files(project: Project) -> None:
    """A commit, single files, branches, tags, a look into folders."""
    first = project.commits.create(
        {
            "branch": "main",
            "commit_message": "Add a pipeline [skip ci]",
            "actions": [
                {"action": "create", "file_path": ".gitlab-ci.yml", "content": PIPELINE},
                {"action": "create", "file_path": "docs/guide.md", "content": "# Guide\n"},
            ],
        }
    )
    assert project.commits.get("main").id == first.id
    file = project.files.create(
        {
            "file_path": "docs/more.md",
            "branch": "main",
            "content": "more\n",
            "commit_message": "Add more [skip ci]",
            "author_name": "Ann",
            "author_email": "ann@example.com",
        }
    )
    file = project.files.get(file_path="docs/more.md", ref="main")
    assert file.decode() == b"more\n"
    file.content = "much more\n"
    file.save(branch="main", commit_message="Say more [skip ci]")
    assert project.files.raw(file_path="docs/more.md", ref="main") == b"much more\n"
    file.delete(branch="main", commit_message="Say less [skip ci]")
    names = [entry["path"] for entry in project.repository_tree(recursive=True, get_all=True)]
    assert names == ["docs", ".gitlab-ci.yml", "docs/guide.md"]
    assert len(project.commits.list(ref_name="main", get_all=True)) == 4

    branch = project.branches.create({"branch": "side", "ref": first.id})
    assert (branch.commit["id"], project.branches.get("main").default) == (first.id, True)
    assert [one.name for one in project.branches.list(get_all=True)] == ["main", "side"]
    branch.delete()
    project.tags.create({"tag_name": "v0", "ref": first.id, "message": "The beginning"})
    assert project.tags.get("v0").message == "The beginning"
    assert [one.name for one in project.tags.list(get_all=True)] == ["v0"]
    project.tags.delete("v0")


def check_file(project: Project) -> None:
    """What is wrong with a pipeline file, before it is committed."""
    assert project.ci_lint.get().valid
    linted = project.ci_lint.create({"content": "job:\n  scrip: [echo]\n"})
    assert not linted.valid
    assert "scrip" in linted.errors[0]
    project.ci_lint.validate({"content": PIPELINE})


def run_pipeline(project: Project) -> ProjectPipeline:
    """Start one, wait for it, look at what it left."""
    pipeline = project.pipelines.create({"ref": "main", "variables": [{"key": "TOUR", "value": "1"}]})
    assert [(one.key, one.value) for one in pipeline.variables.list(get_all=True)] == [("TOUR", "1")]
    assert wait(pipeline) in ("success", "manual")
    assert project.pipelines.get(pipeline.id).source == "api"
    assert project.pipelines.latest(ref="main").id == pipeline.id
    assert [one.id for one in project.pipelines.list(ref="main", source="api", get_all=True)] == [pipeline.id]
    assert pipeline.bridges.list(get_all=True) == []
    jobs = {job.name: job for job in pipeline.jobs.list(get_all=True)}
    states = {name: job.status for name, job in jobs.items()}
    assert states == {"make": "success", "check": "success", "breaks": "failed", "ship": "manual"}

    make = project.jobs.get(jobs["make"].id)
    assert b"colour is blue" in make.trace()
    with zipfile.ZipFile(io.BytesIO(make.artifacts())) as archive:
        assert archive.read("out/made.txt") == b"made\n"
    assert make.artifact("out/made.txt") == b"made\n"
    # The whole pipeline has not succeeded yet, but the job has, and that counts.
    assert project.artifacts.download(ref_name="main", job="make")[:2] == b"PK"
    assert project.artifacts.raw(ref_name="main", artifact_path="out/made.txt", job="make") == b"made\n"
    report = pipeline.test_report.get()
    assert (report.total_count, report.success_count) == (1, 1)
    assert pipeline.test_report_summary.get().total["count"] == 1
    walked = [job.id for job in project.jobs.list(iterator=True, pagination="keyset", per_page=1, order_by="id")]
    assert sorted(walked) == sorted(job.id for job in jobs.values())
    return pipeline


def act_on_jobs(project: Project, pipeline: ProjectPipeline) -> None:
    """Start what waits for a person, run again what failed, keep and remove what was left."""
    jobs = {job.name: job for job in pipeline.jobs.list(get_all=True)}
    ship = project.jobs.get(jobs["ship"].id)
    ship.play()
    assert wait_for_job(ship) == "success"
    assert b"shipping to nowhere" in ship.trace()
    again = project.jobs.get(project.jobs.get(jobs["breaks"].id).retry()["id"])
    assert wait_for_job(again) == "failed"
    assert again.failure_reason == "script_failure"
    make = project.jobs.get(jobs["make"].id)
    make.keep_artifacts()
    make.refresh()
    assert make.artifacts_expire_at is None
    make.delete_artifacts()
    make.erase()
    make.refresh()
    assert make.erased_at is not None
    assert make.trace() == b""
    project.artifacts.delete()
    assert not [job for job in project.jobs.list(get_all=True) if getattr(job, "artifacts_file", None)]


def start_otherwise(project: Project) -> None:
    """Pipelines by a schedule and by a trigger token, canceled, retried and removed."""
    schedule = project.pipelineschedules.create({"description": "Nightly", "ref": "main", "cron": "0 3 * * *"})
    schedule.variables.create({"key": "NIGHT", "value": "yes"})
    schedule.cron = "0 4 * * *"
    schedule.save()
    schedule.take_ownership()
    schedule.play()
    assert project.pipelineschedules.get(schedule.id).last_pipeline is not None
    assert len(schedule.pipelines.list(get_all=True)) == 1
    assert [one.id for one in project.pipelineschedules.list(get_all=True)] == [schedule.id]
    schedule.delete()

    trigger = project.triggers.create({"description": "From outside"})
    assert project.triggers.get(trigger.id).description == "From outside"
    pipeline = project.trigger_pipeline("main", trigger.token, variables={"WHO": "outside"})
    assert pipeline.source == "trigger"
    assert len(project.triggers.list(get_all=True)) == 1
    trigger.delete()
    pipeline.cancel()
    assert wait(pipeline) == "canceled"
    pipeline.retry()
    job = project.jobs.get(pipeline.jobs.list(get_all=True)[-1].id)
    job.cancel()
    pipeline.cancel()
    wait(pipeline)
    pipeline.delete()
    assert pipeline.id not in [one.id for one in project.pipelines.list(get_all=True)]


def release(project: Project) -> None:
    """A release with its tag."""
    made = project.releases.create({"tag_name": "v1", "name": "One", "description": "First", "ref": "main"})
    assert project.releases.get("v1").name == "One"
    made.description = "The first"
    made.save()
    assert [one.tag_name for one in project.releases.list(get_all=True)] == ["v1"]
    assert project.tags.get("v1").release["description"] == "The first"
    project.releases.delete("v1")


def clean_up(gl: gitlab.Gitlab, project: Project, group: Group) -> None:
    project.delete()
    group.delete()
    try:
        gl.projects.get(project.id)
    except gitlab.GitlabGetError as error:
        assert (error.response_code, error.error_message) == (404, "404 Project Not Found")
    else:
        raise SystemExit("the project is still there")


def main(url: str, token: str) -> None:
    gl = gitlab.Gitlab(url, private_token=token)
    name = f"tour-{uuid.uuid4().hex[:8]}"
    look_around(gl)
    group, project = make_places(gl, name)
    invite_people(gl, project, group, name)
    set_variables(gl, project, group)
    make_runners(gl, project, group)
    write_files(project)
    check_file(project)
    pipeline = run_pipeline(project)
    act_on_jobs(project, pipeline)
    start_otherwise(project)
    release(project)
    clean_up(gl, project, group)
    print("The tour is over; nothing of it is left but a user without rights.")


if __name__ == "__main__":
    main(*sys.argv[1:3])
