"""The port to the repositories of a cell, and the values that pass through it.

`Repositories` is what the event loop uses, `Reader` what a compilation thread uses, `Pushes` the durable record of
pushes that must be acted on. `remuda.cell.git.repositories` and `push_files` implement them with the `git` program;
`remuda.cell.service` puts them together. `repo` is always a folder name that the cell chose, never a user's text.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol

import msgspec

from remuda.cell.errors import CellError
from remuda.cell.git.commits import Entry, NewCommit
from remuda.model.job import ProjectId

LIST_LIMIT_BYTES = 64 * 1024 * 1024
"""The longest list that is read from git: half a million file names or more. A few objects can stand for a tree of
billions of files."""

FORCE_REFUSED = (
    "is protected, and this is a force push: it would take commits away from it. Push to another branch, or let a "
    "maintainer allow force pushes: PATCH /projects/:id/protected_branches/:name with allow_force_push=true"
)
FIRST_REFUSED = (
    "cannot be pushed: the project has no default branch yet, and its first branch becomes that, which is protected. "
    "Let a maintainer push the first branch"
)
NAMESAKE_REFUSED = (
    "has the name of the protected branch, and whoever asks for that branch could get the tag instead; give the tag "
    "another name"
)


class GitError(CellError):
    """git failed; the message is git's own."""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit without its tree."""

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


class TreeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder in a listing."""

    mode: str
    type: str
    """blob, tree, or commit for a submodule."""
    sha: str
    path: str


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """A tag that leads to a commit."""

    name: str
    target: str
    """The commit, or the tag's own object if it has a message."""
    sha: str
    message: str


class PushRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the pre-receive hook checks of a push, beside the names of its refs."""

    user_id: int | None = None
    """The pusher, noted with the push; None: the project's creator."""
    refused_ref: str = ""
    """This person may not push to it."""
    refuses_first: bool = False
    """There is no default branch yet, and this person may not push the branch that becomes it."""
    forward_ref: str = ""
    """It may only get commits on top of those it has: no force push."""
    namesake_ref: str = ""
    """No tag may be pushed here, because the protected branch has the same name."""


class GitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an HTTP request that `git http-backend` needs."""

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
    """The other end of a request: the body that it sends, and how to answer it."""

    body: AsyncIterator[bytes]
    start: Callable[[int, list[tuple[bytes, bytes]]], Awaitable[None]]
    """Sends the status and the headers."""
    send: Callable[[bytes], Awaitable[None]]
    wait_hang_up: Callable[[], Awaitable[None]] | None = None
    """Returns when nobody reads the answer any more."""


class PushNote(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one push: where it moves refs to, and its options."""

    name: str
    written_at: float
    refs: dict[str, str]
    options: tuple[str, ...]
    user_id: int | None = None


def find_note(notes: Sequence[PushNote], ref: str, sha: str) -> PushNote | None:
    """The note of the push that moved this ref to this commit."""
    return next((note for note in notes if note.refs.get(ref) == sha), None)


class Reader(Protocol):
    """Blocking reads for one compilation. One thread uses it, and it remembers commits and trees until it is closed."""

    def commit(self, repo: str, name: str | None) -> str | None:
        """The commit of a branch, a tag, a full ref or a commit's name; of the default branch if `name` is None."""
        ...

    def file(self, repo: str, sha: str, path: str, *, limit_bytes: int) -> bytes | None:
        """A file's bytes in a commit; None when there is no such file, TooLargeError beyond the limit."""
        ...

    def files(self, repo: str, sha: str) -> dict[str, str]:
        """All files of a commit with the names of their blobs."""
        ...

    def changed_files(self, repo: str, before: str, sha: str) -> frozenset[str] | None:
        """The files that differ between two commits; None when `before` does not exist."""
        ...

    def merge_base(self, repo: str, one: str, other: str) -> str | None: ...

    def tags(self, repo: str) -> list[str]: ...

    def refs_at(self, repo: str, sha: str, folder: str) -> list[str]:
        """The full names of the refs below a folder that lead to a commit."""
        ...

    def tag_message(self, repo: str, tag: str) -> str:
        """The message of an annotated tag without a signature; empty for a lightweight tag."""
        ...


class Refs(Protocol):
    """Branches and tags: where they lead, and moving them.

    `before_move` is called with the object just before the ref leads to it.
    """

    async def refs(self, repo: str) -> dict[str, str]:
        """Branches, tags and merge requests with their commits; refs that lead to no commit are left out."""
        ...

    async def resolve(self, repo: str, name: str) -> str | None:
        """The commit of a branch, a tag or a commit's (short) name."""
        ...

    async def commit_of(self, repo: str, ref: str) -> str | None:
        """The commit that a full ref leads to."""
        ...

    async def object_of(self, repo: str, ref: str) -> str | None:
        """The object that a full ref leads to: a commit, or an annotated tag."""
        ...

    async def is_empty(self, repo: str) -> bool:
        """True if there is no branch."""
        ...

    def head(self, repo: str) -> str | None:
        """The default branch that clients see."""
        ...

    async def put_head(self, repo: str, branch: str) -> None: ...

    def has_ref_file(self, repo: str, ref: str) -> bool:
        """True if the ref exists as a file. Does not ask git, so packed refs are missed."""
        ...

    async def put_ref(self, repo: str, ref: str, sha: str) -> None: ...

    async def put_refs(self, repo: str, refs: Mapping[str, str], before: Mapping[str, str] = {}) -> None:
        """Set all refs to objects of the repository, or none of them. Raises GitError if that fails.

        `before` has the objects that some of the refs must point to before the change.
        """
        ...

    async def is_ancestor(self, repo: str, sha: str, of: str) -> bool:
        """True if `sha` is `of` or one of its ancestors."""
        ...

    async def add_branch(self, repo: str, name: str, sha: str, *, before_move: Callable[[str], None]) -> None:
        """Create a branch. Raises ConflictError if the name is taken."""
        ...

    async def add_tag(
        self, repo: str, name: str, sha: str, *, message: str, at: int, before_move: Callable[[str], None]
    ) -> None:
        """Create a tag, annotated if there is a message. Raises ConflictError if the name is taken."""
        ...

    async def remove_ref(self, repo: str, ref: str) -> None: ...

    async def tags(self, repo: str) -> list[Tag]:
        """All tags that lead to commits, ordered by name."""
        ...


class Contents(Protocol):
    """The commits and files of repositories."""

    async def commit(self, repo: str, sha: str) -> Commit | None: ...

    async def log(self, repo: str, sha: str, *, skip: int, count: int, path: str = "") -> Sequence[Commit]:
        """Commits from one backwards; with a path, those that changed it."""
        ...

    async def count(self, repo: str, sha: str, path: str = "") -> int:
        """How many commits lead up to this one; with a path, how many of them changed it."""
        ...

    async def add_commit(
        self, repo: str, commit: NewCommit, *, before_move: Callable[[str], None] = lambda _: None
    ) -> str:
        """Create a commit and move its branch. Raises ConflictError if the branch has moved meanwhile.

        `before_move` is called with the commit just before the branch leads to it.
        """
        ...

    async def file(self, repo: str, sha: str, path: str, *, limit_bytes: int) -> bytes | None:
        """A file's bytes in a commit; None when there is no such file, TooLargeError beyond the limit."""
        ...

    async def file_size(self, repo: str, sha: str, path: str) -> int:
        """A file's size in a commit. Raises GitError if there is no such file."""
        ...

    async def tree(self, repo: str, sha: str) -> dict[str, Entry]:
        """All files of a commit. Raises TooLargeError if the list is too long."""
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
        """The entries of a folder, with `is_deep` also those of its subfolders; TooLargeError beyond the limit.

        With `is_folder` off, the entry at the path itself.
        """
        ...


class Repositories(Refs, Contents, Protocol):
    """All repositories of a cell."""

    def prepare(self) -> None:
        """Create the folders and the hook. Raises CellError if git is not installed."""
        ...

    async def create(self, repo: str, default_branch: str) -> None:
        """Create an empty repository. Repeatable."""
        ...

    def link(self, repo: str, path: str) -> None:
        """Make a repository visible under its project's path, if the settings name a folder for that."""
        ...

    async def remove(self, repo: str) -> None:
        """Remove a repository, if it is there."""
        ...

    def open_reader(self) -> AbstractContextManager[Reader]: ...

    async def serve(self, repo: str, request: GitRequest, client: GitClient) -> str:
        """Answer one request of git's smart HTTP protocol. Returns the end of git's stderr.

        The git process has ended when this returns. `wait_hang_up` returns when the client has disconnected.
        """
        ...


class Pushes(Protocol):
    """Records of pushes that outlive their process, shared by all processes of a cell.

    A push is open while a process serves it; an open push whose process died is abandoned. Notes say who pushed what
    with which options, and exist before the refs move.
    """

    def begin(self, project_id: ProjectId) -> AbstractContextManager[Callable[[], None]]:
        """Open a push. The caller calls the given function when the push was acted on; otherwise it is abandoned."""
        ...

    def find_abandoned(self) -> dict[str, ProjectId]:
        """The names of the abandoned pushes with their projects."""
        ...

    def forget(self, name: str) -> None:
        """Remove an abandoned push that was acted on."""
        ...

    def add_note(self, repo: str, refs: Mapping[str, str], user_id: int) -> None:
        """Note who moves refs where, as the hook does for a push by git."""
        ...

    def has_notes(self, repo: str) -> bool: ...

    def notes(self, repo: str) -> list[PushNote]:
        """The notes of a repository, the newest first."""
        ...

    def remove_notes(self, repo: str, notes: Sequence[PushNote], refs: Mapping[str, str], now: float) -> None:
        """Remove the notes of pushes that were acted on (`refs`: where refs lead now) or are too old to happen."""
        ...

    def take_turn(self, repo: str) -> AbstractAsyncContextManager[None]:
        """Only one process at a time acts on the pushes of a repository."""
        ...
