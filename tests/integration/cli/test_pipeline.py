"""`remuda pipeline lint`, `show` and `graph` as processes: output, exit codes and error messages."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

GOOD = """\
stages: [build, test]
compile:
  stage: build
  script: [make]
unit:
  needs: [compile]
  parallel: 2
  script: [make test]
release:
  script: [make release]
  rules:
    - if: $CI_COMMIT_TAG
"""
FIVE_MISTAKES = """\
stages: [build]
include: missing.yml
one:
  scirpt: [x]
  stage: build
two: {stage: build, script: [x], when: sometimes}
three: {stage: build, script: [x], timeout: soon}
four: {stage: build, script: [x], rules: [{if: $A = 1}]}
"""

MakePipeline = Callable[[str], Path]


def test_a_good_file(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline(GOOD)
    result = world.remuda("pipeline", "lint", cwd=folder)
    assert result.code == 0
    assert result.out == (".gitlab-ci.yml is good. For a push of main: 3 jobs in 2 stages, 1 left out by rules\n")
    verdict = json.loads(world.remuda("pipeline", "lint", folder, "--tag", "v1", "--output", "json").out)
    assert (verdict["valid"], verdict["jobs"], verdict["stages"]) == (True, 4, ["build", "test"])


def test_five_mistakes_at_once(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline(FIVE_MISTAKES)
    result = world.remuda("pipeline", "lint", cwd=folder)
    assert result.code == 2
    assert result.err == ""
    lines = [line.split(": ")[0] for line in result.out.splitlines() if line.startswith(".gitlab-ci.yml:")]
    assert lines == [f".gitlab-ci.yml:{place}" for place in ("2:10", "4:3", "6:40", "7:45", "8:48")]
    assert "     4 |   scirpt: [x]\n       |   ^\n" in result.out
    assert result.out.endswith("\n5 mistakes\n")
    verdict = json.loads(world.remuda("pipeline", "lint", folder, "--output", "json").out)
    assert [error["line"] for error in verdict["errors"]] == [2, 4, 6, 7, 8]
    assert all(error["suggestion"] for error in verdict["errors"])


def test_warnings_are_shown_and_the_file_is_good(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline("job:\n  script: [echo one]\n  script: [echo two]\n")
    result = world.remuda("pipeline", "lint", cwd=folder)
    assert (result.code, result.err) == (0, "")
    warning = '.gitlab-ci.yml:3:3: warning: script: the key "script" is on lines 2 and 3; only the last one counts'
    assert result.out.startswith(f"{warning}; remove one of them\n     3 |   script: [echo two]\n       |   ^\n")
    assert ".gitlab-ci.yml is good, with 1 warning. For a push of main: 1 job" in result.out
    verdict = json.loads(world.remuda("pipeline", "lint", folder, "--output", "json").out)
    assert (verdict["valid"], [each["line"] for each in verdict["warnings"]]) == (True, [3])
    for command in (["run", "--list"], ["pipeline", "show"], ["pipeline", "graph"]):
        assert warning in world.remuda(*command, cwd=folder).err


def test_no_pipeline_is_no_mistake(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline("workflow:\n  rules:\n    - if: $CI_COMMIT_TAG\njob:\n  script: [x]\n")
    result = world.remuda("pipeline", "lint", folder)
    assert result.code == 0
    assert "no pipeline: no rule of workflow:rules applies" in result.out
    assert "no pipeline" in world.remuda("pipeline", "graph", folder).out
    assert "no pipeline" in world.remuda("pipeline", "show", folder).out


def test_show(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline(GOOD)
    result = world.remuda("pipeline", "show", folder, "--variable", "A=1")
    assert result.code == 0
    assert "  unit 1/2  on_success  compile" in result.out
    assert "release  no rule matched" in result.out
    compiled = json.loads(world.remuda("pipeline", "show", folder, "--output", "json").out)
    assert [job["name"] for job in compiled["jobs"]] == ["compile", "unit 1/2", "unit 2/2"]
    assert compiled["left_out"][0]["name"] == "release"
    assert "is left out: no rule matched" in world.remuda("pipeline", "show", folder, "--job", "release").out
    jobs = json.loads(world.remuda("pipeline", "show", folder, "--job", "compile", "--output", "json").out)
    assert jobs[0]["script"] == ["make"]
    assert world.remuda("pipeline", "show", folder, "--output", "yaml").out.startswith("---\nstages:\n- build\n")


def test_graph(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline(GOOD)
    assert "├─ unit 1/2  ← compile" in world.remuda("pipeline", "graph", folder).out
    assert "level 2" in world.remuda("pipeline", "graph", folder, "--by", "needs").out
    graph = json.loads(world.remuda("pipeline", "graph", folder, "--output", "json").out)
    assert graph["edges"][0] == {"from": "compile", "to": "unit 1/2", "artifacts": True}
    svg = ET.fromstring(world.remuda("pipeline", "graph", folder, "--output", "svg").out)
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    assert world.remuda("pipeline", "graph", folder, "--output", "dot").out.startswith("digraph pipeline {")


def test_mistakes_end_every_command(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline(FIVE_MISTAKES)
    for command in (["show"], ["show", "--output", "yaml"], ["graph"], ["graph", "--output", "svg"]):
        result = world.remuda("pipeline", command[0], folder, *command[1:])
        assert result.code == 2
        assert result.out == ""
        assert result.err.startswith("remuda: the pipeline has ")
        assert "     2 | include: missing.yml" in result.err


def test_files_of_other_projects_and_inputs(world: Any, pipeline: MakePipeline) -> None:
    other = pipeline("far:\n  script: [x]\n")
    folder = pipeline(
        "spec:\n  inputs:\n    count: {type: number}\n---\n"
        "include: {project: group/ci, file: .gitlab-ci.yml}\n"
        "near:\n  parallel: $[[ inputs.count ]]\n  script: [x]\n"
    )
    options = ["--project", f"group/ci={other}", "--input", "count=3"]
    compiled = json.loads(world.remuda("pipeline", "show", folder, *options, "--output", "json").out)
    assert [job["name"] for job in compiled["jobs"]] == ["far", "near 1/3", "near 2/3", "near 3/3"]
    refused = world.remuda("pipeline", "lint", folder, "--input", "count=3")
    assert "pass --project group/ci=FOLDER" in refused.out


def test_lint_inside_a_git_hook_uses_the_given_repository(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline("job:\n  script: [x]\n  rules:\n    - if: $CI_COMMIT_BRANCH == 'trunk'\n")
    subprocess.run(["git", "init", "--quiet", "-b", "trunk", folder], check=True, env=world.environment())
    result = world.remuda("pipeline", "lint", folder, GIT_DIR="/nowhere", GIT_INDEX_FILE="/nowhere/index")
    assert (result.code, "1 job in 1 stage" in result.out) == (0, True), result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere"], "there is no such folder"),
        (["--event", "pull"], "--event pull: there is no such event"),
        (["--variable", "A"], "write it as NAME=VALUE"),
        (["--variables-file", "/nowhere"], "--variables-file /nowhere: cannot be read"),
        (["--ref", "a..b"], "is not a valid name of a branch or tag"),
        (["--file", "/nowhere/file.yml"], "there is no pipeline file"),
        (["--event", "tag"], "no tag points at HEAD"),
    ],
)
def test_bad_options(world: Any, pipeline: MakePipeline, arguments: list[str], message: str) -> None:
    result = world.remuda("pipeline", "lint", *arguments, cwd=pipeline("job: {script: [x]}"))
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err


def test_names_that_are_not_utf8_or_have_control_characters(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline('include: "x*.yml"\n"a\\x1b[2J": {script: [x]}\n')
    (folder / b"xbad\xff.yml".decode(errors="surrogateescape")).write_text("x: {script: [x]}")
    (folder / "xesc\x1b[2J.yml").write_text("x: {script: [x]}")
    (folder / "xlink.yml").symlink_to("/etc/passwd")
    result = world.remuda("pipeline", "lint", folder)
    assert result.code == 2
    assert "symbolic link" in result.out
    assert "\x1b" not in result.out + result.err
    renamed = folder.rename(folder.with_name(b"caf\xe9\n".decode(errors="surrogateescape")))
    (renamed / "xlink.yml").unlink()
    for output in ("text", "json"):
        result = world.remuda("pipeline", "lint", renamed, "--output", output)
        assert result.code == 0, result.err
