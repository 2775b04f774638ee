"""Downloads files that a repository stores with Git LFS: the commit has pointers, the server has the content. During
the checkout the LFS filter is off (GIT_LFS_SKIP_SMUDGE), because it would download files one by one; `pull` then
downloads all of them. If `git-lfs` is not installed, the pointers stay, with a warning."""

import os
import shutil
from pathlib import Path

from remuda.lib.safe_paths import open_plain
from remuda.stdsteps.checkout.git import Git, find_reason
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.log import say

FETCHING = "Fetching files stored with Git LFS..."
MISSING = "WARNING: git-lfs is not installed on this machine; files stored with Git LFS stay pointers"
ATTRIBUTES = ".gitattributes"
_MARK = b"filter=lfs"
_LARGEST_BYTES = 1024 * 1024
FILTER = """[filter "lfs"]
\tclean = git-lfs clean -- %f
\tsmudge = git-lfs smudge -- %f
\tprocess = git-lfs filter-process
\trequired = true
"""


def pull(git: Git, work_dir: Path) -> None:
    """Replace the LFS pointers in the working directory by the content of the files. Does nothing if the commit has
    none. Raises StepError if the download fails."""
    listed = git.read("ls-files", "-z", "--", f":(glob)**/{ATTRIBUTES}").split(b"\0")
    if not any(_uses_lfs(work_dir / os.fsdecode(name)) for name in listed if name):
        return
    if shutil.which("git-lfs") is None:
        say(MISSING)
        return
    say(FETCHING)
    # Without the filter git-lfs replaces no pointer, and git in the job would see the content as a change.
    with (work_dir / ".git/config").open("a") as file:
        file.write(FILTER)
    if text := git.run_with_retries("lfs", "pull"):
        raise StepError(f"git lfs pull failed: {find_reason(text)}")


def _uses_lfs(path: Path) -> bool:
    try:
        with open(open_plain(path), "rb") as file:
            return _MARK in file.read(_LARGEST_BYTES)
    except OSError:
        return False
