"""Pipelines that pushes start: refs, push options, changed files, and which older pipelines they replace."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ScriptedRunner, ServedCell, commit_file
from tests.support.git_client import Clone

from remuda.cell.errors import InvalidError
from remuda.cell.pipelines.creation import COMPILATIONS
from remuda.testing.waiting import wait_until

PIPELINE = "only:\n  script: [echo hello]\n"
RULES = """
for-branches:
  script: [echo]
  rules: [{if: $CI_COMMIT_BRANCH}]
for-tags:
  script: [echo]
  rules: [{if: $CI_COMMIT_TAG}]
for-requests:
  script: [echo]
  rules: [{if: $CI_PIPELINE_SOURCE == "merge_request_event"}]
without-rules:
  script: [echo]
"""


class Shop:
    """The project `root/app`, a clone of it, and its pipelines."""

    def __init__(self, cell: ServedCell, folder: Path) -> None:
        self.cell = cell
        self.id = cell.new_project("app")
        self.clone = Clone(folder)
        self.clone.run("init", "--quiet", "-b", "main")
        url = cell.url.replace("://", f"://oauth2:{cell.token}@")
        self.clone.run("remote", "add", "origin", f"{url}/root/app.git")

    def pipelines(self, **fields: str) -> list[dict[str, Any]]:
        query = "&".join(f"{key}={value}" for key, value in fields.items())
        rows: list[dict[str, Any]] = self.cell.api("GET", f"/projects/{self.id}/pipelines?{query}").json()
        return rows

    def pipeline(self, ref: str = "main") -> dict[str, Any]:
        """Return the newest pipeline of a ref, with all details."""
        newest = next(row for row in self.pipelines() if row["ref"] == ref)
        details: dict[str, Any] = self.cell.api("GET", f"/projects/{self.id}/pipelines/{newest['id']}").json()
        return details

    def jobs(self, ref: str = "main") -> list[str]:
        pipeline_id = self.pipeline(ref)["id"]
        rows = self.cell.api("GET", f"/projects/{self.id}/pipelines/{pipeline_id}/jobs?per_page=100").json()
        return sorted(job["name"] for job in rows)

    def variables(self, runner: ScriptedRunner) -> dict[str, str]:
        """Return the variables of the next job."""
        return {variable["key"]: variable["value"] for variable in runner.take()["variables"]}


@pytest.fixture
def shop(cell: ServedCell, tmp_path: Path) -> Shop:
    return Shop(cell, tmp_path / "work")


def test_a_branch_a_tag_and_a_merge_request(shop: Shop) -> None:
    shop.clone.commit(**{".gitlab-ci.yml": RULES})
    shop.clone.push("main")
    assert shop.jobs() == ["for-branches", "without-rules"]
    shop.clone.run("tag", "-a", "v1", "-m", "the first")
    shop.clone.commit(README="changed")
    shop.clone.push("v1", "main:refs/merge-requests/7/head")
    assert shop.jobs("v1") == ["for-tags", "without-rules"]
    assert shop.jobs("refs/merge-requests/7/head") == ["for-requests"]
    request = shop.pipeline("refs/merge-requests/7/head")
    assert (request["source"], request["before_sha"]) == ("merge_request_event", "0" * 40)


def test_other_refs_start_nothing(shop: Shop) -> None:
    shop.clone.commit(**{".gitlab-ci.yml": RULES})
    shop.clone.push("main:refs/merge-requests/7/merge")
    assert shop.pipelines() == []


def test_variables_of_a_merge_request_job(shop: Shop, runner: ScriptedRunner) -> None:
    base = shop.clone.commit(**{".gitlab-ci.yml": RULES})
    shop.clone.push("main", "main:refs/heads/stable", "-o", "ci.skip")
    shop.clone.run("checkout", "--quiet", "-b", "feature/x")
    head = shop.clone.commit("Say $CI_JOB_TOKEN\n\nbecause", file="x")
    shop.clone.push("HEAD:refs/heads/feature/x", "-o", "ci.skip")
    options = ("-o", "merge_request.target=stable", "-o", "merge_request.title=Draft: say it")
    shop.clone.push(*options, "HEAD:refs/merge-requests/12/head")
    job = runner.take()
    variables = {variable["key"]: variable for variable in job["variables"]}
    expected = {
        "CI_PIPELINE_SOURCE": "merge_request_event",
        "CI_COMMIT_REF_NAME": "feature/x",
        "CI_COMMIT_SHA": head,
        "CI_COMMIT_MESSAGE": "Say $CI_JOB_TOKEN\n\nbecause",
        "CI_COMMIT_TITLE": "Say $CI_JOB_TOKEN",
        "CI_COMMIT_DESCRIPTION": "because",
        "CI_COMMIT_AUTHOR": "A. Person <person@example.com>",
        "CI_MERGE_REQUEST_IID": "12",
        "CI_MERGE_REQUEST_REF_PATH": "refs/merge-requests/12/head",
        "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "feature/x",
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "stable",
        "CI_MERGE_REQUEST_TARGET_BRANCH_PROTECTED": "false",
        "CI_MERGE_REQUEST_TITLE": "Draft: say it",
        "CI_MERGE_REQUEST_DRAFT": "true",
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
        "CI_MERGE_REQUEST_EVENT_TYPE": "detached",
        "CI_MERGE_REQUEST_PROJECT_PATH": "root/app",
        "CI_OPEN_MERGE_REQUESTS": "root/app!12",
        "CI_DEFAULT_BRANCH": "main",
    }
    assert {key: variables[key]["value"] for key in expected} == expected
    assert variables["CI_COMMIT_MESSAGE"]["raw"], "variables in a message are not expanded"
    assert "CI_COMMIT_BRANCH" not in variables
    pipeline_id = shop.pipeline("refs/merge-requests/12/head")["id"]
    assert job["git_info"]["refspecs"] == [f"+refs/pipelines/{pipeline_id}:refs/pipelines/{pipeline_id}"]
    shop.clone.run("fetch", "--quiet", job["git_info"]["repo_url"], *job["git_info"]["refspecs"])


def test_labels_and_assignees_of_a_merge_request(shop: Shop, runner: ScriptedRunner) -> None:
    shop.clone.commit(**{".gitlab-ci.yml": RULES})
    shop.clone.push("main", "-o", "ci.skip")

    def push(*options: str) -> dict[str, str]:
        shop.clone.commit("Say it")
        shop.clone.push(*(each for option in options for each in ("-o", option)), "HEAD:refs/merge-requests/1/head")
        return shop.variables(runner)

    names = ("LABELS", "ASSIGNEES", "MILESTONE", "TITLE", "DRAFT")

    def of_request(variables: dict[str, str]) -> list[str | None]:
        return [variables.get(f"CI_MERGE_REQUEST_{name}") for name in names]

    assert of_request(push()) == [None, None, None, "Say it", "false"]
    options = ("label=bug", "label=urgent", "assign=ada", "milestone=1.0", "draft")
    first = ["bug,urgent", "ada", "1.0", "Draft: Say it", "true"]
    assert of_request(push(*(f"merge_request.{each}" for each in options))) == first
    assert of_request(push("merge_request.unlabel=bug", "merge_request.unassign=ada", "merge_request.title=Ready")) == [
        "urgent",
        None,
        "1.0",
        "Ready",
        "false",
    ]


def test_variables_of_a_tag_with_a_release(shop: Shop, runner: ScriptedRunner) -> None:
    shop.clone.commit(**{".gitlab-ci.yml": RULES})
    shop.clone.push("main", "-o", "ci.skip")
    release = {"tag_name": "v1", "ref": "main", "description": "n" * 2000}
    assert shop.cell.api("POST", f"/projects/{shop.id}/releases", release).status == 201
    shop.variables(runner)
    assert shop.cell.api("POST", f"/projects/{shop.id}/pipeline", {"ref": "v1"}).status == 201
    taken = [shop.variables(runner) for _ in range(3)]
    assert "n" * 1024 in [variables.get("CI_RELEASE_DESCRIPTION") for variables in taken]


def test_a_merge_request_keeps_its_target(shop: Shop, runner: ScriptedRunner) -> None:
    shop.clone.commit(**{".gitlab-ci.yml": RULES})
    shop.clone.push("main", "-o", "ci.skip")
    shop.clone.commit()
    shop.clone.push(
        "-o", "merge_request.target=other", "-o", "merge_request.source=mine", "HEAD:refs/merge-requests/1/head"
    )
    shop.variables(runner)
    shop.clone.commit()
    shop.clone.push("HEAD:refs/merge-requests/1/head")
    again = shop.variables(runner)
    assert again["CI_MERGE_REQUEST_TARGET_BRANCH_NAME"] == "other"
    assert again["CI_COMMIT_REF_NAME"] == "mine"


def test_rules_of_a_branch_see_its_open_merge_request(shop: Shop) -> None:
    rules = "workflow: {rules: [{if: $CI_COMMIT_BRANCH && $CI_OPEN_MERGE_REQUESTS, when: never}, {when: always}]}\n"
    shop.clone.commit(**{".gitlab-ci.yml": rules + PIPELINE})
    shop.clone.push("main", "main:refs/merge-requests/3/head")
    assert [pipeline["ref"] for pipeline in shop.pipelines()] == ["refs/merge-requests/3/head", "main"]
    shop.clone.run("checkout", "--quiet", "-b", "feature")
    shop.clone.commit()
    shop.clone.push("feature", "feature:refs/merge-requests/4/head")
    assert shop.pipelines()[0]["ref"] == "refs/merge-requests/4/head", "the branch gets no pipeline"
    assert len(shop.pipelines()) == 3


def test_push_options(shop: Shop, runner: ScriptedRunner, tmp_path: Path) -> None:
    file = "spec:\n  inputs:\n    count: {type: number}\n---\none:\n  script: ['echo $[[ inputs.count ]]']\n"
    shop.clone.commit(**{".gitlab-ci.yml": file})
    shop.clone.run("tag", "-a", "v1", "-m", "the first")
    nasty = f"$(touch {tmp_path}/evil) `touch {tmp_path}/evil` ; ' \" \\n ../../x = ü"
    shop.clone.push(
        *("-o", f"ci.variable=NASTY={nasty}", "-o", "ci.variable=EMPTY=", "-o", "ci.variable=9=x", "-o", "ci.variable"),
        *("-o", "ci.input=count=3", "-o", nasty, "-o", "../../../../evil"),
        *("main", "v1"),
    )
    for ref in ("main", "v1"):
        pipeline_id = shop.pipeline(ref)["id"]
        variables = shop.cell.api("GET", f"/projects/{shop.id}/pipelines/{pipeline_id}/variables").json()
        assert {variable["key"]: variable["value"] for variable in variables} == {"NASTY": nasty, "EMPTY": ""}
    job = runner.take()
    assert job["steps"][0]["script"] == ["echo 3"]
    assert {variable["key"]: variable["value"] for variable in job["variables"]}["NASTY"] == nasty
    assert not (tmp_path / "evil").exists()
    [repo] = (shop.cell.settings.data / "repos").glob("*/*.git")
    assert not (repo / "push-notes").exists()


def test_a_hostile_ref_name_writes_nothing_outside(shop: Shop) -> None:
    """git runs the hook before it checks the names of refs."""
    sha = shop.clone.commit(**{".gitlab-ci.yml": PIPELINE})
    shop.clone.push("main")
    [repo] = (shop.cell.settings.data / "repos").glob("*/*.git")
    before = sorted(path for path in shop.cell.settings.data.rglob("*") if "objects" not in path.parts)
    command = f"{'0' * 40} {sha} refs/heads/../../../../evil\0 report-status push-options"
    lines = f"{len(command) + 4:04x}{command}0000000bci.skip0000".encode()
    # An empty pack, because the cell has all objects.
    pack = bytes.fromhex("5041434b0000000200000000029d08823bd8a8eab510ad6ac75c823cfd3ed31e")
    answer = shop.cell.send(
        "POST",
        "/root/app.git/git-receive-pack",
        lines + pack,
        PRIVATE_TOKEN=shop.cell.token,
        Content_Type="application/x-git-receive-pack-request",
    )
    assert b"funny refname" in answer.body
    after = sorted(path for path in shop.cell.settings.data.rglob("*") if "objects" not in path.parts)
    assert {path for path in after if path not in before} <= {repo / "push-notes", *(repo / "push-notes").glob("*")}


def test_push_options_survive_a_stop_of_the_cell(tmp_path: Path) -> None:
    """The hook stores them in a note, which is read when the cell handles the refs later."""
    with ServedCell(tmp_path / "cell") as cell:
        shop = Shop(cell, tmp_path / "work")
        shop.clone.commit(**{".gitlab-ci.yml": PIPELINE})
        hooks = next((tmp_path / "cell").rglob("pre-receive")).parent
    [repo] = (tmp_path / "cell" / "repos").glob("*/*.git")
    bare = Clone(tmp_path / "bare")
    for key, value in (("core.hooksPath", str(hooks)), ("receive.advertisePushOptions", "true")):
        bare.run("--git-dir", str(repo), "config", key, value)
    shop.clone.run("push", "--quiet", "-o", "ci.variable=A=1", str(repo), "HEAD:refs/heads/main")
    with ServedCell(tmp_path / "cell") as cell:
        [pipeline] = cell.until_pipelines(1)
        variables = cell.api("GET", f"/projects/{pipeline['project_id']}/pipelines/{pipeline['id']}/variables").json()
        assert [(variable["key"], variable["value"]) for variable in variables] == [("A", "1")]


def test_changes_and_exists_on_real_commits(shop: Shop) -> None:
    file = "\n".join(
        (
            "always: {script: [x]}",
            "docs: {script: [x], rules: [{changes: [docs/**/*]}]}",
            "since-main: {script: [x], rules: [{changes: {paths: [docs/**/*], compare_to: main}}]}",
            "has-docker: {script: [x], rules: [{exists: ['**/Dockerfile']}]}",
        )
    )
    shop.clone.commit(**{".gitlab-ci.yml": file, "docs/a.md": "a", "src/a.c": "a"})
    shop.clone.push("main")
    assert shop.jobs() == ["always", "docs"], "in a new branch all files count as changed"
    shop.clone.commit(**{"src/a.c": "b", "src/Dockerfile": "FROM x"})
    shop.clone.push("main")
    assert shop.jobs() == ["always", "has-docker"]
    shop.clone.run("checkout", "--quiet", "-b", "feature")
    shop.clone.commit(**{"docs/a.md": "b"})
    shop.clone.push("feature")
    assert shop.jobs("feature") == ["always", "docs", "has-docker", "since-main"]
    shop.clone.commit(**{"src/a.c": "c"})
    shop.clone.push("feature")
    assert shop.jobs("feature") == ["always", "has-docker", "since-main"], "docs changed since main, not in this push"
    shop.clone.commit(**{".gitlab-ci.yml": file.replace("compare_to: main", "compare_to: nowhere")})
    shop.clone.push("feature")
    broken = shop.pipeline("feature")
    assert (broken["status"], 'no ref "nowhere"' in broken["yaml_errors"]) == ("failed", True)


def test_changes_of_a_merge_request(shop: Shop) -> None:
    rule = "rules: [{if: $CI_MERGE_REQUEST_IID, changes: [%s]}]"
    file = f"a: {{script: [x], {rule % 'a'}}}\nb: {{script: [x], {rule % 'b'}}}\n"
    shop.clone.commit(**{".gitlab-ci.yml": file, "a": "1", "b": "1"})
    shop.clone.push("main")
    shop.clone.run("checkout", "--quiet", "-b", "feature")
    shop.clone.commit(a="2")
    shop.clone.run("checkout", "--quiet", "main")
    shop.clone.commit(b="2")
    shop.clone.push("main")
    shop.clone.push("feature:refs/merge-requests/1/head")
    assert shop.jobs("refs/merge-requests/1/head") == ["a"], "what changed on main meanwhile does not count"


def test_pipelines_that_rules_filter_out(shop: Shop) -> None:
    never = "workflow: {rules: [{if: $GO}]}\n" + PIPELINE
    shop.clone.commit(**{".gitlab-ci.yml": never})
    shop.clone.push("main")
    assert shop.pipelines() == []
    refused = shop.cell.api("POST", f"/projects/{shop.id}/pipeline", {"ref": "main"})
    assert (refused.status, "filtered out by workflow rules" in str(refused.json())) == (400, True)
    shop.clone.commit(**{".gitlab-ci.yml": "only: {script: [x], rules: [{if: $GO}]}\n"})
    shop.clone.push("main")
    assert shop.pipelines() == []
    refused = shop.cell.api("POST", f"/projects/{shop.id}/pipeline", {"ref": "main"})
    assert (refused.status, "will not run for the selected trigger" in str(refused.json())) == (400, True)
    body = {"ref": "main", "variables": [{"key": "GO", "value": "1"}]}
    assert shop.cell.api("POST", f"/projects/{shop.id}/pipeline", body).status == 201


def test_the_number_of_pipelines_per_push_is_limited(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", pipelines_per_push=3) as cell:
        shop = Shop(cell, tmp_path / "work")
        shop.clone.commit(**{".gitlab-ci.yml": PIPELINE})
        shop.clone.push("main:a", "main:b", "main:c", "main:d", "main:main")
        assert sorted(pipeline["ref"] for pipeline in shop.pipelines()) == ["a", "b", "main"]
        shop.clone.push("main:e")
        assert sorted(pipeline["ref"] for pipeline in shop.pipelines()) == ["a", "b", "e", "main"], (
            "the other refs are not handled later"
        )


@pytest.mark.parametrize(
    ("head", "started", "expected"),
    [
        ("", 0, "canceled"),
        ("", 1, "running"),
        ("default: {interruptible: true}", 1, "canceled"),
        ("workflow: {auto_cancel: {on_new_commit: none}}", 0, "pending"),
    ],
)
def test_newer_commit_replaces_it(shop: Shop, runner: ScriptedRunner, head: str, started: int, expected: str) -> None:
    shop.clone.commit(**{".gitlab-ci.yml": f"{head}\na: {{script: [x]}}\nb: {{script: [x]}}\n"})
    shop.clone.push("main", "main:other")
    for _ in range(started):
        runner.put(runner.take(), "running")
    old = next(pipeline["id"] for pipeline in reversed(shop.pipelines()))
    assert next(pipeline["ref"] for pipeline in shop.pipelines() if pipeline["id"] == old) == "main"
    shop.clone.push("main:third")
    assert {pipeline["status"] for pipeline in shop.pipelines()} <= {"pending", "running"}, (
        "the same commit replaces nothing"
    )
    shop.clone.commit()
    shop.clone.push("main")
    statuses = {pipeline["id"]: pipeline["status"] for pipeline in shop.pipelines()}
    assert statuses.pop(old) == expected
    assert set(statuses.values()) == {"pending"}, "neither the newest nor those of other branches are canceled"


def test_only_interruptible_jobs_are_canceled(shop: Shop, runner: ScriptedRunner) -> None:
    head = "workflow: {auto_cancel: {on_new_commit: interruptible}}"
    jobs = "a: {script: [x]}\nb: {script: [x], interruptible: true}\n"
    shop.clone.commit(**{".gitlab-ci.yml": f"{head}\n{jobs}"})
    shop.clone.push("main")
    old = shop.pipeline()["id"]
    runner.put(runner.take(), "running")
    shop.clone.commit()
    shop.clone.push("main")
    rows = shop.cell.api("GET", f"/projects/{shop.id}/pipelines/{old}/jobs").json()
    assert {job["name"]: job["status"] for job in rows} == {"a": "running", "b": "canceled"}


def test_child_pipelines_are_replaced_with_their_parents(shop: Shop) -> None:
    child = "child: {trigger: {include: child.yml, strategy: depend}}\n"
    shop.clone.commit(**{".gitlab-ci.yml": child, "child.yml": PIPELINE})
    shop.clone.push("main")
    wait_until(lambda: bool(shop.pipelines(source="parent_pipeline")), "the child")
    old = [shop.pipeline()["id"], shop.pipelines(source="parent_pipeline")[0]["id"]]
    shop.clone.commit(README="newer")
    shop.clone.push("main")
    wait_until(lambda: len(shop.pipelines(source="parent_pipeline")) == 2, "the newer child")

    def statuses() -> dict[int, str]:
        both = shop.pipelines() + shop.pipelines(source="parent_pipeline")
        return {pipeline["id"]: pipeline["status"] for pipeline in both}

    wait_until(lambda: [statuses()[number] for number in old] == ["canceled"] * 2, "the end of the older ones")
    assert {status for number, status in statuses().items() if number not in old} <= {"pending", "running"}


def test_unreadable_pipeline_files(shop: Shop) -> None:
    def push_change(change: Callable[[Path], object]) -> dict[str, Any]:
        change(shop.clone.folder / ".gitlab-ci.yml")
        shop.clone.commit()
        shop.clone.push("main")
        return shop.pipeline()

    assert "not UTF-8 (byte 0)" in push_change(lambda file: file.write_bytes(b"\xff\xfe"))["yaml_errors"]
    assert "larger than 1048576 bytes" in push_change(lambda file: file.write_text("#" * 1_100_000))["yaml_errors"]
    assert ".gitlab-ci.yml:1:" in push_change(lambda file: file.write_text("a: {scripts: [x]}\n"))["yaml_errors"]


def test_few_objects_that_list_billions_of_files_are_refused(shop: Shop) -> None:
    shop.clone.commit(**{".gitlab-ci.yml": "a: {script: [x], rules: [{exists: ['none/*.x']}]}\n", "small": "x"})
    blob = shop.clone.run("rev-parse", "HEAD:small").stdout.strip()
    file = shop.clone.run("rev-parse", "HEAD:.gitlab-ci.yml").stdout.strip()
    tree = shop.clone.run("mktree", stdin="".join(f"100644 blob {blob}\tf{n}\n" for n in range(10))).stdout.strip()
    for _ in range(9):
        tree = shop.clone.run("mktree", stdin="".join(f"40000 tree {tree}\td{n}\n" for n in range(10))).stdout.strip()
    entries = f"100644 blob {file}\t.gitlab-ci.yml\n40000 tree {tree}\tbomb\n"
    root = shop.clone.run("mktree", stdin=entries).stdout.strip()
    shop.clone.run("update-ref", "HEAD", shop.clone.run("commit-tree", root, "-m", "Bomb").stdout.strip())
    shop.clone.push("main", "HEAD~0:refs/heads/other")
    assert "ls-tree lists more than" in shop.pipeline()["yaml_errors"]
    assert shop.pipeline("other")["status"] == "failed"
    added = {"branch": "main", "commit_message": "x", "actions": [{"action": "create", "file_path": "y"}]}
    assert shop.cell.api("POST", f"/projects/{shop.id}/repository/commits", added).status == 413


def test_an_internal_error_is_reported_in_the_pipeline(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("odd")

    shop.clone.commit(**{".gitlab-ci.yml": PIPELINE})
    with monkeypatch.context() as patched:
        patched.setattr("remuda.cell.pipelines.compilation.compile_pipeline", fail)
        shop.clone.push("main")
    assert "the log of the cell has the error" in shop.pipeline()["yaml_errors"]
    shop.clone.push("HEAD:refs/heads/other")
    assert shop.pipeline("other")["yaml_errors"] is None


def test_skip_ci_takes_precedence_over_mistakes_in_the_file(shop: Shop) -> None:
    shop.clone.commit("Half done [skip ci]", **{".gitlab-ci.yml": "a: {scripts: [x]}\n"})
    shop.clone.push("main")
    assert (shop.pipeline()["status"], shop.pipeline()["yaml_errors"]) == ("skipped", None)


def test_a_file_whose_name_is_not_utf_8(shop: Shop) -> None:
    shop.clone.commit(
        **{".gitlab-ci.yml": "include: {local: 'ci/*.yml'}\na: {script: [x]}\n", "ci/\udcff.yml": "b: 1\n"}
    )
    shop.clone.push("main")
    assert "ci/\ufffd.yml" in shop.pipeline()["yaml_errors"]
    assert shop.cell.api("GET", f"/projects/{shop.id}/ci/lint").json()["valid"] is False


def test_slow_compilation_does_not_block(shop: Shop, runner: ScriptedRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.clone.commit(**{".gitlab-ci.yml": PIPELINE})
    shop.clone.push("main")
    job = runner.take()
    begun, go_on = threading.Semaphore(0), threading.Event()

    def compile_slowly(*_: object, **__: object) -> None:
        begun.release()
        assert go_on.wait(60)
        raise InvalidError("no more")

    monkeypatch.setattr("remuda.cell.pipelines.compilation.compile_pipeline", compile_slowly)
    with ThreadPoolExecutor(40) as callers:
        calls = [callers.submit(shop.cell.api, "POST", f"/projects/{shop.id}/pipeline?ref=main") for _ in range(40)]
        try:
            for _ in range(COMPILATIONS):
                assert begun.acquire(timeout=30)
            assert runner.put(job, "success").status == 200, "the end of a job uses a thread, too"
        finally:
            go_on.set()
        assert {call.result().status for call in calls} == {400}


def test_a_push_counts_as_activity_of_its_project(cell: ServedCell) -> None:
    project = cell.new_project("app")
    path = f"/projects/{project}"
    before = cell.api("GET", path).json()
    assert before["last_activity_at"] == before["created_at"]
    commit_file(cell, project, "text", path="a.txt")
    wait_until(lambda: cell.api("GET", path).json()["last_activity_at"] > before["created_at"], "the push is noted")
