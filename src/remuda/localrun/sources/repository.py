"""A git repository on this machine, read only: refs, trees, files, what differs.

Decided here: how git is asked so that nothing of it can surprise. A surrounding hook's variables, prompts, lazy
fetches, replaced objects (a push takes none of them along, so no pipeline would see them) and programs that the
repository's configuration names (fsmonitor, external diffs) play no part, and a ref from a file is only ever tried as
the name of a branch, a tag or a commit, never as an option or an expression. What the answers mean for a pipeline is
decided in `worktree` and `sources`, the callers.

Invariant: nothing is written, not even an index that git would refresh, and no other machine is asked.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import msgspec

from remuda.cli.exits import BadInputError
from remuda.localrun.sources.git_variables import REPOSITORY_VARIABLES

REGULAR = ("100644", "100755")
GITLINK = "160000"

_SHA = re.compile(r"[0-9a-f]{7,64}", re.IGNORECASE)
# What git allows in no ref; so a name cannot become an expression such as main@{1 day ago}.
_BAD_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\\ud800-\udfff]|\.\.|@\{|^-|^/|//|/$")
_NO_SUBMODULES = "--ignore-submodules=dirty"
_QUIET = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false")


class TreeFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a commit or of the index."""

    mode: str
    id: str
    size: int = 0


def is_ref_name(text: str) -> bool:
    """Whether a branch or tag could be called so."""
    return bool(text) and _BAD_IN_REF.search(text) is None


# Folders that are known to be repositories, and whether only a part of one. Git is asked many things about one folder.
_PARTS: dict[Path, bool] = {}


class Repository:
    """The repository that a folder is, or is a part of. Paths are relative to the folder."""

    def __init__(self, folder: Path, *, is_part: bool) -> None:
        self.folder = folder
        # Whether the repository begins further up.
        self.is_part = is_part
        self._trees: dict[str, Mapping[str, TreeFile]] = {}

    @classmethod
    def at(cls, folder: Path) -> "Repository | None":
        """The folder's repository; None if it has none, or there is no git to read it with."""
        if folder in _PARTS:
            return cls(folder, is_part=_PARTS[folder])
        try:
            found = _run(("rev-parse", "--show-prefix"), folder)
        except FileNotFoundError:
            return None
        if found.returncode != 0:
            complaint = found.stderr.decode(errors="replace").strip()
            if "not a git repository" in complaint:
                return None
            raise BadInputError(f"git cannot read the repository at {folder}: {complaint}")
        _PARTS[folder] = bool(found.stdout.strip())
        return cls(folder, is_part=_PARTS[folder])

    def top(self) -> Path:
        """Where the repository begins; the folder itself in one without a work tree."""
        return Path(os.fsdecode((self.ask("rev-parse", "--show-toplevel") or b"").rstrip(b"\n")) or self.folder)

    def default_branch(self) -> str:
        """The branch that the server starts with, as far as the clone knows, else the one that is checked out."""
        origin = "refs/remotes/origin/"
        told = self.answer("symbolic-ref", "--quiet", f"{origin}HEAD")
        if told.startswith(origin):
            return told.removeprefix(origin)
        return self.answer("symbolic-ref", "--quiet", "--short", "HEAD")

    def ask(self, *arguments: str) -> bytes | None:
        """What git answers, None where it refuses."""
        try:
            result = _run(arguments, self.folder)
        except ValueError:
            # A character that cannot be part of an argument: then nothing has that name either.
            return None
        return result.stdout if result.returncode == 0 else None

    def answer(self, *arguments: str) -> str:
        """A line of git's, empty where it has no answer."""
        return (self.ask(*arguments) or b"").decode(errors="replace").strip()

    def names(self, *arguments: str) -> list[str]:
        """A list that git ends with NULs."""
        return [os.fsdecode(name) for name in (self.ask(*arguments) or b"").split(b"\0") if name]

    def settings(self, *names: str) -> dict[str, str]:
        """The values of settings, keys in lower case, as far as they are set."""
        return {name: self._configured[name] for name in names if name in self._configured}

    def is_set(self, pattern: str) -> bool:
        """Whether there is a setting whose name, with its section in lower case, fits."""
        return any(re.fullmatch(pattern, name) for name in self._configured)

    @cached_property
    def _configured(self) -> dict[str, str]:
        """All settings; of several values the last counts, but the first of a remote's addresses."""
        found: dict[str, str] = {}
        for each in self.names("config", "-z", "--list"):
            name, _, value = each.partition("\n")
            if name not in found or not name.startswith("remote."):
                found[name] = value
        return found

    def origin(self) -> str:
        """The address of `origin`, empty without one; git itself is asked where addresses are rewritten."""
        if self.is_set(r"url\..*\.insteadof"):
            return self.answer("remote", "get-url", "origin")
        return self.settings("remote.origin.url").get("remote.origin.url", "")

    def commit(self, ref: str, *, own_first: bool = False) -> str | None:
        """The commit that an id, a branch or a tag stands for; the server's branches go before one's own, or after."""
        if not is_ref_name(ref):
            return None
        if ref.startswith("refs/") or ref == "HEAD":
            return self.resolved(ref)
        branches = ("refs/heads/", "refs/remotes/origin/") if own_first else ("refs/remotes/origin/", "refs/heads/")
        places = (*branches, "refs/tags/", "refs/remotes/")
        names = [*([ref] if _SHA.fullmatch(ref) else ()), *(place + ref for place in places)]
        return next((found for name in names if (found := self.resolved(name))), None)

    def resolved(self, ref: str) -> str | None:
        """The commit behind a full name of a ref, or an id."""
        return self.answer("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}") or None

    def merge_base(self, commit: str) -> str | None:
        """Where the commit's history and that of HEAD part."""
        return self.answer("merge-base", "HEAD", commit) or None

    def status(self) -> bytes | None:
        """What `git status` says of the folder, untracked files included; None where it cannot. Asked once."""
        return self._status

    @cached_property
    def _status(self) -> bytes | None:
        options = ("--porcelain", "-z", "--no-renames", "--untracked-files=all", _NO_SUBMODULES)
        return self.ask("status", *options, "--", ".")

    def differing(self, commit: str) -> frozenset[str]:
        """The files of the work tree that differ from a commit, untracked ones included."""
        changed = self.names(
            "diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", _NO_SUBMODULES, "--relative", commit
        )
        return frozenset(changed) | frozenset(self.untracked())

    def untracked(self) -> list[str]:
        """Files that git does not know and is not told to ignore. A repository inside the folder is none."""
        listed = self.names("ls-files", "-z", "--others", "--exclude-standard")
        return [name for name in listed if not name.endswith("/")]

    def index(self) -> dict[str, TreeFile]:
        """The files that git knows."""
        return _listed(self.names("ls-files", "-z", "--stage"))

    def touched(self) -> list[str]:
        """Files that git knows and that may differ from what it knows, removed ones included."""
        return self.names("diff-files", "--name-only", "-z", _NO_SUBMODULES, "--relative")

    def tree(self, commit: str) -> Mapping[str, TreeFile]:
        """The files of a commit."""
        if commit not in self._trees:
            self._trees[commit] = _listed(self.names("ls-tree", "-r", "-z", "--long", commit))
        return self._trees[commit]

    def blob(self, identity: str) -> bytes | None:
        """The contents behind an id."""
        return self.ask("cat-file", "blob", identity)


def _listed(lines: list[str]) -> dict[str, TreeFile]:
    """Lines of `ls-files --stage` (mode, id, merge stage) or `ls-tree --long` (mode, type, id, size), a tab, a path."""
    found: dict[str, TreeFile] = {}
    for line in lines:
        facts, _, path = line.partition("\t")
        mode, *rest = facts.split()
        if len(rest) == 2:
            found[path] = TreeFile(mode=mode, id=rest[0])
        else:
            found[path] = TreeFile(mode=mode, id=rest[1], size=int(rest[2]) if rest[2].isdigit() else 0)
    return found


def _environment() -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if name not in REPOSITORY_VARIABLES}
    return clean | {
        "LC_ALL": "C",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_ALLOW_PROTOCOL": "none",
    }


def _run(arguments: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[bytes]:
    command = ["git", *_QUIET, *arguments]
    return subprocess.run(
        command, cwd=folder, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
