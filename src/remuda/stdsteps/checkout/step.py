"""The step `checkout`: fetches the job's commit and checks it out in the working directory. A repository that an
earlier job left there is reused but not trusted: git uses its objects, but never its configuration, hooks or
attributes, and the repositories of its submodules are deleted. This is safe only while no other process can change the
repository, so containers that outlived an earlier job are removed first."""

import errno
import json
import os
import re
from contextlib import suppress
from pathlib import Path

from remuda.lib.dataclass import dataclass
from remuda.lib.safe_paths import close_after, grant_owner, open_folder
from remuda.stdsteps.checkout import lfs as large_files
from remuda.stdsteps.checkout import mirrors, submodules
from remuda.stdsteps.checkout.git import (
    Git,
    Remote,
    depth_options,
    find_reason,
    is_damaged,
    split_credentials,
    write_config,
)
from remuda.stdsteps.checkout.git_flags import FETCH, check_flags
from remuda.stdsteps.checkout.local_objects import borrow, lent_objects
from remuda.stdsteps.checkout.submodules import Submodules
from remuda.stdsteps.checkout.workdir import check_mounts, empty, is_plain, make_temporary, remove, repair, write
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say

STRATEGIES = ("fetch", "clone", "none", "empty")
FETCH_FLAGS = ["--prune", "--quiet"]
ALL_REFS = ["+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"]
LEFT_BY_A_KILLED_GIT = ("index.lock", "shallow.lock", "HEAD.lock", "config.lock")
FETCHED = "remuda-fetched"
"""A file in .git that records what was fetched last."""
ONLY_HERE = ("--no-recurse-submodules",)
"""An option of `git fetch`, because folders of submodules are not trusted. It stands after the job's own flags, because
the last option counts."""
COMMANDING = ("config", "config.worktree", "commondir", "hooks", "info", "modules")
"""Files in .git that can make git run programs or read its configuration from elsewhere."""
IN_THE_WAY = (
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENOTEMPTY,
    errno.EEXIST,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ESTALE,
)
"""Error numbers that files of an earlier job can cause; the checkout then starts again in an empty folder."""


class UnusableFolderError(StepError):
    """Raised if files of an earlier job prevent the checkout: the step then empties the directory and starts again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    strategy: str
    repo_url: str
    sha: str
    ref: str
    refspecs: list[str]
    depth: int
    clean_flags: list[str]
    fetch_flags: list[str]
    checks_out: bool
    instead_of_ssh: bool
    submodules: Submodules | None
    lfs: bool
    mirrors: str
    mirrors_bytes: int
    engine: str
    isolated: bool


def run(inputs: Inputs) -> None:
    options = read_options(inputs)
    # A relative path, because an absolute one may name another folder later.
    work_dir = Path()
    if options.strategy == "none":
        say("Skipping Git repository setup")
        return
    if options.engine:
        from remuda.stdsteps.engine.job_containers import free_folder  # not at the top: most jobs have no engine

        free_folder(options.engine, os.getcwd())
    check_mounts(".")
    restore_rights(work_dir)
    if options.strategy in ("empty", "clone"):
        empty(work_dir)
    if options.strategy == "empty":
        say("Skipping Git repository setup and creating an empty build directory")
        return
    if not re.fullmatch(r"[0-9a-fA-F]{8,64}", options.sha):
        raise StepError(f"input sha: must be a commit of 8 or more hex digits, not {options.sha!r}")
    remote = split_credentials(options.repo_url)
    with make_temporary("remuda-git-") as private:
        isolated = options.isolated
        config = write_config(Path(private), remote, instead_of_ssh=options.instead_of_ssh, isolated=isolated)
        git = Git(work_dir, config, isolated=isolated)
        is_new = not any(work_dir.iterdir())
        try:
            bring_commit(git, work_dir, remote, options)
        except (UnusableFolderError, OSError) as error:
            if is_new or (isinstance(error, OSError) and error.errno not in IN_THE_WAY):
                raise
            say(f"WARNING: files of an earlier job prevent the checkout ({error}); starting again in an empty folder")
            empty(work_dir)
            bring_commit(git, work_dir, remote, options)


def read_options(inputs: Inputs) -> Options:
    options = Options(
        strategy=inputs.one_of("strategy", STRATEGIES),
        repo_url=inputs.text("repo_url", ""),
        sha=inputs.text("sha", ""),
        ref=inputs.text("ref", ""),
        refspecs=inputs.texts("refspecs", []) or ALL_REFS,
        depth=inputs.number("depth", 0),
        clean_flags=inputs.texts("clean_flags", ["-ffdx"]),
        fetch_flags=inputs.texts("fetch_flags", FETCH_FLAGS),
        checks_out=inputs.flag("checkout", True),
        instead_of_ssh=inputs.flag("instead_of_ssh", False),
        submodules=submodules.read(inputs),
        lfs=inputs.flag("lfs", True),
        mirrors=inputs.text("mirrors", ""),
        mirrors_bytes=inputs.number("mirrors_bytes", 0),
        engine=inputs.text("engine", ""),
        isolated=inputs.flag("isolated", False),
    )
    inputs.done()
    check_flags("GIT_FETCH_EXTRA_FLAGS", options.fetch_flags, FETCH)
    return options


def bring_commit(git: Git, work_dir: Path, remote: Remote, options: Options) -> None:
    """Fetch the job's commit, check it out, clean the working directory, and add LFS files and submodules."""
    is_new = not any(work_dir.iterdir())
    is_checked_out = ensure_fetched(git, work_dir, remote, options, is_new=is_new)
    if not options.checks_out:
        say("Skipping Git checkout: GIT_CHECKOUT is false")
        return
    say(f"Checking out {options.sha[:8]} as detached HEAD (ref is {options.ref})...")
    if not is_checked_out:
        check_out(git, options.sha)
    if not is_new:
        if options.clean_flags:
            clean(git, work_dir, options.clean_flags)
        submodules.clear(git, work_dir)
    if options.lfs:
        large_files.pull(git, work_dir)
    if options.submodules is not None:
        submodules.update(git, work_dir, options.submodules)


def ensure_fetched(git: Git, work_dir: Path, remote: Remote, options: Options, *, is_new: bool) -> bool:
    """Fetch the commit, unless the objects of a local repository can be used, or an earlier job has fetched it: then it
    is checked out at once (unless `options.checks_out` is false), and fetched only if that fails, because objects are
    missing. Returns True if it was not fetched. `is_new`: `work_dir` was empty."""
    sha, refspecs, depth, fetch_flags = options.sha, options.refspecs, options.depth, options.fetch_flags
    repository = work_dir / ".git"
    is_borrowed = is_new and fetch_flags == FETCH_FLAGS and borrow(git, repository, remote.url, refspecs, depth)
    prepare(git, work_dir, remote)
    # Refs and commit of a pipeline do not change, so what one job of it has fetched here serves the next.
    request = json.dumps([remote.url, sha, refspecs, depth, fetch_flags])
    mark = repository / FETCHED
    is_here = (is_borrowed or is_fetched(mark, request)) and (not options.checks_out or check_out(git, sha, quiet=True))
    if is_here and not is_borrowed:
        say("Skipping Git fetch: an earlier job of this pipeline has fetched the commit")
    else:
        say(f"Fetching changes with git depth set to {depth}..." if depth else "Fetching changes...")
    if not is_here:
        if is_borrowed:
            remove(repository)
            prepare(git, work_dir, remote)
        remove(mark)
        fetch_anew(git, repository, remote, options, is_new=is_new)
    write(repository, FETCHED, request.encode())
    return is_here


def fetch_anew(git: Git, repository: Path, remote: Remote, options: Options, *, is_new: bool) -> None:
    """Fetch the refs and the commit, from the runner's mirror if that works, else from the server. `is_new`:
    `repository` does not come from an earlier job."""
    refspecs, depth = options.refspecs, options.depth
    # Without this option, a shallow repository of an earlier job would stay shallow.
    whole = ["--unshallow"] if not depth and (repository / "shallow").is_file() else []
    words = [*options.fetch_flags, *whole, *depth_options(depth)]
    if not options.mirrors or not fetch_from_mirror(
        git, Path(options.mirrors), remote.url, words, refspecs, options.mirrors_bytes
    ):
        fetch(git, words, refspecs, is_new=is_new)
    if not git.has_commit(options.sha):
        fetch_commit(git, options.sha, depth)


def restore_rights(work_dir: Path) -> None:
    """Restore the owner's permissions on the working directory itself, which an earlier job may have removed."""
    with close_after(open_folder(str(work_dir))) as opened:
        grant_owner(opened)


def prepare(git: Git, work_dir: Path, remote: Remote) -> None:
    """Ensure that `.git` is a valid repository with this origin, without files that earlier jobs could abuse: rewrites
    its configuration, removes hooks and stale locks, and replaces a `.git` that contains links or special files."""
    inside = work_dir / ".git"
    if not is_plain(inside):
        remove(inside)
        inside.mkdir()
    for name in (*LEFT_BY_A_KILLED_GIT, *COMMANDING):
        remove(inside / name)
    forget_alternates(inside, remote.url)
    url = remote.url.replace("\\", "\\\\").replace('"', '\\"')
    text = f'[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote "origin"]\n\turl = "{url}"\n'
    write(inside, "config", text.encode())
    if not all((inside / name).is_dir() for name in ("objects", "refs")) or not (inside / "HEAD").is_file():
        git.run("init", "--quiet", "--template=")


def forget_alternates(inside: Path, url: str) -> None:
    """Remove references to other object stores (alternates) from the repository `inside`, except the one that `borrow`
    writes for the local repository `url`."""
    for name in ("alternates", "http-alternates"):
        path = inside / "objects/info" / name
        with suppress(FileNotFoundError, NotADirectoryError):
            if path.read_bytes() != lent_objects(url):
                remove(path)


def is_fetched(mark: Path, request: str) -> bool:
    """True if the file `mark` says that an earlier job fetched the same `request` (JSON of URL, commit and options).
    Only a hint: a job may have written the file."""
    try:
        return not mark.is_symlink() and mark.read_text() == request
    except (OSError, UnicodeDecodeError):
        return False


def check_out(git: Git, sha: str, *, quiet: bool = False) -> bool:
    """Check out the commit and return True. If that fails: returns False if `quiet`, else raises UnusableFolderError,
    because files of an earlier job may be in the way."""
    words = ("checkout", "-f", "-q", "--detach", sha)
    if quiet:
        return git.attempt(*words, quiet=True)[0] == 0
    code, text = git.attempt(*words)
    if code:
        raise UnusableFolderError(f"git checkout failed: {find_reason(text)}")
    return True


def clean(git: Git, work_dir: Path, flags: list[str]) -> None:
    """Run `git clean`; if it fails, once more with all folders writable. Raises UnusableFolderError if both fail."""
    if git.attempt("clean", *flags)[0]:
        repair(work_dir)
        if code := git.attempt("clean", *flags)[0]:
            raise UnusableFolderError(f"git clean failed with exit code {code}")


def fetch(git: Git, options: list[str], refspecs: list[str], *, is_new: bool) -> None:
    words = ("fetch", "--force", *options, *ONLY_HERE, "origin", *refspecs)
    if text := git.run_with_retries(*words, is_used=not is_new):
        if not is_new and is_damaged(text):
            raise UnusableFolderError(f"git fetch failed: {find_reason(text)}")
        raise StepError(f"git fetch failed: {find_reason(text)}")


def fetch_from_mirror(git: Git, folder: Path, url: str, options: list[str], refspecs: list[str], limit: int) -> bool:
    """Fetch from the runner's mirror of `url`. Returns False if there is none, or if the fetch failed: then it is
    deleted. `folder`: the folder of all mirrors. `options`: of `git fetch`. `limit`: the most bytes of all mirrors."""
    with mirrors.open_mirror(git, folder, url, refspecs, limit_bytes=limit) as source:
        if source is None:
            return False
        words = ("fetch", "--force", *options, *ONLY_HERE, source, *refspecs)
        code, text = git.attempt(*words, quiet=True)
    if code:
        say(f"WARNING: cannot fetch from the mirror of the repository: {find_reason(text)}; fetching from the server")
        mirrors.forget(folder, url)
    return not code


def fetch_commit(git: Git, sha: str, depth: int) -> None:
    """Fetch a commit that the fetched refs lack, because the branch was rewritten or `depth` is too small. Raises
    StepError if the server does not have the commit either."""
    if git.run_with_retries("fetch", "--quiet", *depth_options(depth), *ONLY_HERE, "origin", sha) and depth:
        git.run_with_retries("fetch", "--quiet", "--unshallow", *ONLY_HERE, "origin")
    if not git.has_commit(sha):
        raise StepError(f"commit {sha} is not in the repository; it may have been removed by a forced push")
