"""Unpacks the layers of an image into a folder. The archives are not trusted. The functions block.

Refused: names and links that lead out of the folder, entries below a link, devices, sparse files (the OCI specification
advises against them, and reading their maps is costly), contents and headers above the limits. Links are created last,
so nothing is written through one. Files keep their permissions, without owners and set-id bits."""

import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import IO

from remuda.lib.safe_paths import remove_tree
from remuda.steps.resolving import decompression
from remuda.steps.resolving.errors import ResolveError
from remuda.steps.resolving.values import LARGEST_BYTES, MOST_FILES

LARGEST_HEADER_BYTES = 1024 * 1024
"""Limit of the headers of one file. An archive may have several headers for a file, and headers of any size."""
LARGEST_HEADERS_BYTES = 2048 * MOST_FILES
"""Limit of the headers of all files. tarfile needs much more time and memory for headers than for files."""
MOST_GLOBAL_HEADERS = 100
"""Limit of the values that an archive sets for all files that follow, because each file gets a copy of them."""
LONGEST_PATH, LONGEST_NAME = 3072, 255
"""Limits in bytes for the path of a file in an image, and for one name in it. The system's limit for a path is 4096."""
_REMOVED, _EMPTIED = ".wh.", ".wh..wh..opq"
_CHUNK = 256 * 1024
_DAMAGE = (
    tarfile.TarError,
    EOFError,
    ValueError,
    FileExistsError,
    FileNotFoundError,
    NotADirectoryError,
    IsADirectoryError,
    RecursionError,
)
"""Errors while unpacking a damaged archive, or a file that is not an archive."""


def unpack_layers(layers: Iterable[Path], target: Path, *, limit_bytes: int = LARGEST_BYTES) -> None:
    """Unpack all layers in order. Raises ResolveError if one is invalid or all together exceed `limit_bytes`."""
    target.mkdir()
    tree = _Tree(target, limit_bytes)
    used_bytes = 0
    try:
        for layer in layers:
            plain = layer.with_name(layer.name + ".tar")
            decompression.unpack(layer, plain, limit_bytes=limit_bytes, used_bytes=used_bytes)
            used_bytes += plain.stat().st_size
            with _Guarded(plain) as file, _Archive(fileobj=file) as archive:
                while (member := archive.next()) is not None:
                    tree.count_headers(archive, LARGEST_HEADER_BYTES - file.room_bytes)
                    file.room_bytes = member.size
                    tree.add(archive, member)
                    file.room_bytes = LARGEST_HEADER_BYTES
                    archive.members.clear()  # each with its headers
            plain.unlink()
        tree.make_links()
    except _DAMAGE as error:
        raise ResolveError(f"a layer is damaged or not a tar archive: {error}") from None


class _Guarded(io.FileIO):
    """A file of which no more than `room_bytes` can be read, until the caller sets that again."""

    room_bytes = LARGEST_HEADER_BYTES

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= self.room_bytes:
            raise tarfile.ReadError(f"it has a header of more than {LARGEST_HEADER_BYTES} bytes")
        self.room_bytes -= size
        return super().read(size)


class _Archive(tarfile.TarFile):
    members: list[tarfile.TarInfo]
    """All that were read so far; type checkers do not know of it."""


class _Tree:
    """The folder that the layers are unpacked into. Symbolic links are collected, each with an empty file in its place,
    and created at the end."""

    def __init__(self, root: Path, limit_bytes: int) -> None:
        self._root = root
        self._left_bytes, self._left_files = limit_bytes, MOST_FILES
        self._left_header_bytes = LARGEST_HEADERS_BYTES
        self._links: dict[tuple[str, ...], str] = {}

    def count_headers(self, archive: tarfile.TarFile, size: int) -> None:
        """Count the headers of the next file, which have `size` bytes."""
        self._left_header_bytes -= size
        if self._left_header_bytes < 0:
            raise ResolveError(f"the headers of the image have more than {LARGEST_HEADERS_BYTES} bytes")
        if len(archive.pax_headers) > MOST_GLOBAL_HEADERS:
            raise ResolveError(f"the image has more than {MOST_GLOBAL_HEADERS} global headers")

    def add(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self._left_files -= 1
        if self._left_files < 0:
            raise ResolveError(f"the image has more than {MOST_FILES} files, which is too many for a step package")
        parts = _parts(member.name)
        if not parts:
            return
        if any(parts[:count] in self._links for count in range(1, len(parts))):
            raise ResolveError(f"the image contains {member.name!r} below a link; such an archive is not unpacked")
        path = self._root.joinpath(*parts)
        if parts[-1] == _EMPTIED:
            self._clear(parts[:-1])
            path.parent.mkdir(parents=True)
            return
        if parts[-1].startswith(_REMOVED):
            if removed := _parts(parts[-1].removeprefix(_REMOVED)):
                self._clear((*parts[:-1], *removed))
            return
        if member.isdir():
            if parts in self._links or not path.is_dir():
                self._clear(parts)
                path.mkdir(parents=True)
            return
        if member.issym():
            self._clear(parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            _check_length(member.linkname)
            path.touch()
            self._links[parts] = member.linkname
            return
        source = archive.extractfile(member) if member.isreg() and not member.issparse() else None
        if source is None and not member.islnk():
            raise ResolveError(f"the image contains {member.name!r}, which is not a file, folder or link")
        linked = _parts(member.linkname) if source is None else ()
        other = self._root.joinpath(*linked) if source is None else None
        if other is not None and (other == path or linked in self._links or not other.is_file()):
            raise ResolveError(f"the image contains {member.name!r} as a hard link to a file that is not in it")
        self._clear(parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        if other is not None:
            os.link(other, path)
        elif source is not None:
            self._write(path, source, member.mode)

    def make_links(self) -> None:
        root = os.path.realpath(self._root)
        for parts, target in self._links.items():
            path = self._root.joinpath(*parts)
            path.unlink()
            path.symlink_to(target)
        for parts, target in self._links.items():
            if not Path(os.path.realpath(self._root.joinpath(*parts))).is_relative_to(root):
                name = "/".join(parts)
                raise ResolveError(f"the image contains the link {name!r}, which leads out of it to {target!r}")

    def _write(self, path: Path, source: IO[bytes], mode: int) -> None:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            while chunk := source.read(_CHUNK):
                self._left_bytes -= len(chunk)
                if self._left_bytes < 0:
                    raise ResolveError("the image's files are too large for a step package")
                file.write(chunk)
            # Steps of other users read the package, and must not change it.
            os.fchmod(file.fileno(), 0o755 if mode & 0o111 else 0o644)

    def _clear(self, parts: tuple[str, ...]) -> None:
        path = self._root.joinpath(*parts)
        if path.is_dir():
            self._forget_links(parts)
            remove_tree(path)
        else:
            self._links.pop(parts, None)
            path.unlink(missing_ok=True)

    def _forget_links(self, parts: tuple[str, ...]) -> None:
        """Forget the links below a folder. Looks at the folder, not at all links: an archive may empty many folders."""
        folders = [parts]
        while folders:
            folder = folders.pop()
            with os.scandir(self._root.joinpath(*folder)) as entries:
                for entry in entries:
                    inside = (*folder, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(inside)
                    else:
                        self._links.pop(inside, None)


def _parts(name: str) -> tuple[str, ...]:
    """Split the path of an archive entry; empty for the root. Raises ResolveError if it leads out of the root, or is
    too long."""
    _check_length(name)
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\0" in name:
        raise ResolveError(f"the image contains {name!r}, which leads out of it; such an archive is not unpacked")
    return pure.parts


def _check_length(path: str) -> None:
    # Before anything else: the work for a path grows with the square of its length.
    encoded = os.fsencode(path[: LONGEST_PATH + 1])
    if len(encoded) > LONGEST_PATH or any(len(name) > LONGEST_NAME for name in encoded.split(b"/")):
        raise ResolveError(f"the image contains the path {path[:100]!r}..., which is too long")
