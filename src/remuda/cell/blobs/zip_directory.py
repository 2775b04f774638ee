"""Reads the central directory of a zip archive entry by entry: `zipfile` keeps about a kilobyte in memory for each.

Finds the directory as `zipfile` does: also if a comment follows it, if other data precedes the archive, or in a zip64
archive. All functions block. Invariant: sizes and offsets in an archive are checked before they are used; impossible
ones raise BadZipFile."""

import struct
from collections.abc import Iterator
from typing import BinaryIO
from zipfile import BadZipFile

import msgspec

DIRECTORY_LIMIT_BYTES = 256 * 1024 * 1024
"""A longer directory is refused."""
_PIECE_BYTES = 1024 * 1024
_END = struct.Struct("<4s4H2LH")
_END64_PLACE = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL_BYTES, _LOCAL_LENGTHS_AT = 30, 26
_LONGEST_COMMENT = 0xFFFF
_ZIP64 = 0x0001
_UTF8 = 0x800


class ZipEntry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    raw_name: bytes
    flags: int
    method: int
    crc: int
    packed_size: int
    size: int
    mode: int
    at: int
    """The offset of the entry's local header in the file."""

    @property
    def is_folder(self) -> bool:
        return self.name.endswith("/")


def scan_directory(file: BinaryIO, *, limit_entries: int) -> Iterator[ZipEntry]:
    """Yield the entries of an archive in the order of its directory. Raises BadZipFile if the directory is damaged, too
    large or has more than `limit_entries`."""
    start, size, shift = _find_directory(file)
    if size > DIRECTORY_LIMIT_BYTES:
        raise BadZipFile(f"its directory is larger than {DIRECTORY_LIMIT_BYTES} bytes; download the whole archive")
    file.seek(start)
    window = _Window(file, size)
    count = 0
    while window.remaining:
        count += 1
        if count > limit_entries:
            raise BadZipFile(f"it has more than {limit_entries} entries; download the whole archive")
        yield _read_entry(window, shift)


def find_data(file: BinaryIO, entry: ZipEntry) -> int:
    """Return the offset of an entry's packed bytes. Raises BadZipFile if the entry is not where the archive says."""
    file.seek(entry.at)
    head = _read(file, _LOCAL_BYTES)
    signature: bytes = head[:4]
    name_length, extra_length = struct.unpack_from("<HH", head, _LOCAL_LENGTHS_AT)
    if signature != b"PK\3\4" or _read(file, name_length) != entry.raw_name:
        raise BadZipFile(f"there is no entry {entry.name!r} where its directory says")
    return entry.at + _LOCAL_BYTES + int(name_length) + int(extra_length)


def _read(file: BinaryIO, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = file.read(size - len(data))
        if not piece:
            raise BadZipFile("it ends too early")
        data += piece
    return data


def _find_directory(file: BinaryIO) -> tuple[int, int, int]:
    """Return the offset and the size of the central directory, and how many bytes of other data precede the archive."""
    length = file.seek(0, 2)
    tail_at = max(length - _END.size - _LONGEST_COMMENT, 0)
    file.seek(tail_at)
    tail = _read(file, length - tail_at)
    end_record = len(tail) - _END.size
    if end_record < 0:
        raise BadZipFile("it is no zip archive")
    if not (tail.startswith(b"PK\5\6", end_record) and tail.endswith(b"\0\0")):
        end_record = tail.rfind(b"PK\5\6")
        if not 0 <= end_record <= len(tail) - _END.size:
            raise BadZipFile("it is no zip archive")
    _, _, _, _, _, size, offset, _ = _END.unpack_from(tail, end_record)
    end = tail_at + end_record
    if end >= _END64_PLACE.size + _END64.size:
        file.seek(end - _END64_PLACE.size - _END64.size)
        record = _read(file, _END64.size + _END64_PLACE.size)
        if record.startswith(b"PK\6\7", _END64.size) and record.startswith(b"PK\6\6"):
            *_, size, offset = _END64.unpack_from(record)
            end -= _END64_PLACE.size + _END64.size
    shift = end - size - offset
    if shift < 0:
        raise BadZipFile("its directory does not fit into it")
    return end - size, size, shift


class _Window:
    """Reads the central directory from its start to its end, with only a small part of it in memory."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._unread = size
        self._piece = b""
        self._at = 0

    @property
    def remaining(self) -> int:
        return self._unread + len(self._piece) - self._at

    def take(self, size: int) -> bytes:
        if len(self._piece) - self._at < size:
            more = min(self._unread, max(_PIECE_BYTES, size))
            self._piece = self._piece[self._at :] + _read(self._file, more)
            self._unread -= more
            self._at = 0
            if len(self._piece) < size:
                raise BadZipFile("its directory is cut off")
        self._at += size
        return self._piece[self._at - size : self._at]


def _read_entry(window: _Window, shift: int) -> ZipEntry:
    head = _ENTRY.unpack(window.take(_ENTRY.size))
    signature, _, _, flags, method, _, _, crc, packed_size, size, *lengths, _, _, attributes, offset = head
    if signature != b"PK\1\2":
        raise BadZipFile("its directory is damaged")
    name_length, extra_length, comment_length = lengths
    rest = window.take(name_length + extra_length + comment_length)
    raw_name = rest[:name_length]
    if 0xFFFFFFFF in (packed_size, size, offset):
        extra = rest[name_length : name_length + extra_length]
        size, packed_size, offset = _read_zip64(extra, size, packed_size, offset)
    try:
        name = raw_name.decode("utf-8" if flags & _UTF8 else "cp437")
    except UnicodeDecodeError:
        raise BadZipFile("a name in its directory is not UTF-8") from None
    return ZipEntry(
        name=name.partition("\0")[0],
        raw_name=raw_name,
        flags=flags,
        method=method,
        crc=crc,
        packed_size=packed_size,
        size=size,
        mode=attributes >> 16,
        at=offset + shift,
    )


def _read_zip64(extra: bytes, *values: int) -> list[int]:
    """Return `values`, sizes and offsets of an entry. A value of 0xFFFFFFFF means that the number does not fit into
    four bytes; it is replaced by the number in the zip64 field of `extra`. Raises BadZipFile if that field has too few
    numbers."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, position)
        if kind == _ZIP64:
            field = extra[position + 4 : position + 4 + length]
            numbers = iter(struct.unpack(f"<{len(field) // 8}Q", field[: len(field) // 8 * 8]))
            try:
                return [next(numbers) if value == 0xFFFFFFFF else value for value in values]
            except StopIteration:
                raise BadZipFile("an entry of its directory lacks its size") from None
        position += 4 + length
    return list(values)
