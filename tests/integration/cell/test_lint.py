"""The `ci/lint` endpoints with python-gitlab, and hostile pipeline files, both linted and pushed."""

import time
from typing import Any

import gitlab
import pytest
from gitlab.v4.objects import Project
from tests.support.cells.people import add_member, create_person
from tests.support.cells.served_cell import ServedCell

SHARED = """
.base:
  before_script: [echo first]
  script: [echo base]
"""
PIPELINE = """
include: /ci/shared.yml
build:
  extends: .base
  tags: [linux]
release:
  stage: deploy
  script: [make release]
  rules:
    - if: $CI_COMMIT_BRANCH == "main"
"""
FIVE_MISTAKES = """stages: [build, test]
build:
  stage: bild
  script: [make]
  retry: many
test:
  script: [make test]
  imag: alpine
deploy:
  stage: test
  needs: [nothing]
  script: [make deploy]
  when: sometimes
"""


@pytest.fixture
def project(cell: ServedCell) -> Project:
    client = gitlab.Gitlab(cell.url, private_token=cell.token)
    return client.projects.get(cell.new_project("app", PIPELINE, **{"ci/shared.yml": SHARED}))


def lint(project: Project, content: str, **options: Any) -> Any:
    return project.ci_lint.create({"content": content, **options})


def test_a_good_file(project: Project) -> None:
    result = lint(project, PIPELINE, include_jobs=True)
    assert (result.valid, result.errors, result.warnings, result.mistakes) == (True, [], [], [])
    assert "echo base" in result.merged_yaml
    assert "include" not in result.merged_yaml
    [included] = result.includes
    assert (included["type"], included["location"]) == ("local", "ci/shared.yml")
    assert included["context_project"] == "root/app"
    jobs = {job["name"]: job for job in result.jobs}
    assert sorted(jobs) == ["build", "release"]
    assert jobs["build"]["script"] == ["echo first", "echo base"]
    assert (jobs["build"]["tag_list"], jobs["release"]["stage"]) == (["linux"], "deploy")
    assert "jobs" not in lint(project, PIPELINE).attributes
    project.ci_lint.validate({"content": PIPELINE})


def test_warnings(project: Project) -> None:
    text = "job:\n  script: [echo one]\n  script: [echo two]\n"
    result = lint(project, text)
    assert (result.valid, result.errors) == (True, [])
    [warning] = result.warnings
    assert warning.startswith('.gitlab-ci.yml:3:3: script: the key "script" is on lines 2 and 3')
    assert lint(project, text + "  scripts: x\n").warnings == [warning]
    change = {"action": "update", "file_path": ".gitlab-ci.yml", "content": text}
    project.commits.create({"branch": "main", "commit_message": "Repeat a key", "actions": [change]})
    pipeline = project.pipelines.get(project.pipelines.list(get_all=False)[0].id)
    assert (pipeline.yaml_errors, pipeline.yaml_warnings) == (None, warning)


def test_the_stored_file(project: Project) -> None:
    result = project.ci_lint.get(include_jobs=True)
    assert (result.valid, [job["name"] for job in result.jobs]) == (True, ["build", "release"])
    change = {"action": "update", "file_path": ".gitlab-ci.yml", "content": FIVE_MISTAKES}
    project.commits.create({"branch": "main", "commit_message": "Break it", "actions": [change]})
    assert project.ci_lint.get().valid is False
    parent = project.commits.get("main").parent_ids[0]
    assert project.ci_lint.get(content_ref=parent).valid is True
    with pytest.raises(gitlab.GitlabGetError, match="404 Commit Not Found"):
        project.ci_lint.get(content_ref="nowhere")


def test_no_file_and_no_commit(cell: ServedCell) -> None:
    client = gitlab.Gitlab(cell.url, private_token=cell.token)
    bare = client.projects.get(cell.new_project("bare"))
    assert lint(bare, "a:\n  script: [x]\n").valid is True
    assert lint(bare, "include: x.yml\na:\n  script: [x]\n").valid is False
    assert bare.ci_lint.get().valid is False
    quiet = client.projects.get(cell.new_project("quiet", README="no pipeline"))
    result = quiet.ci_lint.get()
    assert (result.valid, result.errors) == (False, ["Missing CI config file"])


def test_all_mistakes_are_reported_with_their_positions(project: Project) -> None:
    result = lint(project, FIVE_MISTAKES)
    assert (result.valid, result.merged_yaml) == (False, None)
    assert [(mistake["line"], mistake["key"]) for mistake in result.mistakes] == [
        (3, "build:stage"),
        (5, "build:retry"),
        (8, "test:imag"),
        (11, "deploy:needs"),
        (13, "deploy:when"),
    ]
    assert len(result.errors) == len(result.mistakes)
    assert result.errors[0].startswith(".gitlab-ci.yml:3:10: build:stage: ")
    with pytest.raises(gitlab.exceptions.GitlabCiLintError, match="imag"):
        project.ci_lint.validate({"content": FIVE_MISTAKES})


def test_mistakes_in_an_included_file_name_that_file(project: Project) -> None:
    change = {"action": "create", "file_path": "ci/bad.yml", "content": "b:\n  scrip: x\n"}
    project.commits.create({"branch": "main", "commit_message": "Add a bad one", "actions": [change]})
    result = lint(project, "include: ci/bad.yml\n")
    assert {mistake["file"] for mistake in result.mistakes} == {"ci/bad.yml"}


def test_rules_are_evaluated_for_the_ref(cell: ServedCell, project: Project) -> None:
    change = {"action": "create", "file_path": "x", "content": ""}
    commit = {"branch": "topic", "start_branch": "main", "commit_message": "Go on", "actions": [change]}
    project.commits.create(commit)
    only_main = "a:\n  script: [x]\n  rules:\n    - if: $CI_COMMIT_BRANCH == 'main'\n"
    assert lint(project, only_main, dry_run=True).valid is True
    result = lint(project, only_main, dry_run=True, ref="topic")
    assert result.valid is False
    assert "Pipeline will not run" in result.errors[0]
    assert [job["name"] for job in result.left_out] == ["a"]
    static = lint(project, only_main, ref="topic")
    assert (static.valid, len(static.warnings)) == (True, 1)
    with pytest.raises(gitlab.GitlabCreateError, match="404 Reference Not Found"):
        lint(project, only_main, ref="nowhere")


def test_too_large_files_are_refused(cell: ServedCell, project: Project) -> None:
    assert "larger than" in lint(project, "#" * 2_000_000).errors[0]
    body = {"content": "#" * 5_000_000}
    assert cell.api("POST", f"/projects/{project.id}/ci/lint", body).status == 413
    assert cell.api("POST", f"/projects/{project.id}/ci/lint", {}).json() == {"error": "content is missing"}


MANY = ", ".join(map(str, range(320)))
JOB = "j: {script: x}\n"
HOSTILE = {
    "bomb": (
        "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20)) + JOB,
        "with its aliases unfolded",
    ),
    "loop": ("include: loop.yml\n" + JOB, "in a circle: loop.yml -> pool.yml -> loop.yml"),
    "matrix": (f"a: {{script: x, parallel: {{matrix: [{{A: [{MANY}], B: [{MANY}]}}]}}}}", "makes 102400 jobs"),
    "regex": (
        "variables: {V: " + "a" * 60_000 + "!}\na: {script: x, rules: [{if: '$V =~ /((a?){30}){30}b/'}]}",
        "the regular expressions take too long to evaluate",
    ),
    "path": ("include: ../../../../etc/passwd.yml\n" + JOB, "leaves the repository"),
}
LOOP = {"loop.yml": "include: pool.yml", "pool.yml": "include: loop.yml"}


@pytest.mark.parametrize("name", HOSTILE)
def test_lint_refuses_a_hostile_file_quickly(cell: ServedCell, name: str) -> None:
    client = gitlab.Gitlab(cell.url, private_token=cell.token)
    project = client.projects.get(cell.new_project("hostile", **LOOP))
    text, reason = HOSTILE[name]
    began = time.process_time()
    result = lint(project, text)
    assert time.process_time() - began < 10
    assert result.valid is False
    assert reason in "\n".join(result.errors)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_pushed_hostile_file_is_refused_quickly(cell: ServedCell, name: str) -> None:
    text, reason = HOSTILE[name]
    began = time.process_time()
    client = gitlab.Gitlab(cell.url, private_token=cell.token)
    project = client.projects.get(cell.new_project("hostile", text, **LOOP))
    [pipeline] = project.pipelines.list(get_all=True)
    assert time.process_time() - began < 10
    pipeline.refresh()
    assert pipeline.status == "failed"
    assert reason in pipeline.yaml_errors
    assert pipeline.jobs.list(get_all=True) == []
    with pytest.raises(gitlab.GitlabCreateError, match="base"):
        project.pipelines.create({"ref": "main"})


def test_lint_reveals_protected_variables_to_maintainers_only(cell: ServedCell) -> None:
    project = cell.new_project("app", "job: {script: [echo]}\n")
    variable = {"key": "DEPLOY_KEY", "value": "s3cret-value", "protected": True}
    assert cell.api("POST", f"/projects/{project}/variables", variable).status == 201
    content = {"content": "include: [{local: $DEPLOY_KEY.yml}]"}
    for level, is_revealed in ((30, False), (40, True)):
        person = create_person(cell, f"p{level}")
        add_member(cell, f"projects/{project}", person, level)
        answer = person.api("POST", f"/projects/{project}/ci/lint", content)
        assert answer.json()["valid"] is False
        assert (b"s3cret-value" in answer.body) is is_revealed, level
