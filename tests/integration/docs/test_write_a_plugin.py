"""The path of a plugin's author, in Python, followed literally in an environment of its own; tests/interop has Go's."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from tests.support.pages import script_of

from remuda.testing.lab import processes

pytestmark = pytest.mark.long

PAGE = Path(__file__).parents[3] / "docs/how-to/write-a-plugin.md"
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")


def an_environment(folder: Path) -> Path:
    """A virtual environment in which Remuda is installed, and nothing else that matters; its programs."""
    venv.create(folder, with_pip=True)
    site = next(folder.glob("lib/python*/site-packages"))
    ours = sysconfig.get_path("purelib")
    (site / "remuda.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    (folder / "bin/remuda").symlink_to(Path(sys.executable).parent / "remuda")
    return folder / "bin"


@pytest.mark.skipif(SSHD is None, reason="sshd is not installed; `make packages` installs it")
@pytest.mark.timeout(300)
def test_a_plugin_in_python(tmp_path: Path) -> None:
    page = PAGE.read_text().partition("\n## In Python\n")[2].partition("\n## In Go\n")[0]
    environment = os.environ | {
        "PATH": f"{an_environment(tmp_path / 'venv')}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        # What builds the distribution is there already, and Remuda, too.
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
    }
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script_of(page)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("All checks are passed") == 3
    assert "ok      can be logged in to" in done.stdout
    assert "note" not in done.stdout
    assert not [words for _, words in processes() if any(str(tmp_path) in word for word in words)]
