"""Writes the layers of a function's image: tar archives packed with zstd, or with gzip on a machine without libzstd.

Files have no owner and no time, so that the same files give the same layer. Sources cannot lead out of the working
directory, also not through links."""

import ctypes
import gzip
import hashlib
import importlib
import os
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from remuda.lib.dataclass import dataclass
from remuda.lib.safe_paths import open_inside
from remuda.stdsteps.common.errors import StepError

ZSTD_LAYER = "application/vnd.gitlab.step.layer.v1.tar+zstd"
GZIP_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
LIBRARIES = ("libzstd.so.1", "libzstd.1.dylib")
MOST_FILES = 100_000
_FRAME_BYTES = 4 * 1024 * 1024
_LEVEL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    file: Path
    media_type: str
    digest: str
    size: int
    plain_digest: str
    """Digest of the tar archive before it was packed."""


def write_layer(root: Path, files: Mapping[str, str], file: Path) -> Layer:
    """Write a layer to `file`. `files` maps paths in the image to files and folders below `root`. Raises StepError if
    one of them does not exist or leads out of `root`, or if a path leads out of the image."""
    plain = file.with_name(f"{file.name}.tar")
    with tarfile.open(plain, "w", format=tarfile.GNU_FORMAT) as archive:
        entries = sorted(_find_entries(root, files))
        if len(entries) > MOST_FILES:
            raise StepError(f"the image has more than {MOST_FILES} files")
        for target, source in entries:
            _add(archive, root, target, source)
    compress = find_zstd()
    with plain.open("rb") as tar, file.open("wb") as packed:
        if compress is not None:
            while data := tar.read(_FRAME_BYTES):
                packed.write(compress(data))
        else:
            with gzip.GzipFile("", "wb", fileobj=packed, mtime=0) as writer:
                while data := tar.read(_FRAME_BYTES):
                    writer.write(data)
    layer = Layer(
        file=file,
        media_type=ZSTD_LAYER if compress is not None else GZIP_LAYER,
        digest=_digest(file),
        size=file.stat().st_size,
        plain_digest=_digest(plain),
    )
    plain.unlink()
    return layer


def find_zstd() -> Callable[[bytes], bytes] | None:
    """Return a function that packs bytes into one zstd frame; None if this machine has none. Frames can be joined."""
    if sys.version_info >= (3, 14):
        pack: Callable[[bytes], bytes] = importlib.import_module("compression.zstd").compress
        return pack
    for name in LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.ZSTD_compressBound.restype = library.ZSTD_compress.restype = ctypes.c_size_t
        library.ZSTD_compressBound.argtypes = library.ZSTD_isError.argtypes = (ctypes.c_size_t,)
        library.ZSTD_compress.argtypes = (
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_int,
        )

        def compress(data: bytes, library: ctypes.CDLL = library) -> bytes:
            room = ctypes.create_string_buffer(library.ZSTD_compressBound(len(data)))
            size = library.ZSTD_compress(room, len(room), data, len(data), _LEVEL)
            if library.ZSTD_isError(size):
                raise MemoryError("zstd cannot pack the layer")
            return room.raw[:size]

        return compress
    return None


def _find_entries(root: Path, files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the path in the image and the source below `root` of each file, link and empty folder."""
    for target, source in files.items():
        inside = PurePosixPath("/", target)
        if ".." in inside.parts or "\0" in target:
            raise StepError(f"files: {target!r} leads out of the image")
        top = os.path.relpath(root / source, root)
        if not os.path.lexists(root / top):
            raise StepError(f"files: {source!r} does not exist; paths are relative to the working directory")
        if not _is_inside(root, root / top):
            raise StepError(f"files: {source!r} is not in the working directory")
        name = str(inside)[1:]
        if (root / top).is_dir():
            yield from _find_below(root, top, name)
        elif not name:
            raise StepError(f"files: {source!r} needs a name in the image")
        else:
            yield name, os.path.relpath(os.path.realpath(root / top), os.path.realpath(root))


def _find_below(root: Path, top: str, name: str) -> Iterator[tuple[str, str]]:
    for folder, folders, names in os.walk(root / top):
        below = PurePosixPath(name, os.path.relpath(folder, root / top))
        links = [each for each in folders if os.path.islink(os.path.join(folder, each))]
        for each in (*names, *links):
            path = Path(folder, each)
            if path.is_symlink() and (os.path.isabs(os.readlink(path)) or not _is_inside(root / top, path)):
                raise StepError(f"files: the link {os.path.relpath(path, root)!r} leads out of its folder, or nowhere")
            yield str(below / each), os.path.relpath(path, root)
        if not names and not folders and below != PurePosixPath("."):
            yield str(below), os.path.relpath(folder, root)


def _is_inside(root: Path, path: Path) -> bool:
    return path.exists() and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _add(archive: tarfile.TarFile, root: Path, target: str, source: str) -> None:
    entry = tarfile.TarInfo(target)
    entry.mode = 0o755
    path = root / source
    if path.is_symlink():
        entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
        archive.addfile(entry)
    elif path.is_dir():
        entry.type = tarfile.DIRTYPE
        archive.addfile(entry)
    else:
        with open(open_inside(root, source), "rb") as file:
            status = os.fstat(file.fileno())
            entry.mode = 0o755 if status.st_mode & 0o111 else 0o644
            entry.size = status.st_size
            archive.addfile(entry, file)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
