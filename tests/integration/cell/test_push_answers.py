"""A push is answered with the pipelines that it starts: `remote:` lines of the real git client."""

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.support.cells.page_client import PageClient
from tests.support.cells.served_cell import ScriptedRunner, ServedCell
from tests.support.git_client import Clone

from remuda.cell.core.pipelines.push_messages import SHOWN_REFS
from remuda.cell.dispatch.explanations import Explanations
from remuda.cell.git.repositories import GitRepos
from remuda.cell.http.git import push_answer
from remuda.cell.pipelines import compilation, creation
from remuda.cell.projects.projects import Projects
from remuda.cell.web_settings import WebSettings
from remuda.testing.waiting import wait_until

TWO_STAGES = """
stages: [build, test]
compile: {stage: build, script: [make]}
lint: {stage: build, script: [make lint]}
unit: {stage: test, script: [make test]}
"""
BROKEN = "build:\n  scrip: [make]\ntest:\n  script: [make]\n  needs: [biuld]\n"


class Work:
    """A clone of the empty project `root/app`."""

    def __init__(self, cell: ServedCell, folder: Path) -> None:
        self.cell = cell
        self.id = cell.new_project("app")
        self.clone = Clone(folder)
        self.clone.run("init", "--quiet", "-b", "main")
        url = cell.url.replace("://", f"://oauth2:{cell.token}@")
        self.clone.run("remote", "add", "origin", f"{url}/root/app.git")

    def push(self, *words: str, ok: bool = True) -> list[str]:
        """Push. Returns the lines that git shows as the server's, without `remote: ` and without empty ones."""
        shown = self.clone.run("push", "origin", *words, ok=ok).stderr
        lines = [line[len("remote:") :].strip() for line in re.split("[\r\n]", shown) if line.startswith("remote:")]
        assert all(len(line.rstrip()) <= 80 for line in re.split("[\r\n]", shown) if line.startswith("remote:")), shown
        return [line for line in lines if line]

    def push_file(self, text: str, *words: str) -> str:
        """Commit and push a pipeline file. Returns the answer as one text, its lines joined with spaces."""
        self.clone.commit(**{".gitlab-ci.yml": text})
        return " ".join(self.push(*(words or ("main",))))

    def pipelines(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.cell.api("GET", f"/projects/{self.id}/pipelines").json()
        return rows


@pytest.fixture
def work(cell: ServedCell, tmp_path: Path) -> Work:
    return Work(cell, tmp_path / "work")


def test_number_address_and_first_jobs(work: Work, runner: ScriptedRunner) -> None:
    runner.ask()
    answer = work.push_file(TWO_STAGES)
    [pipeline] = work.pipelines()
    assert answer == f"Pipeline {pipeline['id']} of main: 3 jobs, first compile and lint {pipeline['web_url']}"


def test_the_address_leads_to_the_pages_of_the_pipeline_and_its_jobs(work: Work) -> None:
    address = next(word for word in work.push_file(TWO_STAGES).split() if word.startswith("http"))
    job = work.cell.api("GET", f"/projects/{work.id}/jobs").json()[0]
    visitor = PageClient(work.cell)
    for page in (address, job["web_url"]):
        path = page.removeprefix(work.cell.url)
        asked = visitor.get(path)
        assert (asked.status, asked.headers["Location"]) == (303, f"/-/sign-in?return_to={quote(path, safe='')}")
    visitor.sign_in(work.cell.token)
    for page, name in ((address, "compile"), (job["web_url"], job["name"])):
        shown = visitor.get(page.removeprefix(work.cell.url))
        assert shown.status == 200
        assert name.encode() in shown.body
    for page in ("/root/app/-/pipelines/x", "/root/app/-/nothing/1", "/-/pipelines/1"):
        assert visitor.get(page).status == 404


def test_without_pages_the_address_leads_to_the_pipeline_and_its_jobs_in_the_api(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", web=WebSettings(enabled=False)) as cell:
        work = Work(cell, tmp_path / "work")
        address = next(word for word in work.push_file(TWO_STAGES).split() if word.startswith("http"))
        [pipeline] = work.pipelines()
        job = cell.api("GET", f"/projects/{work.id}/jobs").json()[0]
        for page, what in ((address, pipeline), (job["web_url"], job)):
            redirect = cell.send("GET", page.removeprefix(cell.url))
            assert redirect.status == 302
            target = redirect.headers["Location"].removeprefix(cell.url)
            assert cell.send("GET", target, PRIVATE_TOKEN=cell.token).json()["id"] == what["id"]
            assert cell.send("GET", target).status == 401
        for page in ("/", "/-/sign-in", "/root/app/-/pipelines/x", "/root/app/-/pipelines/", "/root/app/-/nothing/1"):
            assert cell.send("GET", page).status == 404


def test_each_ref_of_a_push(work: Work, runner: ScriptedRunner) -> None:
    runner.ask()
    work.clone.commit(**{".gitlab-ci.yml": f"workflow: {{rules: [{{when: always}}]}}\n{TWO_STAGES}"})
    work.clone.run("tag", "-a", "v1", "-m", "one")
    answer = work.push("main", "v1", "main:refs/merge-requests/7/head", "main:topic")
    numbers = {row["ref"]: row["id"] for row in work.pipelines()}
    assert answer[0::2] == [
        f"Pipeline {numbers[ref]} of {name}: 3 jobs, first compile and lint"
        for ref, name in (
            ("main", "main"),
            ("v1", "tag v1"),
            ("refs/merge-requests/7/head", "merge request !7"),
            ("topic", "topic"),
        )
    ]
    assert work.push(":topic", ":refs/merge-requests/7/head") == []


def test_all_mistakes_with_place_and_cure(work: Work) -> None:
    answer = work.push_file(BROKEN)
    [pipeline] = work.pipelines()
    assert pipeline["status"] == "failed"
    assert answer.startswith(f"error: pipeline {pipeline['id']} of main failed: 2 mistakes in .gitlab-ci.yml"), answer
    details = work.cell.api("GET", f"/projects/{work.id}/pipelines/{pipeline['id']}").json()
    mistakes = details["yaml_errors"].split("\n")
    assert len(mistakes) == 2
    for mistake in mistakes:
        assert re.match(r"\.gitlab-ci\.yml:\d+:\d+: ", mistake)
        assert mistake in answer
    assert answer.endswith(pipeline["web_url"])


def test_an_included_files_mistake_has_that_files_place(work: Work) -> None:
    work.clone.write(**{"ci/jobs.yml": "build:\n  script: 5\n  stage: nowhere\n"})
    assert "ci/jobs.yml:3:10: build:stage: " in work.push_file("include: ci/jobs.yml\n")


def test_warnings(work: Work, runner: ScriptedRunner) -> None:
    runner.ask()
    text = "build:\n  script: [a]\n  script: [b]\n"
    answer = work.push_file(text)
    assert "of main: 1 job, first build" in answer
    assert "warning: .gitlab-ci.yml:3:3: script: " in answer
    broken = work.push_file(text + "  tag: [x]\n")
    assert "1 mistake in .gitlab-ci.yml" in broken
    assert "warning: .gitlab-ci.yml:3:3: script: " in broken


def test_skipped(work: Work) -> None:
    work.clone.commit("Later [ci skip]", **{".gitlab-ci.yml": TWO_STAGES})
    assert (
        work.push("main")[0]
        == f"Pipeline {work.pipelines()[0]['id']} of main is skipped: the commit message asks for it"
    )
    answer = work.push("-o", "ci.skip", "main:topic")
    assert answer[0] == f"Pipeline {work.pipelines()[0]['id']} of topic is skipped: the push option ci.skip asks for it"


def test_no_pipeline_and_why(work: Work) -> None:
    work.clone.commit(README="nothing")
    assert work.push("main") == ["No pipeline for main: there is no file .gitlab-ci.yml"]
    never = "build:\n  script: [make]\n  rules: [{if: $CI_COMMIT_TAG}]\n"
    answer = work.push_file(never)
    assert answer.startswith("No pipeline for main: the rules of the jobs leave no job"), answer
    assert "build: no rule matched" in answer
    workflow = "workflow: {rules: [{when: never}]}\nbuild: {script: [make]}\n"
    assert work.push_file(workflow) == "No pipeline for main: the rule of workflow:rules on line 1 says never"
    assert work.pipelines() == []


def test_many_refs_that_start_nothing_are_joined(work: Work) -> None:
    work.clone.commit(README="nothing")
    answer = " ".join(work.push("main", *(f"main:b{number}" for number in range(8))))
    assert answer == "No pipeline for main, b0, b1, b2, b3 and 4 more: there is no file .gitlab-ci.yml"


def test_a_push_of_too_many_refs(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", pipelines_per_push=1) as cell:
        work = Work(cell, tmp_path / "work")
        answer = work.push_file(TWO_STAGES, "main", "main:a", "main:b")
        assert "No pipeline for a and b: a push starts at most 1" in answer


def test_rejected_refs_are_not_named(work: Work) -> None:
    work.push_file(TWO_STAGES)
    work.clone.run("commit", "--quiet", "--amend", "-m", "Another")
    shown = work.clone.run("push", "--force", "origin", "main", "main:topic", ok=False).stderr
    assert "Pipeline" not in shown


def test_invalid_push_options(work: Work) -> None:
    answer = work.push_file(TWO_STAGES, "-o", "ci.variable=no value", "main")
    assert "warning: push option ci.variable=no value has no effect: its value is not valid" in answer


def test_jobs_that_no_runner_takes(work: Work, runner: ScriptedRunner) -> None:
    runner.ask()
    answer = work.push_file("a: {script: [x], tags: [gpu]}\nb: {script: [x], tags: [gpu]}\nc: {script: [x]}\n")
    assert "warning: a, b wait for a runner: no runner has the tag gpu: register one or change the tags" in answer


def test_lists_and_why_name_jobs_that_no_runner_takes(work: Work, runner: ScriptedRunner) -> None:
    runner.ask()
    work.push_file(
        "stages: [one, two]\n"
        "a: {stage: one, script: [x], tags: [gpu]}\n"
        "b: {stage: one, script: [x]}\n"
        "c: {stage: two, script: [x], tags: [gpu]}\n"
    )
    reason = "no runner has the tag gpu: register one or change the tags"
    jobs = {job["name"]: job for job in work.cell.api("GET", f"/projects/{work.id}/jobs").json()}
    assert {name: job.get("no_runner_reason") for name, job in jobs.items()} == {"a": reason, "b": None, "c": reason}
    assert work.cell.api("GET", f"/projects/{work.id}/jobs/{jobs['a']['id']}").json()["no_runner_reason"] == reason
    why = work.cell.send("GET", f"/api/remuda/v1/jobs/{jobs['c']['id']}/why", PRIVATE_TOKEN=work.cell.token).json()
    assert why["advice"] == [f"it will then wait for a runner: {reason}"]


def test_control_characters_do_not_reach_the_terminal(work: Work) -> None:
    name = "x\u202e\u009b31m"
    jobs = '"x\\e[1m\u202e":\n  scrip: "\\e]0;owned\\a"\n"b\\ec": {script: [x], nees: 1}\n'
    work.clone.commit(**{".gitlab-ci.yml": jobs})
    shown = work.clone.run("push", "origin", f"main:refs/heads/{name}").stderr
    lines = [line.rstrip() for line in shown.split("\n") if line.startswith("remote: ")]
    assert r"remote: error: pipeline 1 of x\u202e\x9b31m failed: 2 mistakes in .gitlab-ci.yml" in lines
    assert any(r"x\x1b[1m\u202e:scrip: unknown key" in line for line in lines), lines
    assert all(line.isprintable() for line in lines)


def test_very_many_mistakes_are_limited(work: Work) -> None:
    answer = work.push_file("".join(f"job{number}:\n  scrip: [make]\n" for number in range(600)))
    assert "more mistakes; see all of them" in answer
    assert len(answer) < 20_000


@pytest.fixture
def slow_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Pipeline files are not compiled before the event is set."""
    go_on = threading.Event()
    compile_request = compilation.compile_request

    def wait(*arguments: Any) -> Any:
        assert go_on.wait(30)
        return compile_request(*arguments)

    monkeypatch.setattr(creation, "compile_request", wait)
    monkeypatch.setattr(push_answer, "HOLD_SECONDS", 0.2)
    yield go_on
    go_on.set()


def test_a_slow_compilation_does_not_hold_the_push(work: Work, slow_compiler: threading.Event) -> None:
    answer = work.push_file(TWO_STAGES)
    assert work.pipelines() == []
    assert answer.startswith("The pipeline of main is still being created; that goes on without you."), answer
    slow_compiler.set()
    wait_until(lambda: len(work.pipelines()) == 1, "the pipeline is created")


def test_a_push_that_deletes_many_refs_runs_git_for_few(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    work.clone.commit(README="nothing")
    gone = [f"refs/heads/gone{number}" for number in range(40)]
    work.push("main", *(f"main:{ref}" for ref in gone))
    looked_for = []
    commit_of = GitRepos.commit_of

    async def note(self: GitRepos, repo: str, ref: str) -> str | None:
        looked_for.append(ref)
        return await commit_of(self, repo, ref)

    monkeypatch.setattr(GitRepos, "commit_of", note)
    assert work.push(*(f":{ref}" for ref in gone)) == []
    assert len([ref for ref in looked_for if ref in gone]) <= SHOWN_REFS


def test_an_answer_that_takes_long_goes_without_text(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Explanations, "explain_missing_runners", wait)
    monkeypatch.setattr(push_answer, "DESCRIBE_SECONDS", 0.1)
    assert work.push_file(TWO_STAGES) == ""
    assert len(work.pipelines()) == 1


def test_a_pipeline_that_another_process_has_created(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    # Another process may start the pipelines of this push together with its own; then only the store knows of them.
    monkeypatch.setattr(Projects, "_note_outcome", lambda *_: None)
    work.clone.commit(**{".gitlab-ci.yml": TWO_STAGES})
    work.clone.run("tag", "v1")
    answer = work.push("main", "v1")
    assert [line for line in answer if line.startswith("Pipeline")] == [
        f"Pipeline {row['id']} of {name}: 3 jobs, first compile and lint"
        for row, name in zip(work.pipelines()[::-1], ("main", "tag v1"), strict=True)
    ]
    work.clone.commit(**{".gitlab-ci.yml": BROKEN})
    assert " failed: .gitlab-ci.yml:2:3: build:scrip: " in " ".join(work.push("main"))


def test_a_client_without_sideband_gets_gits_answer_unchanged(work: Work) -> None:
    sha = work.clone.commit(**{".gitlab-ci.yml": BROKEN})
    pack = work.clone.folder / "pack"
    packed = work.clone.run("pack-objects", "--all", "-q", str(pack)).stdout.strip()
    line = f"{'0' * 40} {sha} refs/heads/main\0 report-status"
    body = f"{len(line) + 4:04x}{line}0000".encode() + Path(f"{pack}-{packed}.pack").read_bytes()
    answer = work.cell.send(
        "POST",
        "/root/app.git/git-receive-pack",
        body,
        PRIVATE_TOKEN=work.cell.token,
        Content_Type="application/x-git-receive-pack-request",
    )
    assert answer.body == b"000eunpack ok\n0017ok refs/heads/main\n0000"
    assert [row["status"] for row in work.pipelines()] == ["failed"]
