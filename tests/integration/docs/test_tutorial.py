"""Runs the commands of docs/tutorial.md unchanged, in order, in one shell."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(300)
def test_the_tutorial_works(tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "docs/tutorial.md").read_text())
    assert len(blocks) >= 5
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
    }
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert '.gitlab-ci.yml:5:3: write:scirpt: unknown key "scirpt"' in result.stderr
    assert "good bye" in result.stdout
