"""What `plugin new` writes is in order before anything is done to it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.fleeting.templates import files


def done(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program in the new folder, without anything of ours in its way."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PYTHON"))}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["cloud", "a-very-long-name-of-a-plugin-of-forty-ch"])
def test_a_new_plugin_is_formatted_and_its_tests_run_before_it_is_installed(tmp_path: Path, name: str) -> None:
    for one in files(name, "python"):
        path = tmp_path / one.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(one.text)
    ruff = str(Path(sys.executable).with_name("ruff"))
    for words in ([ruff, "format", "--check", "--no-cache"], [ruff, "check", "--no-cache"]):
        checked = done(*words, folder=tmp_path)
        assert checked.returncode == 0, checked.stdout
    tested = done(sys.executable, "-m", "pytest", "-q", folder=tmp_path)
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout


@pytest.mark.parametrize("language", ["python", "go"])
def test_what_is_built_is_not_committed(language: str) -> None:
    written = {one.path: one.text for one in files("cloud", language)}
    assert "dist/" in written[".gitignore"]
