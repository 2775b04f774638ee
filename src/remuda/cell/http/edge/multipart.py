"""Multipart bodies: the part named `file` as a stream, or the fields of a form; other parts are ignored.

python-multipart reports parsed bytes to callbacks; here they become an iterator, so that the bytes go to the blob store
as they arrive. Invariant: the iterator ends normally only after the last boundary; a truncated body raises ApiError
400."""

import re
from collections.abc import AsyncIterator

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, FormParser, MultipartParser, parse_options_header

from remuda.cell.errors import TooLargeError
from remuda.cell.http.edge.errors import bad_request

OVERHEAD_BYTES = 1024 * 1024
"""Limit for boundaries, headers and other parts besides the file."""


class FilePart:
    def __init__(self, content_type: str, *, limit_bytes: int) -> None:
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not boundary:
            raise bad_request("the body must be multipart/form-data with one part named file")
        self.filename = ""
        self._limit_bytes = limit_bytes
        self._file_pieces: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self._field = self._value = b""
        self._in_file = self._ended = False
        self._files = 0
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._on_part_begin,
                    "on_header_field": self._on_header_field,
                    "on_header_value": self._on_header_value,
                    "on_header_end": self._on_header_end,
                    "on_headers_finished": self._on_headers_finished,
                    "on_part_data": self._on_part_data,
                    "on_end": self._on_end,
                },
            )
        except FormParserError as error:
            raise bad_request(f"the multipart body cannot be read: {error}") from None

    async def pieces(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the bytes of the part named `file` as they arrive. Raises TooLargeError if the body is longer than
        `limit_bytes` plus OVERHEAD_BYTES, ApiError 400 if it is not valid or does not have exactly one such part."""
        size = 0
        async for piece in body:
            size += len(piece)
            if size > self._limit_bytes + OVERHEAD_BYTES:
                raise TooLargeError(f"the limit is {self._limit_bytes} bytes")
            try:
                self._parser.write(piece)
            except FormParserError as error:
                raise bad_request(f"the multipart body cannot be read: {error}") from None
            if self._files > 1:
                raise bad_request("the body has more than one part named file")
            parts, self._file_pieces = self._file_pieces, []
            for part in parts:
                yield part
        if not self._ended:
            raise bad_request("the multipart body is truncated")
        if not self._files:
            raise bad_request("the body has no part named file")

    def _on_part_begin(self) -> None:
        self._headers = {}
        self._in_file = False

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers[self._field.lower()] = self._value
        self._field = self._value = b""

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._in_file = options.get(b"name") == b"file"
        if self._in_file:
            self._files += 1
            self.filename = safe_name(options.get(b"filename", b"").decode("utf-8", "replace"))

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._file_pieces.append(data[start:end])

    def _on_end(self) -> None:
        self._ended = True


def form_fields(raw: bytes, content_type: str, *, limit: int) -> list[tuple[str, str]]:
    """Names and values of the fields of a multipart form; ApiError 400 if malformed or more than `limit` fields."""
    fields: list[tuple[str, str]] = []

    def add_field(field: Field) -> None:
        if len(fields) >= limit:
            raise bad_request(f"the form has more than {limit} fields")
        fields.append(((field.field_name or b"").decode(), (field.value or b"").decode()))

    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    try:
        form = FormParser(
            "multipart/form-data",
            add_field,
            lambda file: None,
            boundary=boundary,
            config={"MAX_MEMORY_FILE_SIZE": len(raw) + 1},
        )
        form.write(raw)
        form.finalize()
    except (FormParserError, UnicodeDecodeError) as error:
        raise bad_request(f"the multipart body cannot be read: {error}") from None
    return fields


def safe_name(name: str) -> str:
    """Last part of a file's path, up to 255 characters, without quotes and control characters, for HTTP headers."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    return re.sub(r'[\x00-\x1f\x7f"]', "", last)[:255]
