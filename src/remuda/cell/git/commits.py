"""Turns the file actions of GitLab's commits API into one commit, as an input stream for `git fast-import`.

Invariant: every text of a user is checked, quoted, or in a `data` block with its length. So a path, a name or a message
can never be read as a command of fast-import."""

import base64
import binascii
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec

from remuda.cell.errors import InvalidError

FILE, EXECUTABLE, SYMLINK = "100644", "100755", "120000"

_MAX_PATH = 4096
_MAX_NAME_PART_BYTES = 255 - len(".lock")
"""Each part of a ref's name is a file, and git creates a lock file beside it."""
_BAD_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)")
# Characters that HFS+ drops when it compares names: `.g<U+200C>it` would be `.git` there.
_IGNORED_ON_HFS = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])


class FileAction(msgspec.Struct, frozen=True, kw_only=True):
    """One file action (create, update, delete, move, chmod) in the body of `POST /projects/:id/repository/commits`."""

    with_nul: ClassVar[tuple[str, ...]] = ("content",)

    action: str
    file_path: str
    previous_path: str | None = None
    content: str | None = None
    encoding: str = "text"
    execute_filemode: bool | None = None
    last_commit_id: str | None = None
    """The last commit of the file that the caller has seen; another one refuses the action, except a create."""


class Entry(msgspec.Struct, frozen=True):
    mode: str
    content: str | bytes
    """The hash of an existing blob, or the bytes of a new one."""


class NewCommit(msgspec.Struct, frozen=True, kw_only=True):
    branch: str
    parent: str | None
    message: str
    author_name: str
    author_email: str
    at: int
    changes: Mapping[str, Entry | None]
    """The new entry of each changed path; None: the path is removed."""


def is_branch_name(name: str) -> bool:
    """True if git accepts `name` for a branch or tag and cannot mistake it for a commit, a full ref or an option."""
    if not name or len(name) > 255 or name[0] in "-./" or name[-1] in "./" or name in ("@", "HEAD"):
        return False
    if name.startswith("refs/") or any(
        len(part.encode(errors="replace")) > _MAX_NAME_PART_BYTES for part in name.split("/")
    ):
        return False
    return not _BAD_IN_REF.search(name) and not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", name)


def check_path(path: str) -> str:
    """Return `path` unchanged. Raises InvalidError if it is malformed, leads out of the repository or into `.git`."""
    parts = path.split("/")
    if not path or len(path) > _MAX_PATH or any(len(part.encode()) > 255 for part in parts):
        raise InvalidError("a file path must have 1 to 4096 characters, and at most 255 bytes between two slashes")
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        raise InvalidError("a file path must not contain control characters")
    if any(part in ("", ".", "..") for part in parts):
        raise InvalidError("Path cannot include directory traversal")
    for part in parts:
        plain = part.lower().translate(_IGNORED_ON_HFS).rstrip(". ").split(":")[0]
        if plain in (".git", "git~1"):
            raise InvalidError(f"{part}: a file path may not touch the repository's own folder")
    return path


def apply_actions(tree: Mapping[str, Entry], actions: Sequence[FileAction]) -> dict[str, Entry | None]:
    """Apply file actions to `tree` (files by path). Returns the new entry of each changed path, None if removed. Raises
    InvalidError for an impossible action, such as creating a file that exists."""
    after = _Tree(tree)
    for action in actions:
        path = check_path(action.file_path)
        match action.action:
            case "create":
                after.add(path, Entry(EXECUTABLE if action.execute_filemode else FILE, _content(action)))
            case "update":
                after.replace(path, Entry(after.require(path).mode, _content(action)))
            case "delete":
                after.remove(path)
            case "move":
                if not action.previous_path:
                    raise InvalidError("You must provide a previous path")
                moved = after.remove(check_path(action.previous_path))
                content = moved.content if action.content is None else _content(action)
                after.add(path, Entry(moved.mode, content))
            case "chmod":
                mode = EXECUTABLE if action.execute_filemode else FILE
                after.replace(path, Entry(mode, after.require(path).content))
            case _:
                raise InvalidError("actions[action] does not have a valid value: create, update, delete, move or chmod")
    return after.changes


def is_done(before: Mapping[str, Entry], after: Mapping[str, Entry], actions: Sequence[FileAction]) -> bool:
    """True if the actions turn the files `before` into exactly `after`: then an earlier try has made the commit."""
    try:
        changes = apply_actions(before, actions)
    except InvalidError:
        return False
    expected = dict(before)
    for path, entry in changes.items():
        if entry is None:
            expected.pop(path, None)
        elif isinstance(entry.content, str):
            expected[path] = entry
        else:
            name = hashlib.sha1(b"blob %d\0" % len(entry.content) + entry.content, usedforsecurity=False).hexdigest()
            expected[path] = Entry(entry.mode, name)
    return expected == after


class _Tree:
    """The files of a commit with the file actions applied so far. Counts the files below each folder, because no file
    can be created at the path of a folder that is not empty."""

    def __init__(self, tree: Mapping[str, Entry]) -> None:
        self._tree = tree
        self._folders = Counter(folder for path in tree for folder in _folders(path))
        self.changes: dict[str, Entry | None] = {}

    def find(self, path: str) -> Entry | None:
        return self.changes[path] if path in self.changes else self._tree.get(path)

    def require(self, path: str) -> Entry:
        entry = self.find(path)
        if entry is None:
            raise InvalidError("A file with this name doesn't exist")
        return entry

    def replace(self, path: str, entry: Entry) -> None:
        self.changes[path] = entry

    def add(self, path: str, entry: Entry) -> None:
        if self.find(path) is not None:
            raise InvalidError("A file with this name already exists")
        if self._folders[path] > 0:
            raise InvalidError("A directory with this name already exists")
        if any(self.find(folder) is not None for folder in _folders(path)):
            raise InvalidError("A file exists where the path needs a directory")
        self._folders.update(_folders(path))
        self.changes[path] = entry

    def remove(self, path: str) -> Entry:
        entry = self.require(path)
        self._folders.subtract(_folders(path))
        self.changes[path] = None
        return entry


def _folders(path: str) -> Iterator[str]:
    slash = path.find("/")
    while slash >= 0:
        yield path[:slash]
        slash = path.find("/", slash + 1)


def _content(action: FileAction) -> bytes:
    if action.content is None:
        raise InvalidError("You must provide content")
    match action.encoding:
        case "text":
            return action.content.encode()
        case "base64":
            try:
                return base64.b64decode("".join(action.content.split()), validate=True)
            except (binascii.Error, ValueError):
                raise InvalidError(f"{action.file_path}: the content is not base64") from None
        case _:
            raise InvalidError("actions[encoding] does not have a valid value: text or base64")


FAST_IMPORT_END = b"done\n"


def fast_import(commit: NewCommit) -> Iterator[bytes]:
    """Yield the input of `git fast-import` that creates the commit. git prints the commit's hash after this input, but
    moves the branch only once it gets `FAST_IMPORT_END`."""
    who = f"{_plain(commit.author_name)} <{_plain(commit.author_email)}> {commit.at} +0000".encode()
    yield b"commit refs/heads/%s\nmark :1\n" % commit.branch.encode()
    yield b"author %s\ncommitter %s\n" % (who, who)
    yield from _data(commit.message.encode())
    if commit.parent is not None:
        yield b"from %s\n" % commit.parent.encode()
    # Removals first: a file may take the place of a folder that the same commit empties.
    for path, entry in sorted(commit.changes.items(), key=lambda change: change[1] is not None):
        if entry is None:
            yield b"D %s\n" % _quote(path)
        elif isinstance(entry.content, str):
            yield b"M %s %s %s\n" % (entry.mode.encode(), entry.content.encode(), _quote(path))
        else:
            yield b"M %s inline %s\n" % (entry.mode.encode(), _quote(path))
            yield from _data(entry.content)
    yield b"\nget-mark :1\n"


def _data(content: bytes) -> Iterator[bytes]:
    yield b"data %d\n" % len(content)
    yield content
    yield b"\n"


def _plain(text: str) -> str:
    """Remove control characters, `<` and `>`, which separate fields of a commit, from a text; "unknown" if empty."""
    return re.sub(r"[\x00-\x1f\x7f<>]", "", text).strip() or "unknown"


def _quote(path: str) -> bytes:
    return b'"' + path.encode().replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
