"""The bare repositories of a cell, worked on by the `git` program.

Decided here: how git is called (in the environment of `git_environment`, with a deadline) and what its answers mean.
Which refs start a pipeline is decided in `remuda.cell.projects.projects`; serving them to clients is
`remuda.cell.git.smart_http`.

Invariant: a repository's folder name comes from the cell, never from a user; every name that a user gave is checked or
stands behind `--end-of-options`.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from remuda.cell.errors import CellError, ConflictError, InvalidError, StoreError, TooLargeError
from remuda.cell.git.commits import FAST_IMPORT_END, Entry, NewCommit, fast_import, is_branch_name
from remuda.cell.git.environment import make_environment
from remuda.cell.git.push_hook import HOOK
from remuda.lib.processes import reap

DEADLINE_SECONDS = 60
STOP_SECONDS = 3
"""For so long git may notice that its input has ended and remove what it has written, before it is killed."""
LIST_LIMIT_BYTES = 64 * 1024 * 1024
"""The names of half a million files or more. A few objects can stand for a tree of billions."""
KEPT_COMMITS = 4096
"""How many commits are remembered: they never change, and lists of jobs name the same few again and again."""
KEPT_MESSAGE = 16 * 1024
"""A commit with a longer message is read anew each time."""

_TAGGER = "Administrator <admin@example.com>"
_LOG_FIELDS = ("%H", "%P", "%an", "%ae", "%at", "%cn", "%ce", "%ct", "%B")
_DISK = ("No space left on device", "Out of diskspace", "Disk quota exceeded", "Read-only file system")
_NAME_CONFLICT = re.compile(rb"cannot (?:create|process) 'refs/(heads|tags)/([^']+)'")
"""A branch `main` and one `main/x` would be a file and a folder in one place."""


class GitError(CellError):
    """git could not do it; the text is git's own."""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit's head."""

    sha: str
    parents: tuple[str, ...]
    author_name: str
    author_email: str
    authored_at: float
    committer_name: str
    committer_email: str
    committed_at: float
    message: str

    @property
    def title(self) -> str:
        """The first line."""
        return self.message.split("\n", 1)[0].strip()


def _only(path: str) -> list[str]:
    """What git is told where only one path counts."""
    return [f":(top,literal){path}"] if path else []


class GitRepos:
    """All repositories below one folder."""

    def __init__(
        self,
        root: Path,
        hooks: Path,
        *,
        borrowed_objects: Sequence[Path] = (),
        links: Path | None = None,
        push_limit_bytes: int = 0,
    ) -> None:
        self.root = root
        self._hooks = hooks
        self._borrowed = borrowed_objects
        self._links = links
        self._commits: OrderedDict[tuple[str, str], Commit] = OrderedDict()
        self.environment = make_environment(root, hooks, push_limit_bytes)

    def prepare(self) -> None:
        """Make the folders and the hook that notes what pushes ask for."""
        if shutil.which("git", path=self.environment["PATH"]) is None:
            raise CellError("git is not installed or not on PATH; the cell keeps its repositories with it")
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._hooks.mkdir(mode=0o700, parents=True, exist_ok=True)
        hook = self._hooks / "pre-receive"
        # Other processes of the cell may be running it.
        if not hook.exists() or hook.read_text() != HOOK:
            hook.write_text(HOOK)
            hook.chmod(0o700)

    def path(self, repo: str) -> Path:
        """Where a repository lies."""
        return self.root / repo

    async def create(self, repo: str, default_branch: str) -> None:
        """Make an empty repository; again is no mistake."""
        self.path(repo).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._borrowed:
            self._lay_out(repo, default_branch)
        else:
            await self._git("init", "--quiet", "--bare", "--template=", f"--initial-branch={default_branch}", repo)

    def _lay_out(self, repo: str, default_branch: str) -> None:
        """What `git init` makes, without another process, and where the objects are."""
        for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
            (self.path(repo) / name).mkdir(parents=True, exist_ok=True)
        listed = b"".join(os.fsencode(folder.absolute()) + b"\n" for folder in self._borrowed)
        (self.path(repo) / "objects/info/alternates").write_bytes(listed)
        (self.path(repo) / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
        (self.path(repo) / "HEAD").write_bytes(os.fsencode(f"ref: refs/heads/{default_branch}\n"))

    def link(self, repo: str, path: str) -> None:
        """Let a repository be found by its project's path, where that is wanted."""
        if self._links is not None:
            place = self._links / f"{path}.git"
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            place.symlink_to(self.path(repo).absolute())

    async def remove(self, repo: str) -> None:
        """Remove a repository that nothing refers to."""
        await asyncio.to_thread(shutil.rmtree, self.path(repo), ignore_errors=True)

    async def refs(self, repo: str) -> dict[str, str]:
        """Branches, tags and merge requests with the commit each leads to; what leads to none is left out."""
        kinds = "%(refname)%00%(objecttype)%00%(objectname)%00%(*objecttype)%00%(*objectname)"
        folders = ("refs/heads", "refs/tags", "refs/merge-requests")
        out = await self._git("for-each-ref", f"--format={kinds}", *folders, repo=repo)
        found = {}
        # Not splitlines: a ref's name may hold what else counts as the end of a line in Unicode.
        for line in out.decode(errors="replace").split("\n")[:-1]:
            ref, kind, sha, inner_kind, inner_sha = line.split("\0")
            if kind == "commit":
                found[ref] = sha
            elif inner_kind == "commit":
                found[ref] = inner_sha
            # Before 2.45 git looks through one tag only, and a tag may be of a tag.
            elif inner_kind == "tag" and (commit := await self.commit_of(repo, inner_sha)) is not None:
                found[ref] = commit
        return found

    async def resolve(self, repo: str, name: str) -> str | None:
        """The commit of a branch, a tag or a commit's (short) name."""
        candidates = [f"refs/heads/{name}", f"refs/tags/{name}"] if is_branch_name(name) else []
        if 7 <= len(name) <= 64 and all(char in "0123456789abcdef" for char in name):
            candidates.append(name)
        for candidate in candidates:
            sha = await self.commit_of(repo, candidate)
            if sha is not None:
                return sha
        return None

    async def commit_of(self, repo: str, ref: str) -> str | None:
        """The commit a full ref leads to."""
        code, out, _ = await self._call("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", repo=repo)
        return out.decode().strip() if code == 0 else None

    async def object_of(self, repo: str, ref: str) -> str | None:
        """What a full ref leads to: a commit, or a tag with a message."""
        code, out, _ = await self._call("rev-parse", "--verify", "--quiet", ref, repo=repo)
        return out.decode().strip() if code == 0 else None

    async def is_empty(self, repo: str) -> bool:
        """Whether there is no branch yet."""
        return not await self._git("for-each-ref", "--count=1", "refs/heads", repo=repo)

    def head(self, repo: str) -> str | None:
        """The default branch as clients see it."""
        try:
            text = (self.path(repo) / "HEAD").read_text()
        except OSError:
            return None
        return text.strip().removeprefix("ref: refs/heads/") if text.startswith("ref: refs/heads/") else None

    async def put_head(self, repo: str, branch: str) -> None:
        """Make a branch the default one."""
        await self._git("symbolic-ref", "HEAD", f"refs/heads/{branch}", repo=repo)

    def has_ref_file(self, repo: str, ref: str) -> bool:
        """Whether a ref is there, without asking git; a packed one is not seen."""
        # Asked for every job that is handed out: another `Path` takes longer than the look.
        return os.path.isfile(f"{self.root}/{repo}/{ref}")

    async def put_ref(self, repo: str, ref: str, sha: str) -> None:
        """Let a ref lead to a commit."""
        await self._git("update-ref", ref, sha, repo=repo)

    async def is_ancestor(self, repo: str, sha: str, of: str) -> bool:
        """True if the commit `of` is `sha` or was made on top of it."""
        return (await self._call("merge-base", "--is-ancestor", sha, of, repo=repo))[0] == 0

    async def put_refs(self, repo: str, refs: Mapping[str, str], before: Mapping[str, str] = {}) -> None:
        """Let refs lead to objects that the repository has or borrows, all of them or none. GitError when it cannot.

        `before` says where some of them must lead until then.
        """
        lines = [f"update {ref}\0{sha}\0{before.get(ref, '')}\0".encode() for ref, sha in refs.items()]
        code, _, err = await self._call("update-ref", "-z", "--stdin", repo=repo, stdin=lines)
        if code != 0:
            raise self._ref_failure(err)

    async def file(self, repo: str, sha: str, path: str, *, limit_bytes: int) -> bytes | None:
        """A file's bytes in a commit; None when there is no such file, TooLargeError beyond the limit."""
        if "\0" in path:
            return None
        code, content = await self.output("cat-file", "blob", f"{sha}:{path}", repo=repo, what=path, limit=limit_bytes)
        return content if code == 0 else None

    async def file_size(self, repo: str, sha: str, path: str) -> int:
        """How many bytes a file has in a commit; GitError when there is no such file."""
        code, size = await self.output("cat-file", "-s", f"{sha}:{path}", repo=repo, what=path, limit=100)
        if code != 0:
            raise GitError(f"git cat-file: {path} cannot be read")
        return int(size)

    async def tree(self, repo: str, sha: str) -> dict[str, Entry]:
        """All files of a commit; TooLargeError when they are too many."""
        command = ("ls-tree", "-r", "-z", "--full-tree", sha)
        code, out = await self.output(*command, repo=repo, what="the list of all files", limit=LIST_LIMIT_BYTES)
        if code != 0:
            raise GitError(f"git ls-tree: {sha} cannot be read")
        files = {}
        for line in out.split(b"\0")[:-1]:
            head, _, path = line.partition(b"\t")
            mode, _, name = head.decode().split(" ")
            files[path.decode(errors="surrogateescape")] = Entry(mode, name)
        return files

    async def add_branch(self, repo: str, name: str, sha: str, *, before_move: Callable[[str], None]) -> None:
        """Make a branch; ConflictError when there is one of that name. `before_move` is told before it is there."""
        before_move(sha)
        code, _, err = await self._call("update-ref", f"refs/heads/{name}", sha, "0" * len(sha), repo=repo)
        if code != 0:
            raise ConflictError("Branch already exists") if b"already exists" in err else self._ref_failure(err)

    async def remove_ref(self, repo: str, ref: str) -> None:
        """Remove a branch or a tag."""
        await self._git("update-ref", "-d", ref, repo=repo)

    async def output(self, *args: str, repo: str, what: str, limit: int) -> tuple[int, bytes]:
        """What git writes, as far as a limit in bytes."""
        process = await self._start(*args, repo=repo)
        assert process.stdout is not None
        content = bytearray()
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while piece := await process.stdout.read(65536):
                    content += piece
                    if len(content) > limit:
                        raise TooLargeError(f"{what} is larger than {limit} bytes")
                return await process.wait(), bytes(content)
        except TimeoutError:
            raise GitError(f"git {args[0]} took longer than {DEADLINE_SECONDS} s") from None
        finally:
            await end_git(process)

    async def commit(self, repo: str, sha: str) -> Commit | None:
        """A commit's head."""
        known = self._commits.get((repo, sha))
        if known is not None:
            self._commits.move_to_end((repo, sha))
            return known
        try:
            found = await self.log(repo, sha, skip=0, count=1)
        except GitError:
            return None
        if not found:
            return None
        if len(found[0].message) > KEPT_MESSAGE:
            return found[0]
        self._commits[(repo, sha)] = found[0]
        if len(self._commits) > KEPT_COMMITS:
            self._commits.popitem(last=False)
        return found[0]

    async def log(self, repo: str, sha: str, *, skip: int, count: int, path: str = "") -> Sequence[Commit]:
        """Commits from one backwards; with a path, those that changed what is there."""
        form = "--format=" + "%x00".join(_LOG_FIELDS)
        pages = (f"--skip={skip}", f"--max-count={count}")
        out = await self._git("log", "-z", form, *pages, "--end-of-options", sha, "--", *_only(path), repo=repo)
        fields = out.decode(errors="replace").split("\0")
        size = len(_LOG_FIELDS)
        return [_commit(fields[at : at + size]) for at in range(0, len(fields) - size + 1, size)]

    async def count(self, repo: str, sha: str, path: str = "") -> int:
        """How many commits lead up to this one; with a path, how many of them changed what is there."""
        return int(await self._git("rev-list", "--count", "--end-of-options", sha, "--", *_only(path), repo=repo))

    async def add_commit(
        self, repo: str, commit: NewCommit, *, before_move: Callable[[str], None] = lambda _: None
    ) -> str:
        """Make a commit and move its branch there; ConflictError when the branch has moved meanwhile.

        `before_move` is told the commit's name before the branch leads to it.
        """
        command = ("fast-import", "--quiet", "--done", "--date-format=raw")
        process = await self._start(*command, repo=repo, with_input=True)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                # If git ends early, what it says of that is read below.
                with contextlib.suppress(ConnectionError):
                    process.stdin.write(b"".join(fast_import(commit)))
                    await process.stdin.drain()
                sha = (await process.stdout.readline()).decode().strip()
                if sha:
                    before_move(sha)
                _, err = await process.communicate(FAST_IMPORT_END)
                code = await process.wait()
        except TimeoutError:
            raise GitError(f"git fast-import took longer than {DEADLINE_SECONDS} s") from None
        finally:
            await end_git(process)
        if code == 0:
            return sha
        if _NAME_CONFLICT.search(err):
            raise self._ref_failure(err)
        if b"Not updating" in err or b"cannot lock ref" in err:
            raise ConflictError(f"the branch {commit.branch} was changed meanwhile")
        raise self._failure("fast-import", err)

    async def add_tag(
        self, repo: str, name: str, sha: str, *, message: str, at: int, before_move: Callable[[str], None]
    ) -> None:
        """Make a tag, with a message if there is one; ConflictError when there is one of that name.

        `before_move` is told what the tag leads to before it does.
        """
        if message:
            head = f"object {sha}\ntype commit\ntag {name}\ntagger {_TAGGER} {at} +0000\n\n"
            code, out, err = await self._call("mktag", repo=repo, stdin=[head.encode(), message.encode(), b"\n"])
            if code != 0:
                raise self._failure("mktag", err)
            sha = out.decode().strip()
        before_move(sha)
        code, _, err = await self._call("update-ref", f"refs/tags/{name}", sha, "0" * len(sha), repo=repo)
        if code != 0:
            raise ConflictError(f"the tag {name} exists") if b"already exists" in err else self._ref_failure(err)

    async def _git(self, *args: str, repo: str | None = None) -> bytes:
        code, out, err = await self._call(*args, repo=repo)
        if code != 0:
            raise self._failure(args[0], err)
        return out

    async def _call(self, *args: str, repo: str | None = None, stdin: Iterable[bytes] = ()) -> tuple[int, bytes, bytes]:
        process = await self._start(*args, repo=repo, with_input=bool(stdin))
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                out, err = await process.communicate(b"".join(stdin) if stdin else None)
                return await process.wait(), out, err
        except TimeoutError:
            raise GitError(f"git {args[0]} took longer than {DEADLINE_SECONDS} s") from None
        finally:
            await end_git(process)

    def _ref_failure(self, err: bytes) -> CellError:
        """Why a ref cannot be made; InvalidError, in GitLab's words, when others have a part of its name."""
        if (found := _NAME_CONFLICT.search(err)) is None:
            return self._failure("update-ref", err)
        what, name = "tag" if found[1] == b"tags" else "branch", found[2].decode(errors="replace")
        return InvalidError(
            f"Failed to create {what} '{name}': {what.title()} name conflicts with existing {what} hierarchy."
        )

    def _failure(self, command: str, err: bytes) -> CellError:
        text = self.hide_root(err.decode(errors="replace")).strip()[-500:] or "no message"
        kind = StoreError if any(cause in text for cause in _DISK) else GitError
        return kind(f"git {command}: {text}")

    def hide_root(self, text: str) -> str:
        """What git says, without where the cell keeps its repositories: the text may reach a user."""
        return text.replace(f"{self.root}/", "")

    async def _start(self, *args: str, repo: str | None = None, with_input: bool = False) -> asyncio.subprocess.Process:
        where = ("--git-dir", str(self.path(repo))) if repo else ("-C", str(self.root))
        return await spawn_git(*where, *args, environment=self.environment, with_input=with_input)


async def spawn_git(*args: str, environment: Mapping[str, str], with_input: bool) -> asyncio.subprocess.Process:
    """Start git; StoreError when the machine cannot start programs now."""
    try:
        return await asyncio.create_subprocess_exec(
            "git",
            *args,
            stdin=asyncio.subprocess.PIPE if with_input else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            # A group of its own: git starts helpers, and they end with it.
            start_new_session=True,
        )
    except OSError as error:
        raise StoreError(f"cannot start git: {error}") from error


async def end_git(process: asyncio.subprocess.Process) -> None:
    """Kill it unless it has ended, and close its pipes: what nobody has read of its output is dropped."""
    if process.returncode is None:
        kill_git(process)
    await reap(process)


async def stop_git(process: asyncio.subprocess.Process) -> None:
    """End it as `end_git` does, but let it fail by itself first: after a signal git leaves its temporary files."""
    if process.returncode is None and process.stdin is not None:
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
    await end_git(process)


def kill_git(process: asyncio.subprocess.Process) -> None:
    """End it and its helpers now."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _commit(fields: Sequence[str]) -> Commit:
    sha, parents, author, author_email, authored, committer, committer_email, committed, message = fields
    return Commit(
        sha=sha,
        parents=tuple(parents.split()),
        author_name=author,
        author_email=author_email,
        authored_at=float(authored),
        committer_name=committer,
        committer_email=committer_email,
        committed_at=float(committed),
        message=message,
    )
