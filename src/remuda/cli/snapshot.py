"""A folder as one git commit, uncommitted changes included, ignored files left out, without writing to the folder.

Decided here: which files belong to the snapshot, and which commit they make. The user's repository is only read (its
list of files, branch and author); objects, index and commit go into a repository of our own beside the run's data.
`remuda run` is the caller: it pushes the result into the embedded cell.

Invariant: nothing below the folder is created, changed or removed, not even an index that git would refresh.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from remuda.cli.exits import BadInputError, CommandError

PIPELINE_FILE = ".gitlab-ci.yml"
DEFAULT_BRANCH = "main"
DEFAULT_NAME = "remuda"
DEFAULT_EMAIL = "remuda@localhost"

REPOSITORY_VARIABLES = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NAMESPACE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)
"""What ties git to one repository. Set inside a git hook; there it would turn every git of ours, and of the jobs,
to the user's repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A commit in a repository of our own."""

    git_dir: Path
    branch: str
    sha: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Origin:
    """What the folder says of itself: where its files are listed, its branch and author."""

    in_repository: bool
    branch: str = DEFAULT_BRANCH
    name: str = DEFAULT_NAME
    email: str = DEFAULT_EMAIL


def take(folder: Path, pipeline_text: bytes, git_dir: Path) -> Snapshot:
    """Commit the folder's files, with `pipeline_text` as the pipeline file, into a new repository at `git_dir`."""
    if shutil.which("git") is None:
        raise BadInputError("git was not found, and a run needs it; install git, or put it into PATH")
    origin = _origin(folder)
    _git(
        ["init", "--quiet", "--bare", "--template=", f"--initial-branch={origin.branch}", str(git_dir)],
        folder,
        _alone(),
    )
    own = _alone(
        GIT_DIR=str(git_dir),
        GIT_WORK_TREE=str(folder),
        GIT_AUTHOR_NAME=origin.name,
        GIT_AUTHOR_EMAIL=origin.email,
        GIT_COMMITTER_NAME=origin.name,
        GIT_COMMITTER_EMAIL=origin.email,
    )
    _git(["update-index", "-z", "--add", "--remove", "--stdin"], folder, own, _files(folder, origin, git_dir))
    blob = _git(["hash-object", "-w", "--stdin"], folder, own, pipeline_text).strip().decode()
    _git(["update-index", "--add", "--cacheinfo", f"100644,{blob},{PIPELINE_FILE}"], folder, own)
    tree = _git(["write-tree"], folder, own).strip().decode()
    sha = _git(["commit-tree", tree, "-m", f"Snapshot of {folder.name or folder}"], folder, own).strip().decode()
    _git(["update-ref", f"refs/heads/{origin.branch}", sha], folder, own)
    return Snapshot(git_dir=git_dir, branch=origin.branch, sha=sha)


def push_environment(snapshot: Snapshot, authorization: str) -> dict[str, str]:
    """The environment for a push out of the snapshot: credentials stay out of the command line, no proxy is asked."""
    settings = {"http.extraHeader": f"Authorization: {authorization}", "http.proxy": "", "http.postBuffer": "16777216"}
    return _alone(
        GIT_DIR=str(snapshot.git_dir),
        GIT_CONFIG_COUNT=str(len(settings)),
        **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(settings)},
        **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(settings.values())},
    )


def _origin(folder: Path) -> _Origin:
    inside = _run(["rev-parse", "--show-toplevel"], folder, _users())
    if inside.returncode != 0:
        complaint = inside.stderr.decode(errors="replace").strip()
        if "not a git repository" in complaint:
            return _Origin(in_repository=False)
        raise BadInputError(f"git cannot read the repository at {folder}: {complaint}")
    if _run(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], folder, _users()).returncode != 0:
        raise BadInputError(
            f"the repository at {folder} has no commits yet; make the first one: "
            "git add -A && git commit -m 'First commit'"
        )
    return _Origin(
        in_repository=True,
        branch=_answer(["symbolic-ref", "--quiet", "--short", "HEAD"], folder) or DEFAULT_BRANCH,
        name=_answer(["config", "user.name"], folder) or DEFAULT_NAME,
        email=_answer(["config", "user.email"], folder) or DEFAULT_EMAIL,
    )


def _files(folder: Path, origin: _Origin, git_dir: Path) -> bytes:
    """The snapshot's files as git lists them: tracked ones, and untracked ones that are not ignored.

    Git's own listing is used, because it knows every place where ignore rules stand. A repository inside the folder is
    listed with a slash at its end; it is left out, as `git add` would store no more than a pointer to it.
    """
    if origin.in_repository:
        environment = _users()
    else:
        environment = _users() | {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(folder)}
    listing = _git(["ls-files", "-z", "--cached", "--others", "--exclude-standard"], folder, environment)
    return b"".join(name + b"\0" for name in listing.split(b"\0") if name and not name.endswith(b"/"))


def _users() -> dict[str, str]:
    """The user's git, free of a surrounding hook, with texts we can recognise, writing nothing."""
    clean = {name: value for name, value in os.environ.items() if name not in REPOSITORY_VARIABLES}
    return clean | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


def _alone(**more: str) -> dict[str, str]:
    """Our own git: the user's configuration (hooks, filters, signing) plays no part."""
    return _users() | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull} | more


def _answer(arguments: list[str], folder: Path) -> str:
    """What git says, empty when it has no answer."""
    result = _run(arguments, folder, _users())
    return result.stdout.decode(errors="replace").strip() if result.returncode == 0 else ""


def _git(arguments: list[str], folder: Path, environment: Mapping[str, str], stdin: bytes = b"") -> bytes:
    result = _run(arguments, folder, environment, stdin)
    if result.returncode != 0:
        complaint = result.stderr.decode(errors="replace").strip() or f"exit code {result.returncode}"
        raise CommandError(f"cannot take a snapshot of {folder}: git {arguments[0]}: {complaint}")
    return result.stdout


def _run(
    arguments: list[str], folder: Path, environment: Mapping[str, str], stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, input=stdin, capture_output=True, check=False
    )
