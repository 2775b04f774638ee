"""The program git-lfs: Debian's, or the one that `make interop` builds."""

import shutil
from pathlib import Path

import pytest

_BUILT = Path(__file__).parents[2] / "build" / "interop" / "git-lfs"


def require_git_lfs() -> Path:
    """Return the path of git-lfs. Skips the test if it is not installed."""
    found = shutil.which("git-lfs") or (str(_BUILT) if _BUILT.exists() else None)
    if found is None:
        pytest.skip("git-lfs is not installed: make packages")
    return Path(found)
