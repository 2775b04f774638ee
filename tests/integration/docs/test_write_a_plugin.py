"""Follows the Python part of docs/how-to/write-a-plugin.md literally, in a new virtual environment. The Go part is in
tests/interop."""

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


def create_virtual_environment(folder: Path) -> Path:
    """Create a virtual environment that contains Remuda, and return its folder `bin`."""
    venv.create(folder, with_pip=True)
    site = next(folder.glob("lib/python*/site-packages"))
    installed_packages = sysconfig.get_path("purelib")
    (site / "remuda.pth").write_text(f"import site; site.addsitedir({installed_packages!r})\n")
    (folder / "bin/remuda").symlink_to(Path(sys.executable).parent / "remuda")
    return folder / "bin"


@pytest.mark.skipif(SSHD is None, reason="sshd is not installed; `make packages` installs it")
@pytest.mark.timeout(300)
def test_the_python_part_of_the_page_works(tmp_path: Path) -> None:
    page = PAGE.read_text().partition("\n## In Python\n")[2].partition("\n## In Go\n")[0]
    environment = os.environ | {
        "PATH": f"{create_virtual_environment(tmp_path / 'venv')}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        # The build tools and Remuda are already installed, so pip must not download anything.
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
    }
    result = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script_of(page)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("All checks passed") == 3
    assert "ok      can be logged in to" in result.stdout
    assert "note" not in result.stdout
    assert not [words for _, words in processes() if any(str(tmp_path) in word for word in words)]
