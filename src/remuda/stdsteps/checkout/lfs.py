"""Files that a repository keeps with Git LFS: the commit has pointers, the content is fetched when it is checked out.

Git itself never fetches them here, one by one as it comes across them; this does, all at once, when the commit's files
are in place. Where the program `git-lfs` is missing the pointers stay, and the log says so. `checkout` is the caller.
"""

import os
import shutil
from pathlib import Path

from remuda.lib.safe_paths import open_plain
from remuda.stdsteps.checkout.git import Git, reason
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.log import say

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
    """Put the content in the place of pointers, where the commit has any."""
    if shutil.which("git-lfs") is None:
        if _says_so(work_dir / ATTRIBUTES):
            say("WARNING: git-lfs is not installed on this machine; files that are kept with it stay pointers")
        return
    listed = git.read("ls-files", "-z", "--", f":(glob)**/{ATTRIBUTES}").split(b"\0")
    if not any(_says_so(work_dir / os.fsdecode(name)) for name in listed if name):
        return
    say("Fetching files that are kept with Git LFS...")
    # Without it git-lfs puts nothing in place, and git, when the job uses it, would take the content for a change.
    with (work_dir / ".git/config").open("a") as file:
        file.write(FILTER)
    if text := git.patiently("lfs", "pull"):
        raise StepError(f"git lfs pull failed: {reason(text)}")


def _says_so(path: Path) -> bool:
    try:
        with open(open_plain(path), "rb") as file:
            return _MARK in file.read(_LARGEST_BYTES)
    except OSError:
        return False
