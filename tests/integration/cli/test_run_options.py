"""Options of `remuda run`: job selection, variables, reports, artifacts, caches, other projects, --watch, --keep."""

import json
import os
import pty
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.git_client import Clone

from remuda.testing.waiting import wait_until

MakePipeline = Callable[[str], Path]


@pytest.fixture
def repo(world: Any) -> Callable[..., Clone]:
    """A function that makes a repository with these files in its first commit."""

    def make(name: str, **files: str) -> Clone:
        clone = Clone(world.folder / name, world.environment())
        clone.git("init", "--quiet", "--initial-branch=main")
        clone.commit(**files)
        return clone

    return make


def run_json(world: Any, *arguments: str | Path, code: int = 0, **options: Any) -> dict[str, Any]:
    result = world.remuda("run", *arguments, "--output", "json", **options)
    assert result.code == code, result.out + result.err
    document: dict[str, Any] = json.loads(result.out)
    return document


def statuses(jobs: list[dict[str, Any]]) -> dict[str, str]:
    return {job["name"]: job["status"] for job in jobs}


SELECTION = """
spec: {inputs: {level: {default: low}}}
---
stages: [build, test, deploy]
compile:
  stage: build
  script: ['echo "$GREETING $NAME $[[ inputs.level ]] $CI_PIPELINE_SOURCE" > said']
  artifacts: {paths: [said]}
lint: {stage: build, script: [exit 1]}
unit:
  stage: test
  needs: [compile]
  parallel: {matrix: [{OS: [linux, mac]}]}
  script: ['test "$(cat said)" = "$WANTED"']
scheduled:
  stage: test
  script: [exit 1]
  rules: [{if: $CI_PIPELINE_SOURCE == "schedule"}]
ask: {stage: deploy, when: manual, allow_failure: false, script: [echo asked]}
"""


def test_the_list_starts_nothing(world: Any, pipeline: MakePipeline) -> None:
    result = world.remuda("run", pipeline(SELECTION), "--list")
    assert result.code == 0, result.err
    assert "5 jobs in 3 stages, 1 left out by rules" in result.out
    assert "scheduled  no rule matched" in result.out


def test_chosen_jobs_run_with_the_given_variables_inputs_and_event(world: Any, pipeline: MakePipeline) -> None:
    (world.folder / "some.env").write_text("GREETING=hello\nNAME=nobody\n")
    variables = ["--variable", "NAME=world", "--variable", "WANTED=hello world high web"]
    options = ["--variables-file", "some.env", *variables, "--input", "level=high", "--event", "web"]
    folder = pipeline(SELECTION)
    document = run_json(world, folder, "unit", *options)
    assert statuses(document["jobs"]) == dict.fromkeys(["compile", "unit: [linux]", "unit: [mac]"], "success")
    document = run_json(world, folder, "--stage", "deploy", "--no-needs", *options, code=1)
    assert statuses(document["jobs"]) == {"ask": "manual"}


def test_whole_logs_are_shown_on_request(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline("good:\n  script: [echo it-$((40 + 2))]\n")
    assert "  it-42\n" not in world.remuda("run", folder).out
    result = world.remuda("run", folder, "--logs")
    assert (result.code, "log of good (job 1):" in result.out, "  it-42\n" in result.out) == (0, True, True), result.out
    document = json.loads(world.remuda("run", folder, "--logs", "--output", "json").out)
    assert "it-42" in document["jobs"][0]["log_tail"]


def test_manual_jobs_are_started_when_asked_for(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline(
        "stages: [a, b]\nfirst: {stage: a, when: manual, allow_failure: false, script: [echo]}\n"
        "second: {stage: b, when: manual, script: [echo]}\nthird: {stage: b, script: [echo]}\n"
    )
    blocked = run_json(world, folder, code=1)
    assert statuses(blocked["jobs"]) == {"first": "manual", "second": "created", "third": "created"}
    first_played = run_json(world, folder, "--manual", "first")
    assert statuses(first_played["jobs"]) == {"first": "success", "second": "manual", "third": "success"}
    all_played = run_json(world, folder, "--play-manual")
    assert set(statuses(all_played["jobs"]).values()) == {"success"}
    selected = run_json(world, folder, "--job", "second", "--no-needs")
    assert statuses(selected["jobs"]) == {"second": "success"}


WITH_REPORTS = """
unit:
  script:
    - mkdir out && echo built > out/file && exit 1
  artifacts:
    when: always
    paths: [out]
    reports: {junit: "*.xml", dotenv: build.env}
  before_script: [echo VERSION=1 > build.env]
"""
JUNIT = """<testsuite name="py"><testcase classname="test_a" name="test_one" file="test_a.py" line="3">
<failure message="assert 1 == 2">E assert 1 == 2</failure></testcase><testcase name="test_two"/></testsuite>"""


def test_reports_are_summarized_and_artifacts_are_written_to_a_folder(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline(WITH_REPORTS)
    (folder / "a.xml").write_text(JUNIT)
    (folder / "b.xml").write_text('<testsuite><testcase name="test_three"/></testsuite>')
    result = world.remuda("run", folder, "--artifacts", "out")
    assert result.code == 1, result.out + result.err
    assert "tests of unit: 2 passed, 1 failed" in result.out
    assert "failed in unit: test_a: test_one (test_a.py:3)\n  E assert 1 == 2\n" in result.out
    job_folder = world.folder / "out" / "unit"
    assert (job_folder / "out" / "file").read_text() == "built\n"
    assert (job_folder / "reports" / "junit.xml").read_text() == JUNIT
    assert (job_folder / "reports" / "junit-2.xml").exists()
    assert (job_folder / "reports" / "dotenv.env").read_text() == "VERSION=1\n"


def test_caches_are_kept_between_runs_unless_disabled_or_moved(world: Any, repo: Callable[..., Clone]) -> None:
    script = "build: {cache: {key: k, paths: [dep]}, script: [ls -a dep, mkdir -p dep, touch dep/x]}\n"
    folder = repo("cached", **{".gitlab-ci.yml": script, "dep/.keep": ""}).folder

    def has_cache(*options: str) -> bool:
        """Run the pipeline; return True if the job found the files of the previous run."""
        result = world.remuda("run", folder, *options, "--output", "json", "--keep")
        assert result.code == 0, result.err
        data_folder = Path(result.err.rpartition("kept: ")[2].strip())
        logs = b"".join(path.read_bytes() for path in data_folder.glob("cell/traces/**/*") if path.is_file())
        return b" x\n" in logs

    assert not has_cache()
    assert has_cache()
    assert not has_cache("--no-cache")
    assert not has_cache("--cache-dir", "mine")
    assert has_cache("--cache-dir", "mine")
    assert (world.folder / "mine").is_dir()


def test_downstream_pipelines_run_whatever_the_tags_of_their_jobs(world: Any, repo: Callable[..., Clone]) -> None:
    shop = repo(
        "shop",
        **{
            ".gitlab-ci.yml": (
                "include: [{project: acme/ci, file: jobs.yml}, {component: $CI_SERVER_FQDN/acme/ci/lint@~latest}]\n"
                "child: {trigger: {include: child.yml, strategy: depend}}\n"
                "elsewhere: {trigger: {project: acme/other, strategy: depend}, variables: {FROM: shop}}\n"
                "loose: {trigger: {include: bad.yml}}\n"
            ),
            "child.yml": "inner: {tags: [rare], script: [echo]}\n",
            "bad.yml": "broken: {script: [exit 1]}\n",
        },
    )
    shop.git("remote", "add", "origin", "https://git.example.org/acme/shop.git")
    ci = repo(
        "ci",
        **{
            "jobs.yml": "included: {script: [echo]}\n",
            "templates/lint.yml": "linted: {script: [echo]}\n",
        },
    )
    ci.git("tag", "1.2.3")
    other = repo("other", **{".gitlab-ci.yml": "there: {script: ['test \"$FROM\" = shop']}\n"})
    projects = ["--project", f"acme/ci={ci.folder}", "--project", f"acme/other={other.folder}"]
    document = run_json(world, shop.folder, *projects)
    jobs = {job["name"]: job for job in document["jobs"]}
    assert statuses(document["jobs"]) == dict.fromkeys(["included", "linted", "child", "elsewhere", "loose"], "success")
    assert statuses(jobs["child"]["downstream"]["jobs"]) == {"inner": "success"}
    assert jobs["elsewhere"]["downstream"]["project"] == "acme/other"
    assert jobs["loose"]["downstream"]["status"] == "failed"
    text = world.remuda("run", shop.folder, *projects)
    assert "child > inner" in text.out
    assert "1 pipeline that it started failed" in text.out


def test_a_branch_is_compared_with_what_the_server_has(world: Any, repo: Callable[..., Clone]) -> None:
    origin = repo(
        "origin",
        **{
            ".gitlab-ci.yml": (
                "a: {script: [echo], rules: [{changes: [a/*]}]}\n"
                "b: {script: [echo], rules: [{changes: [b/*]}]}\n"
                "c: {script: [git describe], rules: [{changes: {paths: [c/*], compare_to: old}}]}\n"
            ),
            "a/x": "1",
            "b/x": "1",
        },
    )
    origin.git("branch", "old")
    origin.commit(**{"c/x": "1"})
    origin.git("tag", "-a", "-m", "one", "v1")
    clone = world.folder / "clone"
    origin.git("clone", "--quiet", str(origin.folder), str(clone))
    (clone / "b" / "new").write_text("uncommitted")
    document = run_json(world, clone)
    assert statuses(document["jobs"]) == {"b": "success", "c": "success"}


def test_a_kept_data_folder_accepts_rewritten_history(world: Any, repo: Callable[..., Clone]) -> None:
    """A run replaces the commits of the protected branch, and pushes the commit of `compare_to`, which has no ref."""
    shop = repo("shop", **{"a/x": "1"})
    base = shop.git("rev-parse", "HEAD")
    job = f"a: {{script: [cat a/y], rules: [{{changes: {{paths: [a/*], compare_to: {base}}}}}]}}\n"
    shop.commit(**{".gitlab-ci.yml": job, "a/y": "1"})
    for number in range(2):
        (shop.folder / "a/y").write_text(f"uncommitted {number}")
        document = run_json(world, shop.folder, "--data", "kept")
        assert statuses(document["jobs"]) == {"a": "success"}
        shop.git("commit", "--quiet", "--amend", "--message", f"Another past {number}")


def test_watch_runs_again_when_files_change(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline("job: {script: [cat note]}\n")
    (folder / "note").write_text("first")
    process = world.start("run", folder, "--watch")
    marker = world.folder / "said"

    def read_until(text: str) -> str:
        output = ""
        while text not in output:
            ready, _, _ = select.select([process.stdout, process.stderr], [], [], 30)
            assert ready, output
            piece = os.read(ready[0].fileno(), 65536).decode()
            assert piece, output
            output += piece
        return output

    read_until("waiting for changes")
    (folder / ".gitlab-ci.yml").write_text("job: {scirpt: [echo]}\n")
    assert 'did you mean "script"' in read_until("waiting for changes")
    (folder / ".gitlab-ci.yml").write_text(f"job: {{script: [touch {marker}]}}\n")
    wait_until(marker.exists, "the pipeline runs again")
    read_until("waiting for changes")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    wait_until(world.is_empty, "no processes or files are left")


FAILING = "job:\n  variables: {WHO: me}\n  script: [echo here > left, exit 3]\n"


def test_the_folder_of_a_failed_job_can_be_kept(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline(FAILING)
    result = world.remuda("run", folder, "--keep")
    assert result.code == 1
    script = result.err.partition("sh ")[2].split()[0]
    command = ["/bin/sh", script]
    shell = world.folder / "shell"
    shell.write_text('#!/bin/sh\necho "$WHO $(cat left) $CI_JOB_STATUS"\n')
    shell.chmod(0o755)
    output = subprocess.check_output(command, env=world.environment(SHELL=str(shell)), text=True)
    assert output == "me here failed\n"
    errors = world.remuda("run", folder, "--shell-on-failure").err
    assert "there is no terminal; with --keep" in errors
    assert "kept:" not in errors


def test_on_a_terminal_a_shell_opens_where_the_job_failed(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline(FAILING)
    shell = world.folder / "shell"
    shell.write_text(f'#!/bin/sh\necho "$WHO $(cat left)" > {world.folder}/said\n')
    shell.chmod(0o755)
    outer, inner = pty.openpty()
    process = world.start_on(inner, "run", folder, "--shell-on-failure", SHELL=str(shell))
    os.close(inner)
    output = b""
    while True:
        try:
            piece = os.read(outer, 65536)
        except OSError:
            break
        if not piece:
            break
        output += piece
    os.close(outer)
    assert process.wait(30) == 1, output
    assert (world.folder / "said").read_text() == "me here\n"
    assert b"a shell where job failed" in output
    wait_until(world.is_empty, "no processes or files are left")
