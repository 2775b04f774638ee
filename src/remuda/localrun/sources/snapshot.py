"""A folder as one git commit, uncommitted changes included, ignored files left out, without writing to the folder.

Decided here: which files belong to the snapshot, which commit they make, and what else of the repository a cell must
have so that rules and jobs find there what they would find after a real push. Where nothing is uncommitted the snapshot
is HEAD itself; else a commit on top of it with the same message, so that the same work gives the same commit. The
user's repository is only read; what is new goes into a repository of our own beside the run's data, which borrows the
user's objects. `remuda run` is the caller: its cell borrows them from there, or gets them by a push.

A part of a repository, and one whose history git has cut off, have no history of their own to go on with: the
snapshot's parents are then the commits that rules compare with, each without a past.

Invariant: nothing below the folder is created, changed or removed, not even an index that git would refresh.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.cli.exits import BadInputError, CommandError
from remuda.lib.dataclass import dataclass
from remuda.localrun.sources.git_variables import REPOSITORY_VARIABLES

if TYPE_CHECKING:
    from remuda.localrun.sources.repository import Repository
    from remuda.pipeline import Facts

PIPELINE_FILE = ".gitlab-ci.yml"
DEFAULT_NAME = "remuda"
DEFAULT_EMAIL = "remuda@localhost"
NO_SHA = "0" * 40
MERGE_REQUEST_REF = "refs/merge-requests/1/head"
DESCRIBED_COMMITS = 50
"""So many commits back, tags come along: `git describe` works where it works in a job's shallow clone."""

COMPARED = "refs/compared/"
"""Where commits go that rules compare with and that no branch or tag leads to."""
CONVERTING = ("core.autocrlf", "core.eol", "core.filemode", "core.symlinks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A commit in a repository of our own, and what goes with it."""

    git_dir: Path
    sha: str
    ref: str
    """The whole name of the ref that the pipeline is for."""
    since: str | None = None
    """The commit that `rules:changes` compares with; None where everything counts as changed."""
    refs: dict[str, str] = field(default_factory=dict)
    """All refs that the cell should have, with their commits."""
    remark: str = ""
    """What the snapshot cannot tell, for the person who runs it."""

    @property
    def objects(self) -> Path:
        """Where its objects are; those of the user's repository are borrowed there."""
        return self.git_dir / "objects"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """The user's repository as far as a snapshot needs it."""

    repository: "Repository"
    prefix: str
    """Where the folder is in it, with a slash at the end; empty for the repository itself."""
    is_partial: bool
    """Only the files that are checked out are sure to be there."""
    has_gaps: bool
    """Not all of its history is there."""
    objects: Path
    index: Path
    settings: tuple[str, ...]
    """Those of the user that say how a file becomes what git keeps, as options of git."""


def take(
    folder: Path, repository: "Repository | None", facts: "Facts", git_dir: Path, *, compared: Iterable[str] = ()
) -> Snapshot:
    """The folder's files as a commit in a new repository at `git_dir`; `compared` are refs that rules compare with."""
    if shutil.which("git") is None:
        raise BadInputError("git was not found, and a run needs it; install git, or put it into PATH")
    ref = _ref_of(facts)
    if repository is None:
        _make_repository(git_dir, None)
        git = _Own(git_dir, folder)
        sha = git.commit(git.tree_of(_listed(folder, git_dir)), (), f"Snapshot of {folder.name or folder}", {})
        return Snapshot(git_dir=git_dir, sha=sha, ref=ref, refs=_branches(facts, sha) | {ref: sha})
    if facts.sha == NO_SHA:
        raise BadInputError(
            f"the repository at {folder} has no commits yet; make the first one: "
            "git add -A && git commit -m 'First commit'"
        )
    source = _source(repository)
    _make_repository(git_dir, source.objects)
    git = _Own(git_dir, repository.top() if source.prefix else folder)
    tree = git.changed_tree(source)
    if not source.prefix and not source.has_gaps:
        return _with_history(git, source, facts, tree, compared)
    since = _since(repository, facts)
    bases = {name: base for name in compared if (base := _base(repository, name))}
    remark = ""
    if source.is_partial and (since or bases):
        since, bases = None, {}
        remark = "this is a partial clone, so everything counts as changed for rules:changes"
    at = facts.predefined.get("CI_COMMIT_TIMESTAMP", "")
    cut = {commit: git.cut_off(commit, source.prefix, at) for commit in {since, *bases.values()} if commit}
    tree = tree or git.answer("rev-parse", f"{facts.sha}:{source.prefix}")
    sha = git.commit(tree, tuple(dict.fromkeys(cut.values())), *_described(facts))
    refs = {_full(repository, name): cut[base] for name, base in bases.items()}
    return Snapshot(
        git_dir=git_dir,
        sha=sha,
        ref=ref,
        since=cut.get(since) if since else None,
        refs=refs | _branches(facts, sha) | {ref: sha},
        remark=remark,
    )


def _with_history(git: "_Own", source: _Source, facts: "Facts", tree: str | None, compared: Iterable[str]) -> Snapshot:
    repository, since = source.repository, _since(source.repository, facts)
    sha = git.commit(tree, (facts.sha,), *_described(facts)) if tree else facts.sha
    refs = _near_tags(repository)
    if since:
        refs[f"{COMPARED}{since}"] = since
    for name in compared:
        if commit := repository.commit(name):
            refs[_full(repository, name)] = commit
    default = f"refs/heads/{facts.default_branch}"
    ref = _ref_of(facts)
    if default not in refs and default != ref:
        origins = f"refs/remotes/origin/{facts.default_branch}"
        if commit := repository.resolved(origins) or repository.resolved(default):
            refs[default] = commit
    refs |= _branches(facts, sha) | {ref: sha}
    return Snapshot(git_dir=git.git_dir, sha=sha, ref=ref, since=since, refs=refs)


def _near_tags(repository: "Repository") -> dict[str, str]:
    """Tags of the last commits, as they are: `git describe` tells annotated ones from others."""
    listed = repository.answer("for-each-ref", "--format=%(refname) %(objectname) %(*objectname)", "refs/tags")
    tags = [line.split() for line in listed.splitlines()]
    recent = set(repository.answer("rev-list", f"-{DESCRIBED_COMMITS}", "HEAD").split()) if tags else set()
    return {name: own for name, own, *inner in tags if (inner[0] if inner else own) in recent}


def mirror(repository: "Repository", facts: "Facts", default_branch: str, git_dir: Path) -> Snapshot:
    """All branches and tags of another project's clone; one's own branches go before the server's."""
    source = _source(repository)
    _make_repository(git_dir, source.objects)
    git = _Own(git_dir, repository.folder)
    form = "--format=%(refname) %(objectname)"
    listed = repository.answer("for-each-ref", form, "refs/remotes/origin", "refs/heads", "refs/tags")
    refs: dict[str, str] = {}
    # The server's branches come first, so that one's own take their places.
    for line in sorted(listed.splitlines(), key=lambda line: not line.startswith("refs/remotes/")):
        ref, _, commit = line.partition(" ")
        if ref != "refs/remotes/origin/HEAD":
            refs[ref.replace("refs/remotes/origin/", "refs/heads/", 1)] = commit
    refs.setdefault(f"refs/heads/{default_branch}", facts.sha)
    if source.has_gaps:
        at = facts.predefined.get("CI_COMMIT_TIMESTAMP", "")
        refs = {ref: git.cut_off(commit, "", at) for ref, commit in refs.items()}
    ref = f"refs/heads/{default_branch}"
    return Snapshot(git_dir=git_dir, sha=refs[ref], ref=ref, refs=refs)


def push_environment(git_dir: Path, authorization: str) -> dict[str, str]:
    """The environment for a push out of a repository: credentials stay out of the command line, no proxy is asked."""
    settings = {
        "http.extraHeader": f"Authorization: {authorization}",
        "http.proxy": "",
        "http.postBuffer": "16777216",
        "core.hooksPath": os.devnull,
    }
    return _alone(
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
    """The branch that the snapshot is on. A folder alone, or one on a tag, has none but the default one."""
    branch = facts.default_branch if facts.is_tag else facts.ref
    return {} if facts.is_tag and facts.sha != NO_SHA else {f"refs/heads/{branch}": sha}


def _described(facts: "Facts") -> tuple[str, dict[str, str]]:
    """The message and the author of HEAD, for the commit on top of it."""
    told = facts.predefined
    name, _, email = told.get("CI_COMMIT_AUTHOR", "").rpartition(" <")
    author = {"NAME": name.strip(), "EMAIL": email.rstrip(">"), "DATE": told.get("CI_COMMIT_TIMESTAMP", "")}
    return told.get("CI_COMMIT_MESSAGE", ""), {key: value for key, value in author.items() if value}


def _since(repository: "Repository", facts: "Facts") -> str | None:
    """What the event compares with, the way the facts do."""
    if facts.source == "merge_request_event":
        return facts.predefined.get("CI_MERGE_REQUEST_DIFF_BASE_SHA") or None
    before = facts.predefined.get("CI_COMMIT_BEFORE_SHA", NO_SHA)
    if before in (NO_SHA, facts.sha):
        return None if before == NO_SHA else before
    return repository.merge_base(before) or before


def _base(repository: "Repository", name: str) -> str | None:
    commit = repository.commit(name)
    return repository.merge_base(commit) if commit else None


def _full(repository: "Repository", name: str) -> str:
    """The whole name of the ref that the cell should have for what a rule names."""
    if name.startswith(("refs/heads/", "refs/tags/")):
        return name
    is_branch = any(repository.resolved(place + name) for place in ("refs/remotes/origin/", "refs/heads/"))
    if not is_branch and repository.resolved(f"refs/tags/{name}"):
        return f"refs/tags/{name}"
    if repository.resolved(name) == name:
        return f"{COMPARED}{name}"
    return f"refs/heads/{name}"


def _source(repository: "Repository") -> _Source:
    told = (
        repository.ask(
            "rev-parse",
            "--is-shallow-repository",
            "--show-object-format",
            *("--path-format=absolute", "--git-path", "objects", "--git-path", "index"),
            "--show-prefix",
        )
        or b""
    ).split(b"\n")
    if len(told) < 5:
        raise CommandError(f"git cannot say where the repository at {repository.folder} is; is git older than 2.31?")
    shallow, form, objects, index, prefix, *_ = (os.fsdecode(line) for line in told)
    if form != "sha1":
        raise BadInputError(f"the repository at {repository.folder} has object names by {form}; only sha1 is supported")
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
    """An empty bare repository that borrows objects; `git init` would cost another process."""
    (git_dir / "objects" / "info").mkdir(parents=True)
    (git_dir / "refs").mkdir()
    (git_dir / "HEAD").write_text("ref: refs/heads/none\n")
    (git_dir / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
    if objects is not None:
        (git_dir / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")


def _listed(folder: Path, git_dir: Path) -> list[bytes]:
    """The files of a folder that is no repository; ignore rules hold there too."""
    environment = _users() | {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(folder)}
    listing = _git(["ls-files", "-z", "--others", "--exclude-standard"], folder, environment)
    # A repository inside is listed with a slash at its end; `git add` would store no more than a pointer to it.
    return [name for name in listing.split(b"\0") if name and not name.endswith(b"/")]


class _Own:
    """git in our own repository, over the user's files."""

    def __init__(self, git_dir: Path, top: Path) -> None:
        self.git_dir = git_dir
        self._top = top
        self._environment = _alone(GIT_DIR=str(git_dir), GIT_WORK_TREE=str(top), GIT_INDEX_FILE=str(git_dir / "index"))

    def ask(self, *arguments: str, stdin: bytes = b"", more: Mapping[str, str] | None = None) -> bytes:
        return _git(list(arguments), self._top, self._environment | dict(more or {}), stdin)

    def answer(self, *arguments: str) -> str:
        return self.ask(*arguments).decode().strip()

    def tree_of(self, paths: Iterable[bytes], prefix: str = "", settings: tuple[str, ...] = ()) -> str:
        """The tree of the index with these files as they are now; those that are gone go."""
        listed = b"".join(path + b"\0" for path in paths)
        self.ask(*settings, "update-index", "-z", "--add", "--remove", "--replace", "--stdin", stdin=listed)
        return self.answer("write-tree", *([f"--prefix={prefix}"] if prefix else ()))

    def changed_tree(self, source: _Source) -> str | None:
        """The tree of the work tree; None where it is that of HEAD."""
        repository, prefix = source.repository, os.fsencode(source.prefix)
        told = repository.status()
        if told is None:
            raise CommandError(f"cannot take a snapshot of {repository.folder}: git cannot say what is changed there")
        changed = [entry[3:] for entry in told.split(b"\0") if entry and not entry.endswith(b"/")]
        filtered = _filtered(repository)
        if not changed and not filtered:
            return None
        # With the user's index, git hashes only what is changed. It takes a file that is as old as the index for one
        # that may have changed since; so the copy must be as old, too.
        for part in (source.index, *source.index.parent.glob("sharedindex.*")):
            if part.exists():
                shutil.copy2(part, self.git_dir / part.name)
        if filtered:
            gone = b"".join(prefix + path + b"\0" for path in filtered)
            self.ask("update-index", "-z", "--force-remove", "--stdin", stdin=gone)
        return self.tree_of([*changed, *(prefix + path for path in filtered)], source.prefix, source.settings)

    def cut_off(self, commit: str, prefix: str, at: str) -> str:
        """A commit with the folder's files of another one, and no past."""
        known = self.answer("ls-tree", "-d", commit, "--", prefix.rstrip("/")) if prefix else "it is all of it"
        tree = self.answer("rev-parse", f"{commit}:{prefix}") if known else self.answer("mktree")
        return self.commit(tree, (), f"What {commit[:8]} had", {"DATE": at})

    def commit(self, tree: str, parents: tuple[str, ...], message: str, author: Mapping[str, str]) -> str:
        """A new commit; one with the same contents has the same name."""
        who = {"NAME": DEFAULT_NAME, "EMAIL": DEFAULT_EMAIL, **author}
        names = {f"GIT_{role}_{key}": value for key, value in who.items() for role in ("AUTHOR", "COMMITTER")}
        options = [word for parent in parents for word in ("-p", parent)]
        made = self.ask("commit-tree", *options, "-F", "-", tree, stdin=(message or "\n").encode(), more=names)
        return made.decode().strip()


def _filtered(repository: "Repository") -> list[bytes]:
    """Files that git keeps in another form, as large files are: a job gets them as they are here."""
    try:
        attributes = (repository.folder / ".gitattributes").read_bytes()
    except OSError:
        return []
    if b"filter=" not in attributes:
        return []
    listed = repository.ask("ls-files", "-z") or b""
    told = _git(["check-attr", "-z", "--stdin", "filter"], repository.folder, _users(), listed).split(b"\0")
    values = zip(told[0::3], told[2::3], strict=False)
    found = [path for path, value in values if value not in (b"unspecified", b"unset", b"set")]
    return [path for path in found if os.path.lexists(os.path.join(os.fsencode(repository.folder), path))]


def _users() -> dict[str, str]:
    """The user's git, free of a surrounding hook, with texts we can recognise, writing nothing."""
    clean = {name: value for name, value in os.environ.items() if name not in REPOSITORY_VARIABLES}
    quiet = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
    return clean | quiet | {"GIT_NO_REPLACE_OBJECTS": "1"}


def _alone(**more: str) -> dict[str, str]:
    """Our own git: the user's configuration (hooks, filters, signing) plays no part."""
    return _users() | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull} | more


def _git(arguments: list[str], folder: Path, environment: Mapping[str, str], stdin: bytes = b"") -> bytes:
    result = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, input=stdin, capture_output=True, check=False
    )
    if result.returncode != 0:
        complaint = result.stderr.decode(errors="replace").strip() or f"exit code {result.returncode}"
        raise CommandError(f"cannot take a snapshot of {folder}: git {' '.join(arguments)[:60]}: {complaint}")
    return result.stdout
