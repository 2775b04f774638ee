"""Reads a git repository on this machine: refs, trees, files, differences. git runs without the variables of a
surrounding hook, prompts, lazy fetches, `git replace`, and programs that the repository configures (fsmonitor,
external diffs). A ref from a pipeline file is used only as the name of a branch, tag or commit, never as an option or a
revision expression. Invariant: writes nothing, not even a refreshed index, and contacts no other machine."""

import os
import re
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import msgspec

from remuda.lib.exits import BadInputError
from remuda.localrun.sources.git_environment import quiet_environment

REGULAR = ("100644", "100755")
GITLINK = "160000"

_SHA = re.compile(r"[0-9a-f]{7,64}", re.IGNORECASE)
# Not allowed in a ref, so that a name cannot become an expression such as main@{1 day ago}.
_BAD_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\\ud800-\udfff]|\.\.|@\{|^-|^/|//|/$")
_NO_SUBMODULES = "--ignore-submodules=dirty"
_QUIET = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false")


class TreeFile(msgspec.Struct, frozen=True, kw_only=True):
    mode: str
    id: str
    size: int = 0


def is_ref_name(text: str) -> bool:
    return bool(text) and _BAD_IN_REF.search(text) is None


_PARTS: dict[Path, bool] = {}
"""Cache of `Repository.at`: folders in a repository, and whether they are only a part of it."""


class Repository:
    """The git repository that a folder belongs to. Paths are relative to the folder, which may be a subfolder."""

    def __init__(self, folder: Path, *, is_part: bool) -> None:
        """Wrap the repository that `at` has found. `is_part`: the folder is a subfolder of its work tree."""
        self.folder = folder
        self.is_part = is_part
        self._trees: dict[str, Mapping[str, TreeFile]] = {}

    @classmethod
    def at(cls, folder: Path) -> "Repository | None":
        """Return the repository of a folder; None if the folder is in none, or git is not installed. Raises
        BadInputError if git cannot read the repository."""
        if folder in _PARTS:
            return cls(folder, is_part=_PARTS[folder])
        try:
            result = _run(("rev-parse", "--show-prefix"), folder)
        except FileNotFoundError:
            return None
        if result.returncode != 0:
            complaint = result.stderr.decode(errors="replace").strip()
            if "not a git repository" in complaint:
                return None
            raise BadInputError(f"git cannot read the repository at {folder}: {complaint}")
        _PARTS[folder] = bool(result.stdout.strip())
        return cls(folder, is_part=_PARTS[folder])

    def top(self) -> Path:
        """Return the top folder of the work tree; for a bare repository, the folder itself."""
        return Path(os.fsdecode((self.ask("rev-parse", "--show-toplevel") or b"").rstrip(b"\n")) or self.folder)

    def default_branch(self) -> str:
        """Return the default branch of `origin` if the clone knows it, else the branch that is checked out."""
        return self.default_branch_of_origin() or self.answer("symbolic-ref", "--quiet", "--short", "HEAD")

    def default_branch_of_origin(self) -> str:
        """Return the default branch of `origin`; '' if the clone does not know it."""
        origin = "refs/remotes/origin/"
        head = self.answer("symbolic-ref", "--quiet", f"{origin}HEAD")
        return head.removeprefix(origin) if head.startswith(origin) else ""

    def ask(self, *arguments: str) -> bytes | None:
        """Run a git command and return its output as bytes; None if it fails."""
        try:
            result = _run(arguments, self.folder)
        except ValueError:
            # NUL cannot be part of an argument, so nothing has that name.
            return None
        return result.stdout if result.returncode == 0 else None

    def answer(self, *arguments: str) -> str:
        """Run a git command and return its output as stripped text; '' if it fails."""
        return (self.ask(*arguments) or b"").decode(errors="replace").strip()

    def names(self, *arguments: str) -> list[str]:
        """Run a git command with NUL-separated output and return the parts; an empty list if it fails."""
        return [os.fsdecode(name) for name in (self.ask(*arguments) or b"").split(b"\0") if name]

    def settings(self, *names: str) -> dict[str, str]:
        """Return the values of these git settings; those that are not set are left out. Names are in lower case."""
        return {name: self._settings[name] for name in names if name in self._settings}

    def is_set(self, pattern: str) -> bool:
        """True if git has at least one configured setting whose whole name matches this regular expression."""
        return any(re.fullmatch(pattern, name) for name in self._settings)

    @cached_property
    def _settings(self) -> dict[str, str]:
        """All git settings. Of several values the last one counts, but the first one for settings of a remote."""
        settings: dict[str, str] = {}
        for entry in self.names("config", "-z", "--list"):
            name, _, value = entry.partition("\n")
            if name not in settings or not name.startswith("remote."):
                settings[name] = value
        return settings

    def origin(self) -> str:
        """Return the URL of the remote `origin`, after git's `insteadOf` rewrites; '' without such a remote."""
        if self.is_set(r"url\..*\.insteadof"):
            return self.answer("remote", "get-url", "origin")
        return self.settings("remote.origin.url").get("remote.origin.url", "")

    def commit(self, ref: str, *, own_first: bool = False) -> str | None:
        """Return the commit id of a branch, tag or (short) commit id; None if it does not exist. If `origin` and this
        clone have the branch, `origin` wins, or with `own_first` the clone."""
        if not is_ref_name(ref):
            return None
        if ref.startswith("refs/") or ref == "HEAD":
            return self.resolve(ref)
        branches = ("refs/heads/", "refs/remotes/origin/") if own_first else ("refs/remotes/origin/", "refs/heads/")
        places = (*branches, "refs/tags/", "refs/remotes/")
        names = [*([ref] if _SHA.fullmatch(ref) else ()), *(place + ref for place in places)]
        return next((commit for name in names if (commit := self.resolve(name))), None)

    def resolve(self, ref: str) -> str | None:
        """Return the commit id of a full ref name or a commit id; None if it does not exist."""
        return self.answer("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}") or None

    def merge_base(self, commit: str) -> str | None:
        """Return the best common ancestor of the commit and HEAD; None if there is none."""
        return self.answer("merge-base", "HEAD", commit) or None

    def status(self) -> bytes | None:
        """Return the output of `git status` with untracked files; None if git fails. It is computed only once."""
        return self._status

    @cached_property
    def _status(self) -> bytes | None:
        options = ("--porcelain", "-z", "--no-renames", "--untracked-files=all", _NO_SUBMODULES)
        return self.ask("status", *options, "--", ".")

    def changes_since(self, commit: str) -> frozenset[str]:
        changed = self.names(
            "diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", _NO_SUBMODULES, "--relative", commit
        )
        return frozenset(changed) | frozenset(self.untracked_files())

    def untracked_files(self) -> list[str]:
        """Return the files that git neither tracks nor ignores. Nested repositories are left out."""
        names = self.names("ls-files", "-z", "--others", "--exclude-standard")
        return [name for name in names if not name.endswith("/")]

    def index(self) -> dict[str, TreeFile]:
        return _read_listing(self.names("ls-files", "-z", "--stage"))

    def modified_files(self) -> list[str]:
        """Return the tracked files that may differ from the index, including deleted ones."""
        return self.names("diff-files", "--name-only", "-z", _NO_SUBMODULES, "--relative")

    def tree(self, commit: str) -> Mapping[str, TreeFile]:
        if commit not in self._trees:
            self._trees[commit] = _read_listing(self.names("ls-tree", "-r", "-z", "--long", commit))
        return self._trees[commit]

    def blob(self, identity: str) -> bytes | None:
        return self.ask("cat-file", "blob", identity)


def _read_listing(lines: list[str]) -> dict[str, TreeFile]:
    """Parse `ls-files --stage` (mode, id, merge stage, path) or `ls-tree --long` (mode, type, id, size, path)."""
    files: dict[str, TreeFile] = {}
    for line in lines:
        facts, _, path = line.partition("\t")
        mode, *rest = facts.split()
        if len(rest) == 2:
            files[path] = TreeFile(mode=mode, id=rest[0])
        else:
            files[path] = TreeFile(mode=mode, id=rest[1], size=int(rest[2]) if rest[2].isdigit() else 0)
    return files


def _run(arguments: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[bytes]:
    command = ["git", *_QUIET, *arguments]
    environment = quiet_environment() | {"GIT_ALLOW_PROTOCOL": "none"}
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
