"""The real gitlab-runner reads configuration files with Remuda's keys and those that `remuda manager register` writes;
Remuda reads files that gitlab-runner writes."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.built_programs import require_built
from tests.support.cells.served_cell import ServedCell
from tests.support.runners.gitlab_runner import RealRunner

from remuda.cli.main import call
from remuda.manager.config.load import load

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "build" / "interop" / "gitlab-runner"
FILES = sorted(
    [*(ROOT / "tests/data/gitlab-runner").glob("*.toml"), *(ROOT / "examples/manager-kinds").rglob("*.toml")]
)
# This gitlab-runner is of 2020; pull_policy accepts a list since 2021.
LIST_OF_POLICIES = re.compile(r"pull_policy = \[(\"[^\"]*\").*\]")


def list_runners(path: Path) -> str:
    """Output of `gitlab-runner list` for a configuration file."""
    require_built(PROGRAM)
    words = [str(PROGRAM), "list", "--config", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("file", FILES, ids=[f"{file.parent.name}/{file.name}" for file in FILES])
def test_gitlab_runner_reads_our_files(file: Path, tmp_path: Path) -> None:
    text = file.read_text()
    copy = tmp_path / "config.toml"
    copy.write_text(LIST_OF_POLICIES.sub(r"pull_policy = \1", text))
    output = list_runners(copy)
    assert "WARNING" not in output
    names = re.findall(r'^\[\[runners\]\]\n\s*name = "(.*)"', text, re.MULTILINE)
    assert names
    assert all(name in output for name in names), output


def test_gitlab_runner_reads_a_file_of_remuda_register(tmp_path: Path, cell: ServedCell) -> None:
    config = tmp_path / "config.toml"
    words = ["manager", "register", "--url", cell.url, "--config", str(config), "--name", "written by remuda"]
    call([*words, "--token", cell.new_runner().token, "--executor", "docker", "--docker-image", "alpine:3"])
    output = list_runners(config)
    assert "WARNING" not in output
    assert "written by remuda" in output
    assert load(config).config.runners[0].docker.image == "alpine:3"


def test_remuda_reads_a_file_of_gitlab_runner_register(new_runner: Callable[[], RealRunner]) -> None:
    runner = new_runner()
    runner.register("written by gitlab-runner")
    loaded = load(runner.config)
    assert loaded.config.runners[0].executor == "shell"
    assert not [warning for warning in loaded.warnings if "unknown" in warning]
