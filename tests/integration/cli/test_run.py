"""`remuda run` as a process, with a real cell, manager and agent: results, output, exit codes, bad input, examples."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.git_client import Clone

from remuda.testing.waiting import wait_until

MakePipeline = Callable[[str], Path]


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        ("hello", ["goodbye  success", "pipeline success"]),
        ("build-test-package", ["test 4/4  success", "package   success", "7 success"]),
        ("calculator", ["verify      success", "4 success"]),
    ],
)
def test_an_example_succeeds(world: Any, examples: Path, example: str, expected: list[str]) -> None:
    result = world.remuda("run", examples / example)
    assert result.code == 0, result.out + result.err
    for text in [*expected, "where the time went"]:
        assert text in result.out
    assert result.err == ""
    assert world.is_empty()


def test_the_failing_example_shows_the_log_and_ends_with_1(world: Any, examples: Path) -> None:
    result = world.remuda("run", examples / "failing")
    assert result.code == 1, result.out + result.err
    assert result.out.count("unit tests | test_division ... FAILED, 1 / 3 is not 0.3\n") == 1
    assert "end of the log" not in result.out
    assert re.search(r"\nunit tests \(job \d+\) failed: script_failure, .*; its log is above\n", result.out)
    assert "and knows that the job failed" in result.out
    assert "section_start" not in result.out
    assert "style       failed" in result.out
    assert "exit code 4, allowed to fail" in result.out
    assert "deploy      skipped" in result.out
    assert "clean up    success" in result.out
    assert world.is_empty()


def test_make_demo_shows_the_logs_of_the_examples(world: Any, examples: Path) -> None:
    # The environment of this test is not made again, also if it is older than its requirements.
    command = ["make", "--no-print-directory", "--old-file=setup", f"BIN={sys.prefix}/bin", "demo"]
    environment = world.environment() | {"MAKEFLAGS": ""}
    done = subprocess.run(command, cwd=examples.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for example, line in (
        ("hello", r"hello +\| Hello, .*"),
        ("failing", r"unit tests +\| test_division \.\.\. FAILED.*"),
    ):
        section = done.stdout.partition(f"== remuda run examples/{example}")[2].partition("\n== ")[0]
        assert re.search(rf"^{line}$", section, re.MULTILINE), section
    assert "All examples did what they should." in done.stdout
    assert "run --follow" in (examples.parent / "Makefile").read_text().partition("\ndemo:")[2].partition("\n\n")[0]
    assert world.is_empty()


def test_exit_codes_of_signals_decide_about_allowed_failures_and_retries(
    world: Any, pipeline: MakePipeline, tmp_path: Path
) -> None:
    folder = pipeline(
        f"""
allowed: {{script: [kill -TERM $$], allow_failure: {{exit_codes: [143]}}}}
again: {{script: ["mkdir {tmp_path}/again || exit 0", kill -KILL $$], retry: {{max: 1, exit_codes: [137]}}}}
other: {{script: ["mkdir {tmp_path}/other || exit 0", kill -TERM $$], retry: {{max: 1, exit_codes: [1]}}}}
"""
    )
    result = world.remuda("run", folder, "--output", "json")
    jobs = {job["name"]: job for job in json.loads(result.out)["jobs"]}
    assert {name: (job["status"], job["exit_code"], job["allow_failure"]) for name, job in jobs.items()} == {
        "allowed": ("failed", 143, True),
        "again": ("success", 0, False),
        "other": ("failed", 143, False),
    }


def test_json_is_one_document_on_stdout(world: Any, examples: Path) -> None:
    result = world.remuda("run", examples / "failing", "--output", "json")
    assert result.code == 1
    document = json.loads(result.out)
    assert document["status"] == "failed"
    assert document["exit_code"] == 1
    jobs = {job["name"]: job for job in document["jobs"]}
    assert {name: job["status"] for name, job in jobs.items()} == {
        "style": "failed",
        "unit tests": "failed",
        "deploy": "skipped",
        "clean up": "success",
    }
    failed = jobs["unit tests"]
    assert (failed["failure_reason"], failed["exit_code"]) == ("script_failure", 3)
    assert failed["waiting"] >= 0
    assert failed["duration"] > 0
    assert any("FAILED" in line for line in failed["log_tail"])
    steps = {step["name"]: step["status"] for step in failed["steps"]}
    assert steps["script"] == "failure"
    assert steps["after_script"] == "success"
    assert "unit tests  failed" in result.err


def test_coverage_and_templates_in_a_sub_folder(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline(
        r"""
include: [{template: Workflows/Branch-Pipelines.gitlab-ci.yml}, {template: Mine.gitlab-ci.yml}]
unit:
  inputs: {percent: {type: number, default: 87.5}}
  script: ["echo TOTAL ${{ job.inputs.percent }}%"]
  coverage: '/TOTAL ([\d.]+)%/'
"""
    )
    clone = Clone(folder, world.environment())
    clone.git("init", "--quiet", "--initial-branch=main")
    clone.git("add", "-A")
    clone.git("commit", "--quiet", "--message", "First")
    (folder / "sub").mkdir()
    (folder / "templates").mkdir()
    (folder / "templates/Mine.gitlab-ci.yml").write_text("mine: {script: [echo mine]}\n")
    arguments = ("run", folder / "sub", "--templates", folder / "templates")
    result = world.remuda(*arguments)
    assert result.code == 0, result.out + result.err
    assert "coverage 87.5%" in result.out
    assert f"using the repository around it: {folder}" in result.err
    document = json.loads(world.remuda(*arguments, "--output", "json").out)
    assert {job["name"]: job["coverage"] for job in document["jobs"]} == {"unit": 87.5, "mine": None}


def test_modules_of_the_repository_are_not_imported(world: Any, pipeline: MakePipeline) -> None:
    """A repository may have a logging.py; `remuda run` in that folder must not import it."""
    folder = pipeline("job:\n  script: [echo hi > kept]\n  artifacts: {paths: [kept]}\n")
    for name in ("argparse", "logging", "zipfile"):
        (folder / f"{name}.py").write_text("raise SystemExit('a module of the repository was imported')\n")
    command = [str(Path(sys.executable).with_name("remuda")), "run"]
    result = subprocess.run(command, cwd=folder, env=world.environment(), capture_output=True, text=True, timeout=30)
    assert result.returncode == 0, result.stdout + result.stderr
    command = [str(Path(sys.executable).with_name("remuda")), "agent", "serve", "--", "--help"]
    result = subprocess.run(command, cwd=folder, env=world.environment(), capture_output=True, text=True, timeout=30)
    assert "--idle-exit" in result.stdout, result.stderr


def test_artifacts_are_unpacked(world: Any, examples: Path) -> None:
    result = world.remuda("run", examples / "calculator", "--artifacts", "out")
    assert result.code == 0, result.out + result.err
    packed = world.folder / "out" / "package" / "dist" / "calculator.pyz"
    assert subprocess.check_output([packed, "1 + 2"], text=True) == "3\n"


def test_uncommitted_work_runs_and_the_repository_stays_as_it_is(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline('check:\n  script: [test "$(cat note)" = new, test ! -e ignored, test ! -e gone]\n')
    (folder / "note").write_text("old")
    (folder / "gone").write_text("x")
    (folder / ".gitignore").write_text("ignored\n")

    clone = Clone(folder, world.environment())
    clone.git("init", "--quiet", "--initial-branch=trunk")
    clone.git("add", "-A")
    clone.git("commit", "--quiet", "--message", "First")
    (folder / "note").write_text("new")
    (folder / "ignored").write_text("x")
    (folder / "gone").unlink()
    before = (clone.git("status", "--porcelain"), sorted(str(path) for path in folder.rglob("*")))

    result = world.remuda("run", cwd=folder)

    assert result.code == 0, result.out + result.err
    assert before == (clone.git("status", "--porcelain"), sorted(str(path) for path in folder.rglob("*")))


def test_in_a_git_hook_neither_run_nor_its_jobs_touch_the_hooks_repository(world: Any, pipeline: MakePipeline) -> None:
    other = world.folder / "other"
    subprocess.check_call(["git", "init", "--quiet", other], env=world.environment())
    folder = pipeline('check:\n  script: ["! env | grep ^GIT_DIR", git log -1]\n')
    hook = {"GIT_DIR": str(other / ".git"), "GIT_INDEX_FILE": str(other / ".git" / "index")}
    result = world.remuda("run", folder, **hook)
    assert result.code == 0, result.out + result.err
    assert not (other / ".git" / "index").exists()


def test_tags_retries_and_other_pipeline_files(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline("unused: {script: [false]}\n")
    other = world.folder / "other.yml"
    other.write_text(
        "flaky:\n  tags: [gpu, linux]\n  retry: 1\n"
        f'  script: ["test -e {world.folder}/second || {{ touch {world.folder}/second; exit 1; }}"]\n'
    )
    result = world.remuda("run", folder, "--file", other)
    assert result.code == 0, result.out + result.err
    assert "flaky  retrying" in result.out


def test_a_blocking_manual_job_ends_the_run(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline("ask:\n  when: manual\n  allow_failure: false\n  script: [echo]\n")
    result = world.remuda("run", folder)
    assert result.code == 1
    assert "blocked by a manual job (ask)" in result.out


def test_a_command_that_does_not_exist_fails_the_job(world: Any, pipeline: MakePipeline) -> None:
    result = world.remuda("run", pipeline("broken:\n  script: [./no-such-script]\n"))
    assert result.code == 1
    assert "no-such-script" in result.out
    assert "exit code 127" in result.out


def test_two_runs_at_once_do_not_disturb_each_other(world: Any, examples: Path, finish: Any) -> None:
    first = world.start("run", examples / "build-test-package")
    second = world.start("run", examples / "build-test-package")
    results = [finish(first), finish(second)]
    assert [result.code for result in results] == [0, 0], results
    assert world.is_empty()


def test_a_data_folder_is_kept_and_can_be_used_again(world: Any, examples: Path) -> None:
    for number in (1, 2):
        result = world.remuda("run", examples / "hello", "--data", "kept", "--output", "json")
        assert result.code == 0, result.err
        assert json.loads(result.out)["pipeline_id"] == number
    assert (world.folder / "kept" / "cell" / "cell.sqlite").exists()
    assert not list((world.folder / "kept").glob("snapshot-*"))


def test_keep_prints_the_data_folder(world: Any, examples: Path) -> None:
    result = world.remuda("run", examples / "hello", "--keep")
    assert result.code == 0
    folder = Path(result.err.strip().removeprefix("kept: "))
    assert (folder / "remuda.log").exists()


BAD = {
    "broken yaml": ("a: [\n", "2:1"),
    "unknown key": ("build:\n  scirpt: [make]\n", ':2:3: build:scirpt: unknown key "scirpt"; did you mean "script"?'),
    "several": ("build:\n  scirpt: [make]\ntest:\n  script: [x]\n  needs: [biuld]\n", ":5:11: test:needs"),
    "no jobs": ("variables: {A: b}\n", ".gitlab-ci.yml:1:1"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_pipeline_file_is_bad_input(world: Any, pipeline: MakePipeline, name: str) -> None:
    text, message = BAD[name]
    result = world.remuda("run", pipeline(text))
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err
    assert result.out == ""
    assert world.is_empty()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: there is no such folder, and no job, because this folder has no .gitlab-ci.yml"),
        (["emtpy"], "emtpy: there is no such folder (similar: ./empty), and no job"),
        (["./nowhere"], "nowhere: there is no such folder"),
        (["."], "there is no pipeline file"),
        (["empty"], "no commits yet"),
        (["file"], "file:1:1: the file is empty"),
        ([".", "a", "--file", "empty/.gitlab-ci.yml", "--stage", "tset"], 'did you mean "test"?'),
        (["empty", "--file", "nowhere.yml"], "nowhere.yml: there is no pipeline file"),
        (["empty", "--jobs", "0"], "--jobs 0"),
        (["empty", "--jobs", "many"], "--jobs"),
        (["empty", "--jbos", "2"], "Did you mean --jobs?"),
        (["empty", "--output", "xml"], "--output"),
        (["empty", "--artifacts", "file"], "--artifacts file: is a file"),
    ],
)
def test_bad_arguments_are_reported(world: Any, arguments: list[str], message: str) -> None:
    (world.folder / "file").write_text("")
    subprocess.check_call(["git", "init", "--quiet", world.folder / "empty"], env=world.environment())
    (world.folder / "empty" / ".gitlab-ci.yml").write_text("a: {script: [b]}\n")
    result = world.remuda("run", *arguments)
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err


def test_missing_git_is_reported_with_the_fix(world: Any, pipeline: MakePipeline) -> None:
    result = world.remuda("run", pipeline("a: {script: [b]}\n"), PATH="/nonexistent")
    assert result.code == 2
    assert "install git" in result.err


def test_a_data_folder_in_use_is_reported(world: Any, pipeline: MakePipeline, finish: Any) -> None:
    slow = pipeline(f"slow:\n  script: [touch {world.folder}/begun, sleep 60]\n")
    first = world.start("run", slow, "--data", "shared")
    wait_until((world.folder / "begun").exists, "the job runs")
    second = world.remuda("run", slow, "--data", "shared")
    assert second.code == 2
    assert "in use by another process" in second.err
    first.terminate()
    assert finish(first).code == 130


def test_a_closed_stdout_stops_the_run(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline("a:\n  script: [sleep 1]\nb:\n  stage: deploy\n  script: [sleep 60]\n")
    process = world.start("run", folder)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == 141
    wait_until(world.is_empty, "no processes or files are left")
    assert os.path.isdir(folder)


OTHERS = ("--project", "root/ci-templates={examples}/shared-templates/ci-templates")
RUNS: dict[str, tuple[list[str], int, dict[str, int]]] = {
    # Arguments, exit code, and number of jobs by status, including jobs of child and multi-project pipelines.
    "monorepo": ([], 0, {"success": 13}),
    "python-library": ([], 0, {"success": 8, "failed": 1}),
    "release-flow": (["--tag", "v1.2.3", "--manual", "production"], 0, {"success": 9}),
    "web-app": ([], 0, {"success": 6, "failed": 1, "manual": 1}),
    "docs-site": ([], 0, {"success": 4, "failed": 1}),
    "merge-requests": (["--event", "merge_request"], 0, {"success": 4, "manual": 1}),
    "shared-templates/service": (
        [*OTHERS, "--project", "root/deployer={examples}/shared-templates/deployer"],
        0,
        {"success": 11},
    ),
    "fan-out": (["--variable", "PROOFREAD=yes"], 0, {"success": 24}),
    "deployments": (["--variable", "DEPLOY_ROOT={folder}/servers"], 1, {}),
    "nightly": (["--event", "schedule", "--variable", "SCHEDULE=nightly"], 0, {"success": 7, "skipped": 1}),
}


def run_example(world: Any, examples: Path, name: str, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    folder = examples / "pipelines" / name
    result = world.remuda("run", folder, "--output", "json", "--no-containers", *arguments)
    assert result.code == code, result.out + result.err
    document: dict[str, Any] = json.loads(result.out)
    return document


def every_job(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    inner = [every_job(job["downstream"]["jobs"]) for job in jobs if job.get("downstream")]
    return [*jobs, *(job for jobs_below in inner for job in jobs_below)]


@pytest.mark.parametrize("name", RUNS)
def test_an_example_repository_runs_locally(world: Any, examples: Path, name: str) -> None:
    arguments, code, expected = RUNS[name]
    places = {"examples": examples / "pipelines", "folder": world.folder}
    document = run_example(world, examples, name, *(text.format(**places) for text in arguments), code=code)
    statuses = [job["status"] for job in every_job(document["jobs"])]
    if expected:
        assert {status: statuses.count(status) for status in set(statuses)} == expected
    else:
        # The run ends at the blocking manual job.
        assert document["status"] == "manual"
        assert {job["name"] for job in document["jobs"] if job["status"] == "manual"} == {"approve", "stop staging"}
    if name == "python-library":
        assert [(tests["total"], tests["skipped"]) for tests in document["tests"]] == [(4, 1)] * 4


def test_the_second_run_finds_the_cache_and_leaves_artifacts(world: Any, examples: Path) -> None:
    run_example(world, examples, "web-app")
    result = world.remuda(
        "run", examples / "pipelines/web-app", "--artifacts", "out", "--data", "kept", "--no-containers"
    )
    assert result.code == 0, result.out + result.err
    assert (world.folder / "out/bundle/dist/app.js").read_text().startswith("// production\n")
    logs = [path.read_text() for path in (world.folder / "kept/cell/traces").rglob("*") if path.is_file()]
    assert any("from the cache, 0 fetched" in log for log in logs)
