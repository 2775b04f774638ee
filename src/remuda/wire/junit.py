"""A streaming parser of JUnit reports: bytes in, test cases out. Pure, with bounded memory.

The input is a report as a runner uploads it: gzip, with one member for each file. A job may write anything into it, so
entity declarations are refused, and size, depth, number of elements and names and length of a tag are limited, because
expat and Python keep some memory for each."""

import zlib
from collections.abc import Callable
from xml.parsers import expat

import msgspec

KEPT_CHARACTERS = 16 * 1024
"""Maximum characters of a message; a name may have a sixteenth of it."""
_NAME_CHARACTERS = 1024
_PIECE_BYTES = 256 * 1024
"""Bytes that are unpacked and parsed in one step."""
_PACKED_BYTES = 64 * 1024
"""Bytes that are passed to zlib in one step. zlib copies the unused rest for every member."""
TAG_LIMIT_BYTES = 1024 * 1024
"""Limit for a tag with its attributes, and for a comment. expat keeps an incomplete one in memory, and may parse it
only when twice as many bytes have arrived."""
FILES_LIMIT = 20_000
"""Limit for the files of one report. Empty files count for no other limit and need few bytes."""
NAMES_LIMIT = 20_000
"""Limit for different names of elements and attributes. expat keeps them until the end of the file."""
_GZIP = zlib.MAX_WBITS | 16
_STATUSES = {"failure": "failed", "error": "error", "skipped": "skipped"}


class UnreadableError(Exception):
    """A report cannot be read; the message says why."""


class JunitLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a report. A report beyond a limit is unreadable, and the error names the limit."""

    bytes: int
    """Size of all files of a report together, unpacked."""
    depth: int = 100
    """Nesting depth of elements."""
    elements: int = 1_000_000
    """Number of elements in all files together."""


class TestCase(msgspec.Struct, frozen=True, kw_only=True):
    __test__ = False  # pytest: this is no test class

    status: str
    """success, failed, error or skipped"""
    name: str
    classname: str
    suite: str = ""
    """The innermost named suite that contains the case."""
    file: str | None = None
    line: int | None = None
    seconds: float = 0.0
    output: str | None = None
    """Message (else the type) and text of a case that did not pass; None if the report has neither."""


class JunitReader:
    """Parses the files of one report and calls `take` with every test case; call `feed` for each piece, then `close`.
    Both raise UnreadableError, with a text such as "it is cut off" ("it": the report). `is_packed`: the input is gzip,
    otherwise the XML of one file."""

    def __init__(self, take: Callable[[TestCase], None], *, limits: JunitLimits, is_packed: bool = True) -> None:
        self._take = take
        self._remaining = limits.bytes
        self._limits = limits
        self._elements = self._files = 0
        self._is_packed = is_packed
        self._unpacking = zlib.decompressobj(_GZIP)
        self._is_within_member = False
        self._file: _File | None = None

    @property
    def read_bytes(self) -> int:
        return self._limits.bytes - self._remaining

    def feed(self, data: bytes) -> None:
        """Parse the next bytes of the upload: gzip if `is_packed`, else XML. Passes complete test cases to `take`."""
        if not self._is_packed:
            for start in range(0, len(data), _PIECE_BYTES):
                self._parse(data[start : start + _PIECE_BYTES])
            return
        for start in range(0, len(data), _PACKED_BYTES):
            self._unpack(data[start : start + _PACKED_BYTES])

    def _unpack(self, data: bytes) -> None:
        while data:
            if not self._is_within_member:
                # Zero bytes after a member are padding; no member begins with one.
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._files += 1
                if self._files > FILES_LIMIT:
                    raise UnreadableError(f"it has more than {FILES_LIMIT} files")
                self._unpacking, self._is_within_member = zlib.decompressobj(_GZIP), True
            try:
                text = self._unpacking.decompress(data, _PIECE_BYTES)
            except zlib.error as error:
                raise UnreadableError(f"it is damaged: {error}") from None
            self._parse(text)
            data = self._unpacking.unconsumed_tail
            if self._unpacking.eof:
                data = self._unpacking.unused_data
                self._is_within_member = False
                self._end_file()

    def close(self) -> None:
        if self._is_within_member:
            raise UnreadableError("it is cut off")
        self._end_file()

    def _parse(self, text: bytes) -> None:
        self._remaining -= len(text)
        if self._remaining < 0:
            raise UnreadableError(f"it is larger than {_size(self._limits.bytes)}")
        if self._file is None:
            text = text.lstrip()
            if not text:
                return
            self._file = _File(self._take, self._limits, self._elements)
        self._file.parse(text)

    def _end_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.parse(b"", is_last=True)
            self._elements = file.elements


class _File:
    def __init__(self, take: Callable[[TestCase], None], limits: JunitLimits, elements: int) -> None:
        self.elements = elements
        self._take = take
        self._limits = limits
        self._depth = 0
        self._parsed_bytes = 0
        self._names: dict[str, str] = {}
        self._suites: list[str] = []
        self._case: dict[str, str] | None = None
        self._status = "success"
        self._output = ""
        self._text: list[str] | None = None
        self._length = 0
        self._parser = expat.ParserCreate(intern=self._names)
        self._parser.buffer_text = True
        self._parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = _refuse
        self._parser.ExternalEntityRefHandler = _refuse

    def parse(self, text: bytes, *, is_last: bool = False) -> None:
        try:
            self._parser.Parse(text, is_last)
        except expat.ExpatError as error:
            raise UnreadableError(f"it is not valid XML: {error}") from None
        except (ValueError, LookupError) as error:
            raise UnreadableError(f"its encoding is not known: {error}") from None
        self._parsed_bytes += len(text)
        if self._parsed_bytes - self._parser.CurrentByteIndex > 2 * TAG_LIMIT_BYTES + _PIECE_BYTES:
            raise UnreadableError(f"it has a tag or comment larger than {_size(TAG_LIMIT_BYTES)}")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self.elements += 1
        if self._depth > self._limits.depth:
            raise UnreadableError(f"its elements are nested deeper than {self._limits.depth} levels")
        if self.elements > self._limits.elements:
            raise UnreadableError(f"it has more than {self._limits.elements} elements")
        if len(self._names) > NAMES_LIMIT:
            raise UnreadableError(f"it has more than {NAMES_LIMIT} different names of elements and attributes")
        if tag == "testsuite":
            self._suites.append(attributes.get("name", "")[:_NAME_CHARACTERS])
        elif tag == "testcase":
            self._case, self._status, self._output = attributes, "success", ""
        elif self._case is not None and self._status == "success" and tag in _STATUSES:
            self._status = _STATUSES[tag]
            self._output = attributes.get("message") or attributes.get("type") or ""
            self._text, self._length = [], 0

    def _characters(self, text: str) -> None:
        if self._text is not None and self._length < KEPT_CHARACTERS:
            self._text.append(text)
            self._length += len(text)

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if tag == "testsuite":
            del self._suites[-1:]
        elif tag == "testcase":
            self._finish()
        elif self._text is not None and tag in _STATUSES:
            text = "".join(self._text).strip()
            # If the text contains the message, the message is not repeated.
            self._output = text if self._output.strip() in text else f"{self._output}\n{text}".strip()
            self._text = None

    def _finish(self) -> None:
        case, self._case = self._case or {}, None
        self._take(
            TestCase(
                status=self._status,
                name=case.get("name", "")[:_NAME_CHARACTERS],
                classname=case.get("classname", "")[:_NAME_CHARACTERS],
                suite=next((name for name in reversed(self._suites) if name), ""),
                file=case["file"][:_NAME_CHARACTERS] if case.get("file") else None,
                line=_line(case.get("line", "")),
                seconds=_seconds(case.get("time", "")),
                output=self._output[:KEPT_CHARACTERS] or None,
            )
        )


def _refuse(*_details: object) -> int:
    raise UnreadableError("it declares entities, which a report has no use for")


def _seconds(text: str) -> float:
    """Parse a time in seconds. Some test frameworks write a comma between thousands."""
    try:
        seconds = float(text.replace(",", ""))
    except ValueError:
        return 0.0
    return seconds if 0 <= seconds < 1e9 else 0.0


def _line(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _size(count: int) -> str:
    return f"{count} bytes" if count % (1 << 20) else f"{count >> 20} MiB"
