"""Runs the tests of the pages' pure scripts (`*.test.mjs` beside this file) with Node.js, which reads them as
modules from a copy of the folder `static`."""

import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

_TESTS = sorted(Path(__file__).parent.glob("*.test.mjs"))


@pytest.mark.parametrize("test", _TESTS, ids=lambda path: path.name)
def test_module(test: Path, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")
    for entry in files("remuda.cell.web").joinpath("static").iterdir():
        if entry.name.endswith(".js"):
            (tmp_path / entry.name).write_bytes(entry.read_bytes())
    (tmp_path / "package.json").write_text('{"type": "module"}')
    shutil.copy(test, tmp_path)
    done = subprocess.run([node, "--test", test.name], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
