"""`remuda run JOB`, and what a word means that is the name of a folder and of a job."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.git_client import Clone

PIPELINE = """
stages: [build, test]
compile: {stage: build, script: [echo]}
test: {stage: test, needs: [compile], script: [echo]}
lint/all: {stage: test, needs: [], script: [echo]}
"""


@pytest.fixture
def shop(world: Any) -> Clone:
    clone = Clone(world.folder / "shop", world.environment())
    clone.git("init", "--quiet", "--initial-branch=main")
    clone.commit(**{".gitlab-ci.yml": PIPELINE, "docs/index.md": "x"})
    return clone


def run_jobs(world: Any, folder: Path, *words: str) -> tuple[list[str], str]:
    """Return the names of the jobs that ran, and what was printed on stderr."""
    result = world.remuda("run", *words, "--output", "json", cwd=folder)
    assert result.code == 0, result.err
    return sorted(job["name"] for job in json.loads(result.out)["jobs"]), result.err


def test_the_first_word_may_be_a_job(world: Any, shop: Clone) -> None:
    assert run_jobs(world, shop.folder, "test")[0] == ["compile", "test"]
    assert run_jobs(world, shop.folder, "test", "--no-needs")[0] == ["test"]
    assert run_jobs(world, shop.folder, "lint/all", "compile")[0] == ["compile", "lint/all"]
    # From a subfolder of the repository, too.
    assert run_jobs(world, shop.folder / "docs", "compile")[0] == ["compile"]
    assert run_jobs(world, world.folder, "shop", "compile")[0] == ["compile"]


def test_a_folder_with_the_name_of_a_job_is_explained(world: Any, shop: Clone) -> None:
    shop.commit(**{"test/check.py": "x"})
    jobs, messages = run_jobs(world, shop.folder, "test")
    assert jobs == ["compile", "test"]
    assert "there are a folder and a job test; running the job; for the folder: ./test" in messages
    assert run_jobs(world, shop.folder, "./test")[0] == ["compile", "lint/all", "test"]
    shop.commit(**{"test/.gitlab-ci.yml": "inner: {script: [echo]}\n"})
    jobs, messages = run_jobs(world, shop.folder, "test")
    assert jobs == ["inner"]
    assert "using the folder, which has a pipeline; for the job: --job test" in messages
    assert run_jobs(world, shop.folder, "--job", "test")[0] == ["compile", "test"]
    # A folder that is no job is not remarked on.
    jobs, messages = run_jobs(world, shop.folder, "docs")
    assert jobs == ["compile", "lint/all", "test"]
    assert "a job docs" not in messages


@pytest.mark.parametrize(
    ("word", "messages"),
    [
        ("tset", ['there is no job "tset"; did you mean "test"?']),
        ("doc", ['there is no job "doc"', "(similar: ./docs)"]),
        ("nonsense", ['there is no job "nonsense"; there are "compile"']),
    ],
)
def test_an_unknown_word_gets_similar_jobs_and_folders(world: Any, shop: Clone, word: str, messages: list[str]) -> None:
    result = world.remuda("run", word, cwd=shop.folder)
    assert result.code == 2
    for message in messages:
        assert message in result.err
    assert "--list" in result.err
    assert world.is_empty()
