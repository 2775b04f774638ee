"""Reads repositories with blocking calls, for a thread that compiles a pipeline file: implements `port.Reader`.

Each repository has one `git cat-file --batch` process while the reader is open: a pipeline file that includes a hundred
others must not start a hundred processes.

Invariants: only one thread uses a `GitReader`, and when it is closed no git process is left. A name from a user is
checked before git gets it; a path with a line break, which git would read as a second request, is refused. A small
repository can describe a tree with billions of files, so lists of git are read only up to a limit."""

import os
import re
import signal
import subprocess
import threading
from contextlib import suppress
from types import TracebackType

from remuda.cell.errors import InvalidError, StoreError, TooLargeError
from remuda.cell.git.commits import is_branch_name
from remuda.cell.git.port import LIST_LIMIT_BYTES, GitError
from remuda.cell.git.program import DEADLINE_SECONDS, GitProgram, late

_HEX = re.compile(r"[0-9a-f]{7,64}")
_HEAD_LIMIT_BYTES = 1 << 20
"""Limit for a commit or tag of which only the hash is needed."""
_STDERR_LIMIT_BYTES = 4096


class GitReader:
    def __init__(self, git: GitProgram) -> None:
        self._program = git
        self._batches: dict[str, _Batch] = {}
        self._commits: dict[tuple[str, str], str | None] = {}
        self._trees: dict[tuple[str, str], dict[str, str]] = {}

    def __enter__(self) -> "GitReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for batch in self._batches.values():
            batch.end()

    def commit(self, repo: str, name: str | None) -> str | None:
        key = (repo, name or "")
        if key not in self._commits:
            commits = (self._peel(repo, candidate) for candidate in _candidates(name))
            self._commits[key] = next((sha for sha in commits if sha), None)
        return self._commits[key]

    def _peel(self, repo: str, name: str) -> str | None:
        """Return the hash of the commit that a name points to, also through annotated tags; None if to no commit."""
        commit = self._batch(repo).ask(f"{name}^{{commit}}", limit_bytes=_HEAD_LIMIT_BYTES)
        return commit[0] if commit else None

    def file(self, repo: str, sha: str, path: str, *, limit_bytes: int) -> bytes | None:
        # git takes a path that begins with ./ or ../ as relative to a work tree, and a bare repository has none.
        if not path or "\n" in path or "\0" in path or path.startswith(("./", "../")):
            return None
        content = self._batch(repo).ask(f"{sha}:{path}", limit_bytes=limit_bytes)
        return content[2] if content and content[1] == "blob" else None

    def files(self, repo: str, sha: str) -> dict[str, str]:
        if (repo, sha) not in self._trees:
            out = self._git(repo, "ls-tree", "-r", "-z", "--full-tree", sha)
            lines = (line.decode(errors="replace").partition("\t") for line in out.split(b"\0")[:-1])
            self._trees[repo, sha] = {path: head.split(" ")[2] for head, _, path in lines if " blob " in head}
        return self._trees[repo, sha]

    def changed_files(self, repo: str, before: str, sha: str) -> frozenset[str] | None:
        if self._peel(repo, before) is None:
            return None
        out = self._git(repo, "diff-tree", "-r", "-z", "--name-only", "--no-renames", before, sha)
        return frozenset(name.decode(errors="replace") for name in out.split(b"\0")[:-1])

    def merge_base(self, repo: str, sha: str, other_sha: str) -> str | None:
        return self._git(repo, "merge-base", sha, other_sha, ok_codes=(0, 1)).decode().strip() or None

    def tags(self, repo: str) -> list[str]:
        return self._names(repo, "--format=%(refname:lstrip=2)%00", "refs/tags")

    def refs_at(self, repo: str, sha: str, folder: str) -> list[str]:
        return self._names(repo, "--format=%(refname)%00", f"--points-at={sha}", folder)

    def tag_message(self, repo: str, tag: str) -> str:
        form = "--format=%(objecttype)%00%(contents:subject)%0a%0a%(contents:body)"
        out = self._git(repo, "for-each-ref", form, f"refs/tags/{tag}").decode(errors="replace")
        kind, _, message = out.partition("\0")
        return message.strip("\n") if kind == "tag" else ""

    def _names(self, repo: str, *arguments: str) -> list[str]:
        out = self._git(repo, "for-each-ref", *arguments).decode(errors="replace")
        return [name for name in out.replace("\0\n", "\0").split("\0") if name]

    def _batch(self, repo: str) -> "_Batch":
        if repo not in self._batches:
            self._batches[repo] = _Batch(self._program, repo)
        return self._batches[repo]

    def _git(self, repo: str, *arguments: str, ok_codes: tuple[int, ...] = (0,)) -> bytes:
        process = _start(self._program, repo, *arguments)
        watchdog = _start_watchdog(process)
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            out = process.stdout.read(LIST_LIMIT_BYTES + 1)
            if is_too_long := len(out) > LIST_LIMIT_BYTES:
                process.kill()
            stderr = process.stderr.read(_STDERR_LIMIT_BYTES).decode(errors="replace")
        watchdog.cancel()
        if is_too_long:
            what = f"git {arguments[0]} lists more than {LIST_LIMIT_BYTES} bytes"
            raise InvalidError(f"{what}: the repository has too many files, or names that are too long")
        if process.returncode == -signal.SIGKILL:
            raise late(arguments[0])
        if process.returncode not in ok_codes:
            raise GitError(f"git {arguments[0]}: {self._program.hide_root(stderr).strip()[-500:] or 'no message'}")
        return out


class _Batch:
    """A `git cat-file --batch` process of one repository, started with the first request and again after a failure."""

    def __init__(self, git: GitProgram, repo: str) -> None:
        self._git = git
        self._repo = repo
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: threading.Timer | None = None

    def ask(self, name: str, *, limit_bytes: int) -> tuple[str, str, bytes] | None:
        """Return hash, type and content of the object `name`; None if it is missing. Raises GitError if git fails,
        TooLargeError if the content exceeds `limit_bytes`."""
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
        # git answers with the hash, type and size; for a missing object with the question and a word.
        parts = head.decode(errors="replace").split()
        if len(parts) != 3 or not parts[2].isdigit():
            return None
        size = int(parts[2])
        if size > limit_bytes:
            # Cheaper than to read the bytes and drop them.
            self.end()
            raise TooLargeError(f"{name.partition(':')[2] or name} is larger than {limit_bytes} bytes")
        content = process.stdout.read(size + 1)
        if len(content) != size + 1:
            raise self._failure()
        return parts[0], parts[1], content[:-1]

    def end(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with suppress(BrokenPipeError):
                self._process.__exit__(None, None, None)
        self._process = self._watchdog = None

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = process = _start(self._git, self._repo, "cat-file", "--batch", stdin=subprocess.PIPE)
        self._watchdog = _start_watchdog(process)
        return process

    def _failure(self) -> GitError:
        self.end()
        return GitError(f"git cat-file ended before it answered, or took longer than {DEADLINE_SECONDS} s")


def _start(git: GitProgram, repo: str, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            ["git", "--git-dir", str(git.path(repo)), *arguments],
            env=git.environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if stdin == subprocess.PIPE else subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise StoreError(f"cannot start git: {error}") from error


def _start_watchdog(process: subprocess.Popen[bytes]) -> threading.Timer:
    """Start a timer that kills git after `DEADLINE_SECONDS`; the caller cancels it when git has answered."""
    watchdog = threading.Timer(DEADLINE_SECONDS, process.kill)
    watchdog.daemon = True
    watchdog.start()
    return watchdog


def _candidates(name: str | None) -> list[str]:
    """Return the git names that `name` can mean, in the order to try: full hash, branch, tag, abbreviated hash. A full
    ref means itself, None the default branch (HEAD). Empty if the name is invalid. GitLab prefers a tag to a branch in
    includes. This does not: anybody who may push could create a tag with the name of a protected branch, and so decide
    what others include from it."""
    if name in (None, "", "HEAD"):
        return ["HEAD"]
    assert name is not None
    for folder in ("refs/heads/", "refs/tags/", "refs/merge-requests/"):
        if name.startswith(folder) and is_branch_name(name.removeprefix(folder)):
            return [name]
    names = [name] if len(name) in (40, 64) and _HEX.fullmatch(name) else []
    if is_branch_name(name):
        names += [f"refs/heads/{name}", f"refs/tags/{name}"]
    # A short commit name may be a branch or tag as well, so it comes last.
    return [*names, name] if _HEX.fullmatch(name) and name not in names else names
