"""Creates, reads and changes bare repositories with the `git` program: implements `remuda.cell.git.port.Repositories`.

Invariant: every name from a user is checked, or is passed to git after `--end-of-options`, so that git cannot read it
as an option."""

import asyncio
import contextlib
import os
import re
import shutil
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from remuda.cell.errors import CellError, ConflictError, InvalidError, TooLargeError
from remuda.cell.git.commits import FAST_IMPORT_END, Entry, NewCommit, fast_import, is_branch_name
from remuda.cell.git.diffs import FileDiff, parse_diff
from remuda.cell.git.environment import make_environment
from remuda.cell.git.port import (
    DIFF_LIMIT_BYTES,
    EVERY_COMMIT,
    LIST_LIMIT_BYTES,
    Changes,
    Commit,
    GitClient,
    GitError,
    GitRequest,
    LogFilter,
    Tag,
    TreeEntry,
)
from remuda.cell.git.program import DEADLINE_SECONDS, GitProgram, end_git, late
from remuda.cell.git.push_hook import HOOK
from remuda.cell.git.reader import GitReader
from remuda.cell.git.smart_http import serve

CACHED_COMMITS = 4096
"""Maximum number of cached commits. Commits never change, and lists of jobs name the same few again and again."""
CACHED_MESSAGE_CHARACTERS = 16 * 1024
"""A commit with a longer message is not cached."""

_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The hash of a folder without files, which every repository has."""
_TAGGER = "Administrator <admin@example.com>"
_LOG_FIELDS = ("%H", "%P", "%an", "%ae", "%at", "%cn", "%ce", "%ct", "%B")
_COUNTED_LINES = re.compile(r"(\d+) (insertion|deletion)")
_NAME_CONFLICT = re.compile(rb"cannot (?:create|process) 'refs/(heads|tags)/([^']+)'")
"""A branch `main` and a branch `main/x` would be a file and a folder of the same name."""


class GitRepos:
    def __init__(
        self,
        root: Path,
        hooks: Path,
        *,
        borrowed_objects: Sequence[Path] = (),
        links: Path | None = None,
        push_limit_bytes: int = 0,
    ) -> None:
        self._git = GitProgram(root, make_environment(root, hooks, push_limit_bytes))
        self._hooks = hooks
        self._borrowed = borrowed_objects
        self._links = links
        self._commits: OrderedDict[tuple[str, str], Commit] = OrderedDict()

    def prepare(self) -> None:
        if shutil.which("git", path=self._git.environment["PATH"]) is None:
            raise CellError("git is not installed or not on PATH; the cell keeps its repositories with it")
        self._git.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._hooks.mkdir(mode=0o700, parents=True, exist_ok=True)
        hook = self._hooks / "pre-receive"
        # Not written again without need: other processes of the cell may be running it.
        if not hook.exists() or hook.read_text() != HOOK:
            hook.write_text(HOOK)
            hook.chmod(0o700)

    async def create(self, repo: str, default_branch: str) -> None:
        where = str(self._git.path(repo))
        self._git.path(repo).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._borrowed:
            self._lay_out(repo, default_branch)
        else:
            await self._git.run("init", "--quiet", "--bare", "--template=", f"--initial-branch={default_branch}", where)

    def _lay_out(self, repo: str, default_branch: str) -> None:
        """Write the files of an empty bare repository. It uses the folders in `borrowed_objects` as alternates: a push
        need not send the git objects in them. Faster than `git init`."""
        for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
            (self._git.path(repo) / name).mkdir(parents=True, exist_ok=True)
        alternates = b"".join(os.fsencode(folder.absolute()) + b"\n" for folder in self._borrowed)
        (self._git.path(repo) / "objects/info/alternates").write_bytes(alternates)
        (self._git.path(repo) / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
        (self._git.path(repo) / "HEAD").write_bytes(os.fsencode(f"ref: refs/heads/{default_branch}\n"))

    def link(self, repo: str, path: str) -> None:
        if self._links is not None:
            link = self._links / f"{path}.git"
            link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(self._git.path(repo).absolute())

    async def remove(self, repo: str) -> None:
        if self._git.path(repo).exists():
            await asyncio.to_thread(shutil.rmtree, self._git.path(repo), ignore_errors=True)

    async def refs(self, repo: str) -> dict[str, str]:
        kinds = "%(refname)%00%(objecttype)%00%(objectname)%00%(*objecttype)%00%(*objectname)"
        folders = ("refs/heads", "refs/tags", "refs/merge-requests")
        out = await self._git.run("for-each-ref", f"--format={kinds}", *folders, repo=repo)
        commits = {}
        # Not splitlines: a ref's name may hold characters that Unicode counts as the end of a line.
        for line in out.decode(errors="replace").split("\n")[:-1]:
            ref, kind, sha, inner_kind, inner_sha = line.split("\0")
            if kind == "commit":
                commits[ref] = sha
            elif inner_kind == "commit":
                commits[ref] = inner_sha
            # Before 2.45 git follows one tag only, and a tag may be of a tag.
            elif inner_kind == "tag" and (commit := await self.commit_of(repo, inner_sha)) is not None:
                commits[ref] = commit
        return commits

    async def resolve(self, repo: str, name: str) -> str | None:
        candidates = [f"refs/heads/{name}", f"refs/tags/{name}"] if is_branch_name(name) else []
        if 7 <= len(name) <= 64 and all(char in "0123456789abcdef" for char in name):
            candidates.append(name)
        for candidate in candidates:
            sha = await self.commit_of(repo, candidate)
            if sha is not None:
                return sha
        return None

    async def commit_of(self, repo: str, ref: str) -> str | None:
        code, out, _ = await self._git.call("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", repo=repo)
        return out.decode().strip() if code == 0 else None

    async def object_of(self, repo: str, ref: str) -> str | None:
        code, out, _ = await self._git.call("rev-parse", "--verify", "--quiet", ref, repo=repo)
        return out.decode().strip() if code == 0 else None

    async def is_empty(self, repo: str) -> bool:
        return not await self._git.run("for-each-ref", "--count=1", "refs/heads", repo=repo)

    def head(self, repo: str) -> str | None:
        try:
            text = (self._git.path(repo) / "HEAD").read_text()
        except OSError:
            return None
        return text.strip().removeprefix("ref: refs/heads/") if text.startswith("ref: refs/heads/") else None

    async def put_head(self, repo: str, branch: str) -> None:
        await self._git.run("symbolic-ref", "HEAD", f"refs/heads/{branch}", repo=repo)

    def has_ref_file(self, repo: str, ref: str) -> bool:
        # Called for every job that is handed out: to build a `Path` takes longer than the stat.
        return os.path.isfile(f"{self._git.root}/{repo}/{ref}")

    async def put_ref(self, repo: str, ref: str, sha: str) -> None:
        await self._git.run("update-ref", ref, sha, repo=repo)

    async def is_ancestor(self, repo: str, sha: str, of: str) -> bool:
        return (await self._git.call("merge-base", "--is-ancestor", sha, of, repo=repo))[0] == 0

    async def put_refs(self, repo: str, refs: Mapping[str, str], before: Mapping[str, str] = {}) -> None:
        lines = [f"update {ref}\0{sha}\0{before.get(ref, '')}\0".encode() for ref, sha in refs.items()]
        code, _, err = await self._git.call("update-ref", "-z", "--stdin", repo=repo, stdin=lines)
        if code != 0:
            raise self._ref_failure(err)

    async def file(self, repo: str, sha: str, path: str, *, limit_bytes: int) -> bytes | None:
        if "\0" in path:
            return None
        code, content = await self._git.read(
            "cat-file", "blob", f"{sha}:{path}", repo=repo, what=path, limit_bytes=limit_bytes
        )
        return content if code == 0 else None

    async def file_size(self, repo: str, sha: str, path: str) -> int:
        code, size = await self._git.read("cat-file", "-s", f"{sha}:{path}", repo=repo, what=path, limit_bytes=100)
        if code != 0:
            raise GitError(f"git cat-file: {path} cannot be read")
        return int(size)

    async def tree(self, repo: str, sha: str) -> dict[str, Entry]:
        command = ("ls-tree", "-r", "-z", "--full-tree", sha)
        code, out = await self._git.read(
            *command, repo=repo, what="the list of all files", limit_bytes=LIST_LIMIT_BYTES
        )
        if code != 0:
            raise GitError(f"git ls-tree: {sha} cannot be read")
        files = {}
        for line in out.split(b"\0")[:-1]:
            head, _, path = line.partition(b"\t")
            mode, _, name = head.decode().split(" ")
            files[path.decode(errors="surrogateescape")] = Entry(mode, name)
        return files

    async def add_branch(self, repo: str, name: str, sha: str, *, before_move: Callable[[str], None]) -> None:
        before_move(sha)
        code, _, err = await self._git.call("update-ref", f"refs/heads/{name}", sha, "0" * len(sha), repo=repo)
        if code != 0:
            raise ConflictError("Branch already exists") if b"already exists" in err else self._ref_failure(err)

    async def remove_ref(self, repo: str, ref: str) -> None:
        await self._git.run("update-ref", "-d", ref, repo=repo)

    async def commit(self, repo: str, sha: str) -> Commit | None:
        cached = self._commits.get((repo, sha))
        if cached is not None:
            self._commits.move_to_end((repo, sha))
            return cached
        try:
            commits = await self.log(repo, sha, skip=0, count=1)
        except GitError:
            return None
        if not commits:
            return None
        if len(commits[0].message) <= CACHED_MESSAGE_CHARACTERS:
            self._commits[(repo, sha)] = commits[0]
            if len(self._commits) > CACHED_COMMITS:
                self._commits.popitem(last=False)
        return commits[0]

    async def log(
        self, repo: str, sha: str, *, skip: int, count: int, selection: LogFilter = EVERY_COMMIT
    ) -> Sequence[Commit]:
        form = "--format=" + "%x00".join(_LOG_FIELDS)
        pages = (f"--skip={skip}", f"--max-count={count}")
        out = await self._git.run("log", "-z", form, *pages, *_select(sha, selection), repo=repo)
        fields = out.decode(errors="replace").split("\0")
        size = len(_LOG_FIELDS)
        return [_commit(fields[start : start + size]) for start in range(0, len(fields) - size + 1, size)]

    async def log_between(self, repo: str, before: str, sha: str, *, count: int) -> Sequence[Commit]:
        return await self.log(repo, f"{before}..{sha}", skip=0, count=count)

    async def diff(self, repo: str, before: str | None, sha: str, *, since_fork: bool = False) -> list[FileDiff]:
        ends = (f"{before}...{sha}",) if before and since_fork else (before or _EMPTY_TREE, sha)
        command = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "-M")

        async def read(*form: str) -> tuple[int, bytes]:
            args = (*command, *form, *ends, "--")
            what = "the difference of the commits"
            return await self._git.read(*args, repo=repo, what=what, limit_bytes=DIFF_LIMIT_BYTES)

        code, raw = await read("--raw", "-z")
        if code != 0:
            raise GitError("the commits cannot be compared; they have no common history")
        try:
            _, patches = await read("-p")
        except TooLargeError:
            return parse_diff(raw, None)
        return parse_diff(raw, patches)

    async def refs_with(self, repo: str, sha: str) -> list[str]:
        folders = ("refs/heads", "refs/tags")
        out = await self._git.run("for-each-ref", "--format=%(refname)", f"--contains={sha}", *folders, repo=repo)
        return out.decode(errors="replace").removesuffix("\n").split("\n") if out else []

    async def count(self, repo: str, sha: str, selection: LogFilter = EVERY_COMMIT) -> int:
        return int(await self._git.run("rev-list", "--count", *_select(sha, selection), repo=repo))

    async def count_changes(self, repo: str, shas: Sequence[str]) -> dict[str, Changes]:
        form = ("log", "--no-walk=unsorted", "-m", "--first-parent", "--format=%x00%H", "--shortstat")
        out = await self._git.run(*form, "--end-of-options", *shas, "--", repo=repo)
        changes = {}
        for text in out.decode(errors="replace").split("\0")[1:]:
            counts = {what: int(number) for number, what in _COUNTED_LINES.findall(text)}
            changes[text[:40]] = Changes(additions=counts.get("insertion", 0), deletions=counts.get("deletion", 0))
        return changes

    async def add_commit(
        self, repo: str, commit: NewCommit, *, before_move: Callable[[str], None] = lambda _: None
    ) -> str:
        command = ("fast-import", "--quiet", "--done", "--date-format=raw")
        process = await self._git.start(*command, repo=repo, with_input=True)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                # If git ends early, its message is read below.
                with contextlib.suppress(ConnectionError):
                    process.stdin.write(b"".join(fast_import(commit)))
                    await process.stdin.drain()
                sha = (await process.stdout.readline()).decode().strip()
                if sha:
                    before_move(sha)
                _, err = await process.communicate(FAST_IMPORT_END)
                code = await process.wait()
        except TimeoutError:
            raise late("fast-import") from None
        finally:
            await end_git(process)
        if code == 0:
            return sha
        if _NAME_CONFLICT.search(err):
            raise self._ref_failure(err)
        if b"Not updating" in err or b"cannot lock ref" in err:
            raise ConflictError(f"the branch {commit.branch} was changed meanwhile")
        raise self._git.failure("fast-import", err)

    async def add_tag(
        self, repo: str, name: str, sha: str, *, message: str, at: int, before_move: Callable[[str], None]
    ) -> None:
        if message:
            head = f"object {sha}\ntype commit\ntag {name}\ntagger {_TAGGER} {at} +0000\n\n"
            code, out, err = await self._git.call("mktag", repo=repo, stdin=[head.encode(), message.encode(), b"\n"])
            if code != 0:
                raise self._git.failure("mktag", err)
            sha = out.decode().strip()
        before_move(sha)
        code, _, err = await self._git.call("update-ref", f"refs/tags/{name}", sha, "0" * len(sha), repo=repo)
        if code != 0:
            raise ConflictError(f"the tag {name} exists") if b"already exists" in err else self._ref_failure(err)

    async def tags(self, repo: str) -> list[Tag]:
        fields = "%(refname:strip=2)%00%(objecttype)%00%(objectname)%00%(*objectname)%00%(contents)%00"
        command = ("for-each-ref", f"--format={fields}", "refs/tags")
        code, out = await self._git.read(*command, repo=repo, what="the list of tags", limit_bytes=LIST_LIMIT_BYTES)
        if code != 0:
            raise GitError("git for-each-ref: the tags cannot be read")
        parts = out.decode(errors="replace").split("\0")
        tags = []
        for start in range(0, len(parts) - 5, 5):
            name, kind, target, inner, message = parts[start].removeprefix("\n"), *parts[start + 1 : start + 5]
            is_plain = kind == "commit"
            sha = target if is_plain else await self.commit_of(repo, inner) if inner else None
            if sha is not None:
                tags.append(Tag(name=name, target=target, sha=sha, message="" if is_plain else message.strip()))
        return tags

    async def list_entries(
        self,
        repo: str,
        sha: str,
        path: str,
        *,
        is_deep: bool,
        is_folder: bool = True,
        limit_bytes: int = LIST_LIMIT_BYTES,
    ) -> list[TreeEntry]:
        deep = ("-r", "-t") if is_deep else ()
        below = [f"{path}/" if is_folder else path] if path else []
        command = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", *deep, sha, "--", *below)
        code, out = await self._git.read(*command, repo=repo, what="the list of files", limit_bytes=limit_bytes)
        if code != 0:
            raise GitError(f"git ls-tree: {sha} cannot be read")
        entries = []
        for line in out.split(b"\0")[:-1]:
            head, _, name = line.partition(b"\t")
            mode, kind, sha = head.decode().split(" ")
            entries.append(TreeEntry(mode=mode, type=kind, sha=sha, path=name.decode(errors="replace")))
        return [entry for entry in entries if entry.path != path or not is_folder]

    def open_reader(self) -> GitReader:
        return GitReader(self._git)

    async def serve(self, repo: str, request: GitRequest, client: GitClient) -> str:
        return await serve(self._git, repo, request, client)

    def _ref_failure(self, err: bytes) -> CellError:
        """Return the error for a ref that git could not set, from git's stderr: InvalidError with GitLab's message if
        the name of the ref conflicts with another (`a` and `a/b`), else GitError or StoreError."""
        if (conflict := _NAME_CONFLICT.search(err)) is None:
            return self._git.failure("update-ref", err)
        what, name = "tag" if conflict[1] == b"tags" else "branch", conflict[2].decode(errors="replace")
        return InvalidError(
            f"Failed to create {what} '{name}': {what.title()} name conflicts with existing {what} hierarchy."
        )


def _select(sha: str, selection: LogFilter) -> list[str]:
    """Return the arguments of `git log` and `git rev-list` that select commits."""
    times = {"since": selection.since, "until": selection.until}
    # With an offset: git reads a number alone that it takes for too large as the current time.
    words = [f"--{name}=@{max(0, int(time))} +0000" for name, time in times.items() if time is not None]
    if selection.author:
        words += ["--fixed-strings", f"--author={selection.author}"]
    if selection.is_first_parent:
        words.append("--first-parent")
    start = ["--branches", "--tags", "--end-of-options"] if selection.has_all_refs else ["--end-of-options", sha]
    return [*words, *start, "--", *_pathspec(selection.path)]


def _pathspec(path: str) -> list[str]:
    return [f":(top,literal){path}"] if path else []


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
