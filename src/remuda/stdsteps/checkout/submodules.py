"""Submodules of the checked-out commit, as GIT_SUBMODULE_STRATEGY asks for them.

They are cloned anew for every job, because of the repositories that an earlier job left nothing can be trusted. A
submodule on the job's own server is fetched with the job's token; relative addresses are counted from the repository's.
"""

import os
from dataclasses import replace
from pathlib import Path

from remuda.lib.dataclass import dataclass
from remuda.lib.safe_paths import close_after, empty, make_below
from remuda.stdsteps.checkout.git import Git, reason, shallow
from remuda.stdsteps.checkout.git_flags import SUBMODULE_UPDATE, check_flags
from remuda.stdsteps.checkout.workdir import remove
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say

STRATEGIES = ("none", "normal", "recursive")
_LINK = b"160000 "
"""How git lists a submodule: its mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submodules:
    """The submodules to check out, and the options of `git submodule update`."""

    recursive: bool
    depth: int
    paths: tuple[str, ...]
    flags: tuple[str, ...]


def read(inputs: Inputs) -> Submodules | None:
    """What the inputs ask for; None when they ask for no submodules."""
    strategy = inputs.one_of("submodules", STRATEGIES)
    wanted = Submodules(
        recursive=strategy == "recursive",
        depth=inputs.number("submodule_depth", 0),
        paths=tuple(inputs.texts("submodule_paths", [])),
        flags=tuple(inputs.texts("submodule_flags", [])),
    )
    check_flags("GIT_SUBMODULE_UPDATE_FLAGS", wanted.flags, SUBMODULE_UPDATE)
    return None if strategy == "none" else wanted


def clear(git: Git, work_dir: Path) -> None:
    """Empty the folders of submodules. A job may have left a repository of its own there, in which git would start what
    its configuration says, or a link to one; git itself cleans none of these folders."""
    for line in git.read("ls-files", "--stage", "-z").split(b"\0"):
        if line.startswith(_LINK):
            with close_after(make_below(work_dir, os.fsdecode(line.partition(b"\t")[2]))) as folder:
                empty(folder)


def update(git: Git, work_dir: Path, wanted: Submodules) -> None:
    say("Updating submodules recursively..." if wanted.recursive else "Updating submodules...")
    text = _update(git, wanted)
    if text and wanted.depth:
        # The commit may lie deeper, on a server that hands out no commit by its number alone.
        say(f"That failed with a depth of {wanted.depth}; trying again with the whole history")
        remove(work_dir / ".git/modules")
        clear(git, work_dir)
        text = _update(git, replace(wanted, depth=0))
    if text:
        raise StepError(f"git submodule update failed: {reason(text)}")


def _update(git: Git, wanted: Submodules) -> str:
    """What git said where it failed for good."""
    options = ["--init", "--force", *(["--recursive"] if wanted.recursive else []), *shallow(wanted.depth)]
    return git.patiently("submodule", "update", *options, *wanted.flags, "--", *wanted.paths)
