"""Decompresses an image layer: gzip, zstd, or plain, recognized by its first bytes.

Python has zstd from 3.14 on. Before that the library of zstd is used, or else the machine's program `zstd`; the frozen
agent brings the library (decision 0029). Layers are hostile input: what is unpacked is limited by the caller, and the
memory of the decoder by `WINDOW_LOG`."""

import ctypes
import gzip
import importlib
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from remuda.steps.process.marks import start_unmarked
from remuda.steps.resolving.errors import ResolveError, TemporaryResolveError

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
LIBRARY = "libzstd.so.1"
LIBRARIES = (LIBRARY, "libzstd.1.dylib")
WINDOW_LOG = 27
"""A decoder of zstd keeps at most 2 to this power of bytes (128 MiB), as much as zstd itself allows by default."""
_WINDOW_LOG_PARAMETER = 100
_CHUNK = 256 * 1024


def unpack(source: Path, target: Path, *, limit_bytes: int, used_bytes: int = 0) -> None:
    """Decompress a layer to the file `target`. Raises ResolveError if it is damaged, or if with `used_bytes`, those of
    earlier layers, it has more than `limit_bytes`."""
    room = limit_bytes - used_bytes
    with source.open("rb", buffering=0) as packed, target.open("wb") as plain:
        magic = packed.read(4)
        packed.seek(0)
        try:
            for chunk in _chunks(packed, magic):
                room -= len(chunk)
                if room < 0:
                    raise ResolveError(
                        f"the layers have more than {limit_bytes} bytes when unpacked, which is too much"
                    )
                plain.write(chunk)
        except (gzip.BadGzipFile, EOFError, zlib.error, ValueError) as error:
            raise ResolveError(f"a layer is damaged: {error}") from None


def _chunks(packed: FileIO, magic: bytes) -> Iterator[bytes]:
    if magic.startswith(GZIP):
        return _read(gzip.GzipFile(fileobj=packed))
    if magic != ZSTD:
        return _read(packed)
    if sys.version_info >= (3, 14):
        library = importlib.import_module("compression.zstd")
        options = {library.DecompressionParameter.window_log_max: WINDOW_LOG}
        return _read_zstd(library.ZstdFile(packed, options=options), library.ZstdError)
    for name in (*_find_bundled(), *LIBRARIES):
        try:
            return _by_library(ctypes.CDLL(name), packed)
        except OSError:
            continue
    program = shutil.which("zstd")
    if program is None:
        raise TemporaryResolveError(
            "the image's layers are packed with zstd, and this machine cannot unpack that; install the package zstd "
            "(or libzstd1), or pack the step's image with gzip",
            is_away=False,
        )
    return _by_program(program, packed)


def _find_bundled() -> tuple[str, ...]:
    """Return the path of the library in a frozen program, which has its files in a folder while it runs."""
    folder = getattr(sys, "_MEIPASS", "")
    return (f"{folder}/{LIBRARY}",) if folder else ()


def _read_zstd(file: FileIO, error_class: type[Exception]) -> Iterator[bytes]:
    try:
        yield from _read(file)
    except error_class as error:
        raise ValueError(str(error)) from None


def _read(file: FileIO | gzip.GzipFile) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


class _Buffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("position", ctypes.c_size_t))


def _by_library(library: ctypes.CDLL, packed: FileIO) -> Iterator[bytes]:
    library.ZSTD_createDStream.restype = ctypes.c_void_p
    library.ZSTD_decompressStream.restype = ctypes.c_size_t
    library.ZSTD_decompressStream.argtypes = (ctypes.c_void_p, ctypes.POINTER(_Buffer), ctypes.POINTER(_Buffer))
    library.ZSTD_freeDStream.argtypes = (ctypes.c_void_p,)
    library.ZSTD_DCtx_setParameter.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    library.ZSTD_isError.argtypes = library.ZSTD_getErrorName.argtypes = (ctypes.c_size_t,)
    library.ZSTD_getErrorName.restype = ctypes.c_char_p
    room = ctypes.create_string_buffer(_CHUNK)
    stream = library.ZSTD_createDStream()
    if not stream:
        raise MemoryError
    library.ZSTD_DCtx_setParameter(stream, _WINDOW_LOG_PARAMETER, WINDOW_LOG)
    missing = 0
    try:
        while data := packed.read(_CHUNK):
            source = ctypes.c_char_p(data)
            packed_buffer = _Buffer(ctypes.cast(source, ctypes.c_void_p), len(data), 0)
            is_full = True
            while packed_buffer.position < packed_buffer.size or is_full:
                plain_buffer = _Buffer(ctypes.cast(room, ctypes.c_void_p), _CHUNK, 0)
                missing = library.ZSTD_decompressStream(stream, plain_buffer, packed_buffer)
                if library.ZSTD_isError(missing):
                    raise ValueError(library.ZSTD_getErrorName(missing).decode())
                yield room.raw[: plain_buffer.position]
                # A full buffer may leave more inside the library.
                is_full = plain_buffer.position == _CHUNK and missing != 0
        if missing:
            raise ValueError("its end is missing")
    finally:
        library.ZSTD_freeDStream(stream)


def _by_program(program: str, packed: FileIO) -> Iterator[bytes]:
    words = [program, "-dcq", f"--memory={2**WINDOW_LOG}"]
    with start_unmarked(words, stdin=packed, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            while chunk := process.stdout.read(_CHUNK):
                yield chunk
        except BaseException:
            process.kill()
            raise
        text = process.stderr.read().decode(errors="replace").strip()
    if process.returncode:
        raise ValueError(text or "zstd gave no reason")
