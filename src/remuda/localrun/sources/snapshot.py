"""Makes one git commit of a folder, with uncommitted changes and without ignored files, for `remuda run`. Without
uncommitted changes it is HEAD; else a commit on top of HEAD with the same message and author, so that the same files
give the same id. New objects go into a repository in the run's folder that uses the user's objects (git alternates). A
subfolder, a shallow and a partial clone cannot use their history: the snapshot's parents are then parentless copies of
the commits that rules compare with. Invariant: nothing below the folder is changed, not even a refreshed index."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.lib.dataclass import dataclass
from remuda.lib.exits import BadInputError, CommandError
from remuda.localrun.sources.git_environment import quiet_environment

if TYPE_CHECKING:
    from remuda.localrun.sources.repository import Repository
    from remuda.pipeline import Facts

PIPELINE_FILE = ".gitlab-ci.yml"
DEFAULT_NAME = "remuda"
DEFAULT_EMAIL = "remuda@localhost"
NO_SHA = "0" * 40
MERGE_REQUEST_REF = "refs/merge-requests/1/head"
DESCRIBED_COMMITS = 50
"""Tags of this many last commits are uploaded, so that `git describe` works as in a job's shallow clone."""

COMPARED = "refs/compared/"
"""Prefix of the refs for commits that rules compare with and do not name by a branch or tag."""
CONVERTING = ("core.autocrlf", "core.eol", "core.filemode", "core.symlinks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A commit of the folder's files in a temporary repository, and the refs to upload with it."""

    git_dir: Path
    sha: str
    ref: str
    """The full name of the ref that the pipeline is for."""
    since: str | None = None
    """The commit that `rules:changes` compares with; None if everything counts as changed."""
    refs: dict[str, str] = field(default_factory=dict)
    """All refs that the cell should have, with their commits."""
    remark: str = ""
    """A limitation of the snapshot, to print for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What a snapshot needs to know about the user's repository: where its objects and index are, whether it is a
    subfolder or an incomplete clone, and git settings that convert files."""

    repository: "Repository"
    prefix: str
    """The folder's path in the repository with a slash at the end; empty for the top folder."""
    is_partial: bool
    """A partial clone: it may lack files that are not checked out."""
    has_gaps: bool
    """A shallow or partial clone: it lacks a part of the history."""
    objects: Path
    index: Path
    settings: tuple[str, ...]
    """The user's `CONVERTING` settings as options of git."""


def take(
    folder: Path, repository: "Repository | None", facts: "Facts", git_dir: Path, *, compared: Iterable[str] = ()
) -> Snapshot:
    """Commit the folder's current files to a new repository at `git_dir`. `facts`: of the pipeline to run. `compared`:
    refs that rules compare with, also included. BadInputError if git is missing or there are no commits."""
    if shutil.which("git") is None:
        raise BadInputError("git was not found, and a run needs it; install git, or put it into PATH")
    ref = _ref_of(facts)
    if repository is None:
        _make_repository(git_dir, None)
        git = _SnapshotRepository(git_dir, folder)
        sha = git.commit(git.tree_of(_list_files(folder, git_dir)), (), f"Snapshot of {folder.name or folder}", {})
        return Snapshot(git_dir=git_dir, sha=sha, ref=ref, refs=_branches(facts, sha) | {ref: sha})
    if facts.sha == NO_SHA:
        raise BadInputError(
            f"the repository at {folder} has no commits yet; make the first one: "
            "git add -A && git commit -m 'First commit'"
        )
    source = _source(repository)
    _make_repository(git_dir, source.objects)
    git = _SnapshotRepository(git_dir, repository.top() if source.prefix else folder)
    tree = git.work_tree(source)
    if not source.prefix and not source.has_gaps:
        return _take_with_history(git, source, facts, tree, compared)
    since = _since(repository, facts)
    bases = {name: base for name in compared if (base := _base(repository, name))}
    remark = ""
    if source.is_partial and (since or bases):
        since, bases = None, {}
        remark = "this is a partial clone, so everything counts as changed for rules:changes"
    date = facts.predefined.get("CI_COMMIT_TIMESTAMP", "")
    orphans = {commit: git.make_orphan(commit, source.prefix, date) for commit in {since, *bases.values()} if commit}
    tree = tree or git.answer("rev-parse", f"{facts.sha}:{source.prefix}")
    sha = git.commit(tree, tuple(dict.fromkeys(orphans.values())), *_message_and_author(facts))
    refs = {_full_name(repository, name): orphans[base] for name, base in bases.items()}
    return Snapshot(
        git_dir=git_dir,
        sha=sha,
        ref=ref,
        since=orphans.get(since) if since else None,
        refs=refs | _branches(facts, sha) | {ref: sha},
        remark=remark,
    )


def _take_with_history(
    git: "_SnapshotRepository", source: _Source, facts: "Facts", tree: str | None, compared: Iterable[str]
) -> Snapshot:
    repository, since = source.repository, _since(source.repository, facts)
    sha = git.commit(tree, (facts.sha,), *_message_and_author(facts)) if tree else facts.sha
    refs = _near_tags(repository)
    if since:
        refs[f"{COMPARED}{since}"] = since
    for name in compared:
        if commit := repository.commit(name):
            refs[_full_name(repository, name)] = commit
    default = f"refs/heads/{facts.default_branch}"
    ref = _ref_of(facts)
    if default not in refs and default != ref:
        origins = f"refs/remotes/origin/{facts.default_branch}"
        if commit := repository.resolve(origins) or repository.resolve(default):
            refs[default] = commit
    refs |= _branches(facts, sha) | {ref: sha}
    return Snapshot(git_dir=git.git_dir, sha=sha, ref=ref, since=since, refs=refs)


def _near_tags(repository: "Repository") -> dict[str, str]:
    """Return the tags of the last `DESCRIBED_COMMITS` commits with their object ids; for an annotated tag, the id of
    the tag object, which `git describe` looks for."""
    listing = repository.answer("for-each-ref", "--format=%(refname) %(objectname) %(*objectname)", "refs/tags")
    tags = [line.split() for line in listing.splitlines()]
    recent = set(repository.answer("rev-list", f"-{DESCRIBED_COMMITS}", "HEAD").split()) if tags else set()
    return {name: tag for name, tag, *commit in tags if (commit[0] if commit else tag) in recent}


def mirror(repository: "Repository", facts: "Facts", default_branch: str, git_dir: Path) -> Snapshot:
    """Make a repository at `git_dir` with all branches and tags of a project's clone; return it as snapshot. Local
    branches win over those of `origin`. `facts`: HEAD of the clone, used if it has no default branch."""
    source = _source(repository)
    _make_repository(git_dir, source.objects)
    git = _SnapshotRepository(git_dir, repository.folder)
    form = "--format=%(refname) %(objectname)"
    listing = repository.answer("for-each-ref", form, "refs/remotes/origin", "refs/heads", "refs/tags")
    refs: dict[str, str] = {}
    # The server's branches come first, so that local ones replace them.
    for line in sorted(listing.splitlines(), key=lambda line: not line.startswith("refs/remotes/")):
        ref, _, commit = line.partition(" ")
        if ref != "refs/remotes/origin/HEAD":
            refs[ref.replace("refs/remotes/origin/", "refs/heads/", 1)] = commit
    refs.setdefault(f"refs/heads/{default_branch}", facts.sha)
    if source.has_gaps:
        date = facts.predefined.get("CI_COMMIT_TIMESTAMP", "")
        refs = {ref: git.make_orphan(commit, "", date) for ref, commit in refs.items()}
    ref = f"refs/heads/{default_branch}"
    return Snapshot(git_dir=git_dir, sha=refs[ref], ref=ref, refs=refs)


def push_environment(git_dir: Path, authorization: str) -> dict[str, str]:
    """Return the environment for `git push` to the cell; it keeps the credentials out of the command line."""
    settings = {
        "http.extraHeader": f"Authorization: {authorization}",
        "http.proxy": "",
        "http.postBuffer": "16777216",
        "core.hooksPath": os.devnull,
    }
    return _bare_environment(
        GIT_DIR=str(git_dir),
        GIT_CONFIG_COUNT=str(len(settings)),
        **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(settings)},
        **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(settings.values())},
    )


def _ref_of(facts: "Facts") -> str:
    if facts.source == "merge_request_event":
        return MERGE_REQUEST_REF
    return f"refs/{'tags' if facts.is_tag else 'heads'}/{facts.ref}"


def _branches(facts: "Facts", sha: str) -> dict[str, str]:
    """Return a dict from the full name of the snapshot's branch to its commit. The dict is empty if the pipeline is for
    a tag, except in a folder without commits, where the cell needs the default branch."""
    branch = facts.default_branch if facts.is_tag else facts.ref
    return {} if facts.is_tag and facts.sha != NO_SHA else {f"refs/heads/{branch}": sha}


def _message_and_author(facts: "Facts") -> tuple[str, dict[str, str]]:
    variables = facts.predefined
    name, _, email = variables.get("CI_COMMIT_AUTHOR", "").rpartition(" <")
    author = {"NAME": name.strip(), "EMAIL": email.rstrip(">"), "DATE": variables.get("CI_COMMIT_TIMESTAMP", "")}
    return variables.get("CI_COMMIT_MESSAGE", ""), {key: value for key, value in author.items() if value}


def _since(repository: "Repository", facts: "Facts") -> str | None:
    """Return the commit with which `rules:changes` compares: the merge base of a merge request, or of HEAD and the
    pushed branch on the server. None: all files count as changed."""
    if facts.source == "merge_request_event":
        return facts.predefined.get("CI_MERGE_REQUEST_DIFF_BASE_SHA") or None
    before = facts.predefined.get("CI_COMMIT_BEFORE_SHA", NO_SHA)
    if before in (NO_SHA, facts.sha):
        return None if before == NO_SHA else before
    return repository.merge_base(before) or before


def _base(repository: "Repository", name: str) -> str | None:
    commit = repository.commit(name)
    return repository.merge_base(commit) if commit else None


def _full_name(repository: "Repository", name: str) -> str:
    """Return the ref for the upload of a branch, tag or commit id that a rule names; an id's is below `COMPARED`."""
    if name.startswith(("refs/heads/", "refs/tags/")):
        return name
    is_branch = any(repository.resolve(place + name) for place in ("refs/remotes/origin/", "refs/heads/"))
    if not is_branch and repository.resolve(f"refs/tags/{name}"):
        return f"refs/tags/{name}"
    if repository.resolve(name) == name:
        return f"{COMPARED}{name}"
    return f"refs/heads/{name}"


def _source(repository: "Repository") -> _Source:
    lines = (
        repository.ask(
            "rev-parse",
            "--is-shallow-repository",
            "--show-object-format",
            *("--path-format=absolute", "--git-path", "objects", "--git-path", "index"),
            "--show-prefix",
        )
        or b""
    ).split(b"\n")
    if len(lines) < 5:
        raise CommandError(f"git cannot say where the repository at {repository.folder} is; is git older than 2.31?")
    shallow, form, objects, index, prefix, *_ = (os.fsdecode(line) for line in lines)
    if form != "sha1":
        raise BadInputError(f"the repository at {repository.folder} has {form} object ids; only sha1 is supported")
    is_partial = repository.is_set(r"remote\..*\.promisor|extensions\.partialclone")
    return _Source(
        repository=repository,
        prefix=prefix,
        is_partial=is_partial,
        has_gaps=shallow != "false" or is_partial,
        objects=Path(objects),
        index=Path(index),
        settings=tuple(
            word for name, value in repository.settings(*CONVERTING).items() for word in ("-c", f"{name}={value}")
        ),
    )


def _make_repository(git_dir: Path, objects: Path | None) -> None:
    """Create a bare repository that also uses the object folder `objects`, if it is set. Writes the files itself: `git
    init` would cost another process."""
    (git_dir / "objects" / "info").mkdir(parents=True)
    (git_dir / "refs").mkdir()
    (git_dir / "HEAD").write_text("ref: refs/heads/none\n")
    (git_dir / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
    if objects is not None:
        (git_dir / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")


def _list_files(folder: Path, git_dir: Path) -> list[bytes]:
    """Return the files of a folder that is in no repository, except those that a .gitignore excludes. `git_dir`: an
    empty repository, which git needs."""
    environment = quiet_environment() | {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(folder)}
    listing = _git(["ls-files", "-z", "--others", "--exclude-standard"], folder, environment)
    # A repository inside is listed with a slash at its end; `git add` would store only a link to its commit.
    return [name for name in listing.split(b"\0") if name and not name.endswith(b"/")]


class _SnapshotRepository:
    """Runs git with the snapshot's repository and the user's files as its work tree."""

    def __init__(self, git_dir: Path, top: Path) -> None:
        self.git_dir = git_dir
        self._top = top
        self._environment = _bare_environment(
            GIT_DIR=str(git_dir), GIT_WORK_TREE=str(top), GIT_INDEX_FILE=str(git_dir / "index")
        )

    def ask(self, *arguments: str, stdin: bytes = b"", more: Mapping[str, str] | None = None) -> bytes:
        return _git(list(arguments), self._top, self._environment | dict(more or {}), stdin)

    def answer(self, *arguments: str) -> str:
        return self.ask(*arguments).decode().strip()

    def tree_of(self, paths: Iterable[bytes], prefix: str = "", settings: tuple[str, ...] = ()) -> str:
        """Update the index with the current state of these files, and return the id of its tree. Deleted files are
        removed. `prefix`: return the tree of this subfolder. `settings`: options of git."""
        names = b"".join(path + b"\0" for path in paths)
        self.ask(*settings, "update-index", "-z", "--add", "--remove", "--replace", "--stdin", stdin=names)
        return self.answer("write-tree", *([f"--prefix={prefix}"] if prefix else ()))

    def work_tree(self, source: _Source) -> str | None:
        """Write the user's files as a tree and return its id; None if they are the same as in HEAD."""
        repository, prefix = source.repository, os.fsencode(source.prefix)
        status = repository.status()
        if status is None:
            raise CommandError(f"cannot take a snapshot of {repository.folder}: git cannot say what is changed there")
        changed = [entry[3:] for entry in status.split(b"\0") if entry and not entry.endswith(b"/")]
        filtered = _filtered_files(repository)
        if not changed and not filtered:
            return None
        # With a copy of the user's index, git hashes only changed files. The copy keeps its time, because git hashes
        # every file that is not older than the index.
        for part in (source.index, *source.index.parent.glob("sharedindex.*")):
            if part.exists():
                shutil.copy2(part, self.git_dir / part.name)
        if filtered:
            gone = b"".join(prefix + path + b"\0" for path in filtered)
            self.ask("update-index", "-z", "--force-remove", "--stdin", stdin=gone)
        return self.tree_of([*changed, *(prefix + path for path in filtered)], source.prefix, source.settings)

    def make_orphan(self, commit: str, prefix: str, date: str) -> str:
        """Create a commit without parents with the files of another commit, and return its id. `prefix`: take only this
        subfolder. `date`: of the new commit."""
        has_folder = not prefix or self.answer("ls-tree", "-d", commit, "--", prefix.rstrip("/"))
        tree = self.answer("rev-parse", f"{commit}:{prefix}") if has_folder else self.answer("mktree")
        return self.commit(tree, (), f"What {commit[:8]} had", {"DATE": date})

    def commit(self, tree: str, parents: tuple[str, ...], message: str, author: Mapping[str, str]) -> str:
        """Create a commit and return its id. `author`: NAME, EMAIL and DATE of author and committer. With a DATE, the
        same arguments give the same id."""
        person = {"NAME": DEFAULT_NAME, "EMAIL": DEFAULT_EMAIL, **author}
        names = {f"GIT_{role}_{key}": value for key, value in person.items() for role in ("AUTHOR", "COMMITTER")}
        options = [word for parent in parents for word in ("-p", parent)]
        sha = self.ask("commit-tree", *options, "-F", "-", tree, stdin=(message or "\n").encode(), more=names)
        return sha.decode().strip()


def _filtered_files(repository: "Repository") -> list[bytes]:
    """Return the files with a git filter, for example LFS; none if the user's git has no filter. The snapshot stores
    them unfiltered, so that jobs get the content and not a pointer."""
    if not repository.is_set(r"filter\..*"):
        return []
    names = repository.ask("ls-files", "-z") or b""
    command = ["check-attr", "-z", "--stdin", "filter"]
    fields = _git(command, repository.folder, quiet_environment(), names).split(b"\0")
    values = zip(fields[0::3], fields[2::3], strict=False)
    paths = [path for path, value in values if value not in (b"unspecified", b"unset", b"set")]
    return [path for path in paths if os.path.lexists(os.path.join(os.fsencode(repository.folder), path))]


def _bare_environment(**more: str) -> dict[str, str]:
    """Return the environment for git commands on the snapshot: `quiet_environment` (no prompts), without the user's git
    configuration (hooks, filters, signing), and with the variables `more`."""
    return quiet_environment() | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull} | more


def _git(arguments: list[str], folder: Path, environment: Mapping[str, str], stdin: bytes = b"") -> bytes:
    result = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, input=stdin, capture_output=True, check=False
    )
    if result.returncode != 0:
        complaint = result.stderr.decode(errors="replace").strip() or f"exit code {result.returncode}"
        raise CommandError(f"cannot take a snapshot of {folder}: git {' '.join(arguments)[:60]}: {complaint}")
    return result.stdout
