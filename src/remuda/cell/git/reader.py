"""Reads repositories while a pipeline file is compiled: files, trees, what differs, which commit a name means.

Decided here: how git is asked from a thread. A file that includes a hundred others must not start a hundred processes,
so each repository has one `git cat-file --batch` for as long as the reading lasts. What the answers mean is decided in
`remuda.cell.pipelines.included_files`; the other half of the work with git, which is done on the event loop, is
`adapters.git`.

Invariants: one thread uses a `GitReading`, and when it is closed no process is left; a name from a user is checked
before git sees it, and a path with a line break in it, which would be a second question, is no path; a few objects can
stand for a tree of billions of files, so no list that git writes is read beyond a limit.
"""

import os
import re
import signal
import subprocess
import threading
from contextlib import suppress
from types import TracebackType

from remuda.cell.errors import InvalidError, StoreError, TooLargeError
from remuda.cell.git.commits import is_branch_name
from remuda.cell.git.repositories import DEADLINE_SECONDS, LIST_LIMIT_BYTES, GitError, GitRepos

_HEX = re.compile(r"[0-9a-f]{7,64}")
_HEAD_LIMIT_BYTES = 1 << 20
"""What is read of a commit or tag that was only asked for its name."""
_SAID_LIMIT_BYTES = 4096


class GitReading:
    """The reads of one compilation."""

    def __init__(self, repos: GitRepos) -> None:
        self._repos = repos
        self._batches: dict[str, _Batch] = {}
        self._commits: dict[tuple[str, str], str | None] = {}
        self._trees: dict[tuple[str, str], dict[str, str]] = {}

    def __enter__(self) -> "GitReading":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for batch in self._batches.values():
            batch.end()

    def commit(self, repo: str, name: str | None) -> str | None:
        """The commit that a branch, a tag, a whole ref or a commit's name means; None as name is the default branch."""
        key = (repo, name or "")
        if key not in self._commits:
            found = (self._peeled(repo, each) for each in _candidates(name))
            self._commits[key] = next((sha for sha in found if sha), None)
        return self._commits[key]

    def _peeled(self, repo: str, name: str) -> str | None:
        found = self._batch(repo).ask(f"{name}^{{commit}}", limit_bytes=_HEAD_LIMIT_BYTES)
        return found[0] if found else None

    def file(self, repo: str, sha: str, path: str, *, limit_bytes: int) -> bytes | None:
        """A file's bytes in a commit; None when there is no such file, TooLargeError beyond the limit."""
        # git takes what begins with a dot and a slash as relative to a work tree, which there is none of.
        if not path or "\n" in path or "\0" in path or path.startswith(("./", "../")):
            return None
        found = self._batch(repo).ask(f"{sha}:{path}", limit_bytes=limit_bytes)
        return found[2] if found and found[1] == "blob" else None

    def files(self, repo: str, sha: str) -> dict[str, str]:
        """All files of a commit with the names of their contents."""
        if (repo, sha) not in self._trees:
            out = self._git(repo, "ls-tree", "-r", "-z", "--full-tree", sha)
            lines = (line.decode(errors="replace").partition("\t") for line in out.split(b"\0")[:-1])
            self._trees[repo, sha] = {path: head.split(" ")[2] for head, _, path in lines if " blob " in head}
        return self._trees[repo, sha]

    def changed(self, repo: str, before: str, sha: str) -> frozenset[str] | None:
        """The files that differ between two commits; None when one of them is not there."""
        if self._peeled(repo, before) is None:
            return None
        out = self._git(repo, "diff-tree", "-r", "-z", "--name-only", "--no-renames", before, sha)
        return frozenset(name.decode(errors="replace") for name in out.split(b"\0")[:-1])

    def merge_base(self, repo: str, one: str, other: str) -> str | None:
        """Where the histories of two commits part."""
        return self._git(repo, "merge-base", one, other, fine=(0, 1)).decode().strip() or None

    def tags(self, repo: str) -> list[str]:
        """The names of all tags."""
        return self._names(repo, "--format=%(refname:lstrip=2)%00", "refs/tags")

    def refs_at(self, repo: str, sha: str, folder: str) -> list[str]:
        """The whole names of the refs below a folder that lead to a commit."""
        return self._names(repo, "--format=%(refname)%00", f"--points-at={sha}", folder)

    def tag_message(self, repo: str, tag: str) -> str:
        """What an annotated tag says, without a signature; nothing for a plain one."""
        form = "--format=%(objecttype)%00%(contents:subject)%0a%0a%(contents:body)"
        kind, _, said = (
            self._git(repo, "for-each-ref", form, f"refs/tags/{tag}").decode(errors="replace").partition("\0")
        )
        return said.strip("\n") if kind == "tag" else ""

    def _names(self, repo: str, *arguments: str) -> list[str]:
        out = self._git(repo, "for-each-ref", *arguments).decode(errors="replace")
        return [name for name in out.replace("\0\n", "\0").split("\0") if name]

    def _batch(self, repo: str) -> "_Batch":
        if repo not in self._batches:
            self._batches[repo] = _Batch(self._repos, repo)
        return self._batches[repo]

    def _git(self, repo: str, *arguments: str, fine: tuple[int, ...] = (0,)) -> bytes:
        process = _started(self._repos, repo, *arguments)
        watchdog = _watched(process)
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            out = process.stdout.read(LIST_LIMIT_BYTES + 1)
            if is_too_long := len(out) > LIST_LIMIT_BYTES:
                process.kill()
            said = process.stderr.read(_SAID_LIMIT_BYTES).decode(errors="replace")
        watchdog.cancel()
        if is_too_long:
            what = f"git {arguments[0]} lists more than {LIST_LIMIT_BYTES} bytes"
            raise InvalidError(f"{what}: the repository has too many files, or names that are too long")
        if process.returncode == -signal.SIGKILL:
            raise GitError(f"git {arguments[0]} took longer than {DEADLINE_SECONDS} s")
        if process.returncode not in fine:
            raise GitError(f"git {arguments[0]}: {self._repos.hide_root(said).strip()[-500:] or 'no message'}")
        return out


class _Batch:
    """A process that answers one question after the other about the objects of a repository."""

    def __init__(self, repos: GitRepos, repo: str) -> None:
        self._repos = repos
        self._repo = repo
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: threading.Timer | None = None

    def ask(self, name: str, *, limit_bytes: int) -> tuple[str, str, bytes] | None:
        """An object's name, type and bytes; None when there is none, TooLargeError beyond the limit."""
        try:
            question = os.fsencode(name) + b"\n"
        except UnicodeEncodeError:
            return None
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(question)
            process.stdin.flush()
            head = process.stdout.readline()
        except BrokenPipeError:
            head = b""
        if not head.endswith(b"\n"):
            raise self._failure()
        # What is not there is answered with the question and a word; an object with its name, type and size.
        parts = head.decode(errors="replace").split()
        if len(parts) != 3 or not parts[2].isdigit():
            return None
        size = int(parts[2])
        if size > limit_bytes:
            # Cheaper than to read what nobody wants.
            self.end()
            raise TooLargeError(f"{name.partition(':')[2] or name} is larger than {limit_bytes} bytes")
        content = process.stdout.read(size + 1)
        if len(content) != size + 1:
            raise self._failure()
        return parts[0], parts[1], content[:-1]

    def end(self) -> None:
        """Leave nothing of it behind."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with suppress(BrokenPipeError):
                self._process.__exit__(None, None, None)
        self._process = self._watchdog = None

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = process = _started(self._repos, self._repo, "cat-file", "--batch", stdin=subprocess.PIPE)
        self._watchdog = _watched(process)
        return process

    def _failure(self) -> GitError:
        self.end()
        return GitError(f"git cat-file ended before it answered, or took longer than {DEADLINE_SECONDS} s")


def _started(repos: GitRepos, repo: str, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            ["git", "--git-dir", str(repos.path(repo)), *arguments],
            env=repos.environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if stdin == subprocess.PIPE else subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise StoreError(f"cannot start git: {error}") from error


def _watched(process: subprocess.Popen[bytes]) -> threading.Timer:
    """Ends the process when its time is up."""
    watchdog = threading.Timer(DEADLINE_SECONDS, process.kill)
    watchdog.daemon = True
    watchdog.start()
    return watchdog


def _candidates(name: str | None) -> list[str]:
    """What git is asked for; a commit's whole name before a branch before a tag, as in `remuda.cell.projects.refs`.

    GitLab takes a tag before a branch in includes. Anybody who may push could then make a tag called like a protected
    branch, and decide what others include from it.
    """
    if name in (None, "", "HEAD"):
        return ["HEAD"]
    assert name is not None
    for folder in ("refs/heads/", "refs/tags/", "refs/merge-requests/"):
        if name.startswith(folder) and is_branch_name(name.removeprefix(folder)):
            return [name]
    found = [name] if len(name) in (40, 64) and _HEX.fullmatch(name) else []
    if is_branch_name(name):
        found += [f"refs/heads/{name}", f"refs/tags/{name}"]
    # A short name may be anything else as well, so it comes last.
    return [*found, name] if _HEX.fullmatch(name) and name not in found else found
