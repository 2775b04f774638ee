"""The interface to the git repositories of a cell, and the values that its methods take and return.

The event loop uses `Repositories`, a thread that compiles a pipeline file uses `Reader`. `repo` is always a folder name
that the cell chose, never a user's text."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol

import msgspec

from remuda.cell.errors import CellError
from remuda.cell.git.commits import Entry, NewCommit
from remuda.cell.git.diffs import FileDiff
from remuda.model.job import ProjectId

LIST_LIMIT_BYTES = 64 * 1024 * 1024
"""The longest list that is read from git: half a million file names or more. A few objects can stand for a tree of
billions of files."""

DIFF_LIMIT_BYTES = 4 * 1024 * 1024
"""The largest difference of two commits that is read from git: the list of files, and their patches."""

FORCE_REFUSED = (
    "is protected, and this is a force push: it would take commits away from it. Push to another branch, or let a "
    "maintainer allow force pushes: PATCH /projects/:id/protected_branches/:name with allow_force_push=true"
)
FIRST_REFUSED = (
    "cannot be pushed: the project has no default branch yet, and its first branch becomes that, which is protected. "
    "Let a maintainer push the first branch"
)
MOVE_REFUSED = (
    "is protected, so nobody can move it; let a maintainer delete it, then create it again: DELETE "
    "/projects/:id/repository/tags/:tag_name"
)
LOCKED = "is locked with Git LFS by somebody else; ask them, or let a maintainer remove the lock"
NAMESAKE_REFUSED = (
    "has the name of the protected branch, and whoever asks for that branch could get the tag instead; give the tag "
    "another name"
)


class GitError(CellError):
    """A git command failed or took too long. The message says why, usually with git's own error message."""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of a commit (authors, times, message, parents), without its files."""

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
        return self.message.split("\n", 1)[0].strip()


class LogFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects commits of a history. An empty or None field restricts nothing."""

    path: str = ""
    """Only commits that changed this path."""
    author: str = ""
    """Only commits whose author's name and mail address, as `Name <mail>`, contain this text."""
    since: float | None = None
    until: float | None = None
    is_first_parent: bool = False
    """Follow only the first parent of merges."""
    has_all_refs: bool = False
    """The histories of all branches and tags instead of the one of a commit."""


EVERY_COMMIT = LogFilter()


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """How many lines a commit adds and deletes."""

    additions: int
    deletions: int


class TreeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file, folder or submodule in the listing of a folder."""

    mode: str
    type: str
    """blob, tree, or commit for a submodule."""
    sha: str
    path: str


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    target: str
    """The commit, or the tag's own object if it has a message."""
    sha: str
    message: str


class PushRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the pre-receive hook rejects in a push: forbidden refs, force pushes to a protected one; and who pushes."""

    user_id: int | None = None
    """The pusher, noted with the push; None: the project's creator."""
    protected_refs: tuple[str, ...] = ()
    """Patterns of full refs that only some users may push; `*` matches any characters."""
    allowed_refs: tuple[str, ...] = ()
    """Patterns of protected refs that this user may push."""
    forced_refs: tuple[str, ...] = ()
    """Patterns of protected branches that may be force-pushed."""
    refuses_first: bool = False
    """There is no default branch yet, and the user may not push the branch that becomes it."""
    namesake_ref: str = ""
    """This tag may not be pushed, because the protected branch has the same name."""
    locked_paths: tuple[str, ...] = ()
    """Files and folders that other users have locked: new commits may not change them."""


class GitRequest(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    service: str
    """info/refs, git-upload-pack or git-receive-pack."""
    query: str = ""
    content_type: str = ""
    content_encoding: str = ""
    protocol: str = ""
    user: str = ""
    rules: PushRules | None = None


class GitClient(msgspec.Struct, frozen=True, kw_only=True):
    """The client of a git request: the request body that it sends, and functions that send the response to it."""

    body: AsyncIterator[bytes]
    start: Callable[[int, list[tuple[bytes, bytes]]], Awaitable[None]]
    """Sends the status and the headers."""
    send: Callable[[bytes], Awaitable[None]]
    wait_hang_up: Callable[[], Awaitable[None]] | None = None
    """Waits until the client disconnects; git is killed then. None: git goes on without the client."""


class PushNote(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one push, to start its pipelines: the new object of each ref, the push options and the user."""

    name: str
    written_at: float
    refs: dict[str, str]
    options: tuple[str, ...]
    user_id: int | None = None


def find_note(notes: Sequence[PushNote], ref: str, sha: str) -> PushNote | None:
    """Return the first record in `notes` of a push that moves `ref` to the object `sha`; None if there is none."""
    return next((note for note in notes if note.refs.get(ref) == sha), None)


class Reader(Protocol):
    """Blocking reads of repositories for one compiling thread. Caches commits and file lists until it is closed."""

    def commit(self, repo: str, name: str | None) -> str | None:
        """Return the hash of the commit to which a branch, tag, full ref or commit hash resolves (`name=None`: the
        default branch); None if it does not exist."""
        ...

    def file(self, repo: str, sha: str, path: str, *, limit_bytes: int) -> bytes | None:
        """Return a file's content in the commit `sha`; None if missing. TooLargeError if longer than `limit_bytes`."""
        ...

    def files(self, repo: str, sha: str) -> dict[str, str]:
        """Return the paths of all files of a commit, each with the hash of its blob."""
        ...

    def changed_files(self, repo: str, before: str, sha: str) -> frozenset[str] | None:
        """Return the paths that differ between the two commits, or None if `before` does not exist."""
        ...

    def merge_base(self, repo: str, sha: str, other_sha: str) -> str | None: ...

    def tags(self, repo: str) -> list[str]: ...

    def refs_at(self, repo: str, sha: str, folder: str) -> list[str]:
        """Return the full names of the refs below `folder` (such as `refs/tags`) that point to the commit `sha`."""
        ...

    def tag_message(self, repo: str, tag: str) -> str:
        """Return the message of an annotated tag, without its signature; empty for a lightweight tag."""
        ...


class Refs(Protocol):
    """Reads, creates and moves the branches and tags of repositories. `before_move` is called with the hash of the new
    commit or tag object just before the ref is set to it, so that the caller can record the change. Methods that create
    refs raise InvalidError if the name conflicts with that of an existing ref (`a` and `a/b`)."""

    async def refs(self, repo: str) -> dict[str, str]:
        """Return the full names of branches, tags and merge request refs, each with the hash of its commit. Refs to
        other objects are left out."""
        ...

    async def resolve(self, repo: str, name: str) -> str | None:
        """Return the hash of the commit to which a branch, a tag, or a full or abbreviated hash resolves; None if there
        is no such commit."""
        ...

    async def commit_of(self, repo: str, ref: str) -> str | None:
        """Return the hash of the commit that a full ref points to, directly or through annotated tags; None if there is
        no such ref, or it points to no commit."""
        ...

    async def object_of(self, repo: str, ref: str) -> str | None:
        """Return the hash of the object that a full ref points to (commit or annotated tag); None if no such ref."""
        ...

    async def is_empty(self, repo: str) -> bool:
        """True if the repository has no branch."""
        ...

    def head(self, repo: str) -> str | None:
        """Return the short name of the branch in HEAD (git clients' default branch); None if HEAD names no branch."""
        ...

    async def put_head(self, repo: str, branch: str) -> None: ...

    def has_ref_file(self, repo: str, ref: str) -> bool:
        """True if the ref is a file of its own. Runs no git, so it is fast, but False for a ref in `packed-refs`."""
        ...

    async def put_ref(self, repo: str, ref: str, sha: str) -> None: ...

    async def put_refs(self, repo: str, refs: Mapping[str, str], before: Mapping[str, str] = {}) -> None:
        """Set all `refs` (full names with object hashes; a hash of zeros deletes the ref) in one transaction. `before`:
        the hashes that some of the refs must have now. Raises GitError if one of them has another hash, or if git
        fails; then no ref is changed."""
        ...

    async def refs_with(self, repo: str, sha: str) -> list[str]:
        """Return the full names of the branches and tags whose history contains the commit `sha`, ordered by name."""
        ...

    async def is_ancestor(self, repo: str, sha: str, of: str) -> bool:
        """True if the commit `sha` is an ancestor of the commit `of`, or the same commit."""
        ...

    async def add_branch(self, repo: str, name: str, sha: str, *, before_move: Callable[[str], None]) -> None:
        """Create a branch at the commit `sha`. Raises ConflictError if the branch exists."""
        ...

    async def add_tag(
        self, repo: str, name: str, sha: str, *, message: str, at: int, before_move: Callable[[str], None]
    ) -> None:
        """Create a tag at the commit `sha`: an annotated tag if there is a `message`, with the time `at` (seconds since
        the epoch). `before_move`: see the class. Raises ConflictError if the tag exists."""
        ...

    async def remove_ref(self, repo: str, ref: str) -> None: ...

    async def tags(self, repo: str) -> list[Tag]:
        """Return all tags that point to commits, ordered by name."""
        ...


class Contents(Protocol):
    """Reads the commits and files of repositories, and creates commits."""

    async def commit(self, repo: str, sha: str) -> Commit | None: ...

    async def log(
        self, repo: str, sha: str, *, skip: int, count: int, selection: LogFilter = EVERY_COMMIT
    ) -> Sequence[Commit]:
        """Return up to `count` commits of the history of the commit `sha`, newest first, without the first `skip`
        ones."""
        ...

    async def count_changes(self, repo: str, shas: Sequence[str]) -> dict[str, Changes]:
        """Return how much each of these commits changes. A merge is compared with its first parent."""
        ...

    async def log_between(self, repo: str, before: str, sha: str, *, count: int) -> Sequence[Commit]:
        """Return up to `count` commits that are in the history of `sha` but not of `before`, newest first."""
        ...

    async def diff(self, repo: str, before: str | None, sha: str, *, since_fork: bool = False) -> list[FileDiff]:
        """Return how the files of the commit `sha` differ from those of `before` (None: from no files). `since_fork`:
        from those of the commit at which the two histories fork. Raises TooLargeError if there are too many files."""
        ...

    async def count(self, repo: str, sha: str, selection: LogFilter = EVERY_COMMIT) -> int:
        """Count the commits in the history of `sha`, itself included."""
        ...

    async def add_commit(
        self, repo: str, commit: NewCommit, *, before_move: Callable[[str], None] = lambda _: None
    ) -> str:
        """Create a commit, set its branch to it, and return its hash. `before_move` is called with the hash just before
        the branch moves. Raises ConflictError if the branch is not at `commit.parent` any more."""
        ...

    async def file(self, repo: str, sha: str, path: str, *, limit_bytes: int) -> bytes | None:
        """Return a file's content in the commit `sha`; None if missing. TooLargeError if longer than `limit_bytes`."""
        ...

    async def file_size(self, repo: str, sha: str, path: str) -> int:
        """Return a file's size in bytes. Raises GitError if there is no such file."""
        ...

    async def tree(self, repo: str, sha: str) -> dict[str, Entry]:
        """Return all files of a commit by path. Raises TooLargeError if their list exceeds `LIST_LIMIT_BYTES`."""
        ...

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
        """List the entries of the folder `path`; with `is_deep` also those of its subfolders, recursively. With
        `is_folder=False`, return the entry of `path` itself. Raises TooLargeError if git's list is longer than
        `limit_bytes`."""
        ...


class Repositories(Refs, Contents, Protocol):
    """All git repositories of a cell: create, read, change and remove them, and serve git clients."""

    def prepare(self) -> None:
        """Create the folder for repositories; install the pre-receive hook. Raises CellError if git is missing."""
        ...

    async def create(self, repo: str, default_branch: str) -> None:
        """Create an empty repository whose HEAD names `default_branch`. An existing one keeps its refs and objects."""
        ...

    def link(self, repo: str, path: str) -> None:
        """Create or replace the symbolic link `<path>.git` for local runners, if the settings name a folder for it."""
        ...

    async def remove(self, repo: str) -> None:
        """Remove a repository and its files; do nothing if there is none."""
        ...

    def open_reader(self) -> AbstractContextManager[Reader]: ...

    async def serve(self, repo: str, request: GitRequest, client: GitClient) -> str:
        """Answer one request of git's smart HTTP protocol. Returns the last part of git's stderr, for the log. The git
        process has ended when this returns. It is killed if the client of a fetch disconnects; a push whose request is
        complete goes on."""
        ...


class Pushes(Protocol):
    """Durable records of pushes, shared by all processes of a cell, so that a push starts its pipelines even if the
    process that serves it dies. A push is open while a process serves it. If that process dies, the push is abandoned:
    another process finds it and starts its pipelines. A note (`PushNote`) is the record of who pushed which refs with
    which options; it is written before the push moves any ref."""

    def begin(self, project_id: ProjectId) -> AbstractContextManager[Callable[[], None]]:
        """Context manager: record a push as open during the block, which must call the function that it gets once the
        push's pipelines are started; else the push counts as abandoned, and they are started later."""
        ...

    def find_abandoned(self) -> dict[str, ProjectId]:
        """Return record name and project id of pushes whose process died or did not start their pipelines."""
        ...

    def forget(self, name: str) -> None:
        """Delete the record of an abandoned push, because its pipelines were started."""
        ...

    def add_note(self, repo: str, refs: Mapping[str, str], user_id: int) -> None:
        """Record that the user sets `refs` (full names) through the API. For git pushes the pre-receive hook does."""
        ...

    def has_notes(self, repo: str) -> bool: ...

    def notes(self, repo: str) -> list[PushNote]:
        """Return the records (`PushNote`) of pushes to a repository that are not removed yet, newest first."""
        ...

    def remove_notes(self, repo: str, notes: Sequence[PushNote], refs: Mapping[str, str], now: float) -> None:
        """Remove those `notes` (records of pushes) whose refs all have the pushed object (`refs`: current objects) or
        were to be deleted, and those so old that their push cannot be running any more."""
        ...

    def take_turn(self, repo: str) -> AbstractAsyncContextManager[None]:
        """Context manager: a lock, so that one process at a time starts pipelines for moved refs of a repository."""
        ...
