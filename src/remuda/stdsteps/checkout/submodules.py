"""Checks out the submodules of the job's commit, as GIT_SUBMODULE_STRATEGY requests. They are cloned anew for every
job, because repositories that an earlier job left are not trusted. A submodule on the job's own server is fetched with
the job's token. Relative URLs are resolved against the repository's URL."""

import os
from dataclasses import replace
from pathlib import Path

from remuda.lib.dataclass import dataclass
from remuda.lib.safe_paths import close_after, empty, make_below
from remuda.stdsteps.checkout.git import Git, depth_options, find_reason
from remuda.stdsteps.checkout.git_flags import SUBMODULE_UPDATE, check_flags
from remuda.stdsteps.checkout.workdir import remove
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say

STRATEGIES = ("none", "normal", "recursive")
_LINK = b"160000 "
"""The mode of a submodule in the output of `git ls-files --stage`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submodules:
    """The submodules to check out, and the options of `git submodule update`."""

    recursive: bool
    depth: int
    paths: tuple[str, ...]
    flags: tuple[str, ...]


def read(inputs: Inputs) -> Submodules | None:
    """Read the inputs about submodules; None if GIT_SUBMODULE_STRATEGY is `none`."""
    strategy = inputs.one_of("submodules", STRATEGIES)
    submodules = Submodules(
        recursive=strategy == "recursive",
        depth=inputs.number("submodule_depth", 0),
        paths=tuple(inputs.texts("submodule_paths", [])),
        flags=tuple(inputs.texts("submodule_flags", [])),
    )
    check_flags("GIT_SUBMODULE_UPDATE_FLAGS", submodules.flags, SUBMODULE_UPDATE)
    return None if strategy == "none" else submodules


def clear(git: Git, work_dir: Path) -> None:
    """Delete the contents of all submodule folders, which `git clean` does not do: an earlier job may have left a
    repository there, or a link to one, with a configuration that makes git run programs."""
    for line in git.read("ls-files", "--stage", "-z").split(b"\0"):
        if line.startswith(_LINK):
            with close_after(make_below(work_dir, os.fsdecode(line.partition(b"\t")[2]))) as folder:
                empty(folder)


def update(git: Git, work_dir: Path, submodules: Submodules) -> None:
    say("Updating submodules recursively..." if submodules.recursive else "Updating submodules...")
    text = _update(git, submodules)
    if text and submodules.depth:
        # The commit may lie deeper in the history, and some servers do not send a commit by its id alone.
        say(describe_retry(submodules.depth))
        remove(work_dir / ".git/modules")
        clear(git, work_dir)
        text = _update(git, replace(submodules, depth=0))
    if text:
        raise StepError(f"git submodule update failed: {find_reason(text)}")


def describe_retry(depth: int) -> str:
    return f"Updating submodules failed with a depth of {depth}; trying again with the whole history"


def _update(git: Git, submodules: Submodules) -> str:
    """Run `git submodule update` with retries. Returns '' on success, git's stderr after a permanent error."""
    recursive = ["--recursive"] if submodules.recursive else []
    options = ["--init", "--force", *recursive, *depth_options(submodules.depth)]
    return git.run_with_retries("submodule", "update", *options, *submodules.flags, "--", *submodules.paths)
