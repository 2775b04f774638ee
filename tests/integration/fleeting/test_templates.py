"""The files that `plugin new` writes: they are formatted, pass the linter, and their tests pass."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.fleeting.templates import files


def run_program(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in the new folder, without the PYTEST and PYTHON variables of this process."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PYTHON"))}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["cloud", "a-very-long-name-of-a-plugin-of-forty-ch"])
def test_a_new_plugin_is_formatted_and_its_tests_run_before_it_is_installed(tmp_path: Path, name: str) -> None:
    for file in files(name, "python"):
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
    ruff = str(Path(sys.executable).with_name("ruff"))
    for command in ([ruff, "format", "--check", "--no-cache"], [ruff, "check", "--no-cache"]):
        result = run_program(*command, folder=tmp_path)
        assert result.returncode == 0, result.stdout
    result = run_program(sys.executable, "-m", "pytest", "-q", folder=tmp_path)
    assert result.returncode == 0, result.stdout
    assert "2 passed" in result.stdout


@pytest.mark.parametrize("language", ["python", "go"])
def test_gitignore_has_the_build_folder(language: str) -> None:
    texts = {file.path: file.text for file in files("cloud", language)}
    assert "dist/" in texts[".gitignore"]
