"""From GitLab's file actions to the one commit they ask for, written as a stream for `git fast-import`.

Decided here: which paths a commit may touch, what each action needs to find in the tree, and the bytes that git is
given. Pure: the tree comes in as a value. `remuda.cell.git.repositories` runs git, `remuda.cell.projects.projects` says
for whom.

Invariant: no byte of a stream outside a counted `data` block comes from the user unquoted, so nobody can smuggle a
command for fast-import into a path, a name or a message.
"""

import base64
import binascii
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from remuda.cell.errors import InvalidError

FILE, EXECUTABLE, SYMLINK = "100644", "100755", "120000"

_MAX_PATH = 4096
_MAX_NAME_PART_BYTES = 255 - len(".lock")
"""Each part of a ref's name is a file, beside which git makes a lock."""
_BAD_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)")
# Characters that HFS+ drops when it compares names: `.g<U+200C>it` would be `.git` there.
_IGNORED_ON_HFS = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])


class FileAction(msgspec.Struct, frozen=True, kw_only=True):
    """One action of `POST /projects/:id/repository/commits`."""

    action: str
    file_path: str
    previous_path: str | None = None
    content: str | None = None
    encoding: str = "text"
    execute_filemode: bool | None = None


class Entry(msgspec.Struct, frozen=True):
    """A file in a tree: its mode and either the object that is there or new bytes."""

    mode: str
    content: str | bytes
    """An object's name, or the bytes of a new one."""


class NewCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit to be made on a branch."""

    branch: str
    parent: str | None
    message: str
    author_name: str
    author_email: str
    at: int
    changes: Mapping[str, Entry | None]
    """Path to what stands there afterwards; None where nothing does."""


def is_branch_name(name: str) -> bool:
    """Whether git takes it as the name of a branch or tag, and nothing else (a commit, a ref, an option) is called so.

    A push is refused other names by `push_hook`.
    """
    if not name or len(name) > 255 or name[0] in "-./" or name[-1] in "./" or name in ("@", "HEAD"):
        return False
    if name.startswith("refs/") or any(
        len(part.encode(errors="replace")) > _MAX_NAME_PART_BYTES for part in name.split("/")
    ):
        return False
    return not _BAD_IN_REF.search(name) and not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", name)


def checked_path(path: str) -> str:
    """A path inside the repository, as it is; InvalidError when it leads out of it or into git's own folder."""
    parts = path.split("/")
    if not path or len(path) > _MAX_PATH or any(len(part.encode()) > 255 for part in parts):
        raise InvalidError("a file path has 1 to 4096 characters, and 255 bytes between two slashes")
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        raise InvalidError("a file path has no control characters")
    if any(part in ("", ".", "..") for part in parts):
        raise InvalidError("Path cannot include directory traversal")
    for part in parts:
        plain = part.lower().translate(_IGNORED_ON_HFS).rstrip(". ").split(":")[0]
        if plain in (".git", "git~1"):
            raise InvalidError(f"{part}: a file path may not touch the repository's own folder")
    return path


def plan(tree: Mapping[str, Entry], actions: Sequence[FileAction]) -> dict[str, Entry | None]:
    """What the actions change in the tree, done one after the other; InvalidError when one of them cannot be done."""
    after = _Tree(tree)
    for action in actions:
        path = checked_path(action.file_path)
        match action.action:
            case "create":
                after.add(path, Entry(EXECUTABLE if action.execute_filemode else FILE, _content(action)))
            case "update":
                after.replace(path, Entry(after.existing(path).mode, _content(action)))
            case "delete":
                after.remove(path)
            case "move":
                if not action.previous_path:
                    raise InvalidError("You must provide a previous path")
                moved = after.remove(checked_path(action.previous_path))
                content = moved.content if action.content is None else _content(action)
                after.add(path, Entry(moved.mode, content))
            case "chmod":
                mode = EXECUTABLE if action.execute_filemode else FILE
                after.replace(path, Entry(mode, after.existing(path).content))
            case _:
                raise InvalidError("actions[action] does not have a valid value: create, update, delete, move or chmod")
    return after.changes


def is_done(before: Mapping[str, Entry], after: Mapping[str, Entry], actions: Sequence[FileAction]) -> bool:
    """Whether these actions, and nothing else, lead from one tree to the other: the request came twice."""
    try:
        changes = plan(before, actions)
    except InvalidError:
        return False
    wanted = dict(before)
    for path, entry in changes.items():
        if entry is None:
            wanted.pop(path, None)
        elif isinstance(entry.content, str):
            wanted[path] = entry
        else:
            name = hashlib.sha1(b"blob %d\0" % len(entry.content) + entry.content, usedforsecurity=False).hexdigest()
            wanted[path] = Entry(entry.mode, name)
    return wanted == after


class _Tree:
    """A tree with changes laid over it; counts the files below each folder to see where a file cannot stand."""

    def __init__(self, tree: Mapping[str, Entry]) -> None:
        self._tree = tree
        self._folders = Counter(folder for path in tree for folder in _folders(path))
        self.changes: dict[str, Entry | None] = {}

    def find(self, path: str) -> Entry | None:
        return self.changes[path] if path in self.changes else self._tree.get(path)

    def existing(self, path: str) -> Entry:
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
            raise InvalidError("A file stands where the path needs a directory")
        self._folders.update(_folders(path))
        self.changes[path] = entry

    def remove(self, path: str) -> Entry:
        entry = self.existing(path)
        self._folders.subtract(_folders(path))
        self.changes[path] = None
        return entry


def _folders(path: str) -> Iterator[str]:
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)


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
    """The commit as fast-import reads it; git answers with the commit's name, and moves the branch at the end."""
    who = f"{_plain(commit.author_name)} <{_plain(commit.author_email)}> {commit.at} +0000".encode()
    yield b"commit refs/heads/%s\nmark :1\n" % commit.branch.encode()
    yield b"author %s\ncommitter %s\n" % (who, who)
    yield from _data(commit.message.encode())
    if commit.parent is not None:
        yield b"from %s\n" % commit.parent.encode()
    # Removals first: a file may take the place of a folder that the same commit empties.
    for path, entry in sorted(commit.changes.items(), key=lambda change: change[1] is not None):
        if entry is None:
            yield b"D %s\n" % _quoted(path)
        elif isinstance(entry.content, str):
            yield b"M %s %s %s\n" % (entry.mode.encode(), entry.content.encode(), _quoted(path))
        else:
            yield b"M %s inline %s\n" % (entry.mode.encode(), _quoted(path))
            yield from _data(entry.content)
    yield b"\nget-mark :1\n"


def _data(content: bytes) -> Iterator[bytes]:
    yield b"data %d\n" % len(content)
    yield content
    yield b"\n"


def _plain(text: str) -> str:
    """A name or an address without what ends a line or a field in a commit's head."""
    return re.sub(r"[\x00-\x1f\x7f<>]", "", text).strip() or "unknown"


def _quoted(path: str) -> bytes:
    return b'"' + path.encode().replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
