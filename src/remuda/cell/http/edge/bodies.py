"""Reads requests: bytes up to a limit, and parameters (query, JSON or form, as in GitLab) as a typed value. Every
endpoint reads through this module, so no caller can make the cell hold an unbounded request in memory."""

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from remuda.cell.http.edge.errors import ClientGoneError, bad_field, bad_parameter, bad_request, too_large, too_slow
from remuda.cell.http.edge.multipart import form_fields
from remuda.cell.http.edge.unsupported_fields import find_ignored
from remuda.lib.clock import Clock, parse_shown_time

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

SLOWEST_BYTES_PER_SECOND = 1024
"""A body that comes more slowly than this is answered with 408, after the time allowed for silence."""
_DECODE_IN_THREAD_BYTES = 256 * 1024
_MAX_FORM_FIELDS = 1000
MAX_DIGITS = 18
_MAX_NUMBER = 10**MAX_DIGITS - 1
MAX_DEPTH = 100
"""How deep JSON objects and lists may be nested."""
_MISSING = re.compile(r"missing required field `([^`]+)`")
_AT = re.compile(r"at `\$\.?([^`]*)`")
_INDEX = re.compile(r"\[[0-9.]*\]")
_KEY_PART = re.compile(r"\[([^\]]*)\]")


def limit_silence(receive: Receive, seconds: float, clock: Clock) -> Receive:
    """Wrap `receive`, which reads the body, to raise ApiError 408 if the client sends nothing for `seconds`, or on
    average less than SLOWEST_BYTES_PER_SECOND. Returns `receive` itself if uvicorn already has the whole body."""
    cycle = getattr(receive, "__self__", None)
    return _BodyTimer(receive, seconds, clock).receive if getattr(cycle, "more_body", True) else receive


class _BodyTimer:
    """Wraps `receive` to raise ApiError 408 if a body arrives too slowly. Only time spent waiting for the client
    counts; after the body there is no limit, because `receive` then waits for the client to disconnect."""

    def __init__(self, receive: Receive, seconds: float, clock: Clock) -> None:
        self._receive = receive
        self._seconds = seconds
        self._clock = clock
        self._is_whole = False
        self._waited, self._heard = 0.0, 0

    @property
    def disconnected(self) -> bool:
        return _has_hung_up(self._receive)

    async def receive(self) -> Message:
        if self._is_whole:
            return await self._receive()
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._seconds):
                message = await self._receive()
        except TimeoutError:
            raise too_slow(f"no part of the body arrived for {self._seconds:g} seconds") from None
        self._is_whole = not message.get("more_body", False)
        self._waited += self._clock.monotonic() - began
        self._heard += len(message.get("body", b""))
        if not self._is_whole and self._waited > self._seconds + self._heard / SLOWEST_BYTES_PER_SECOND:
            raise too_slow(f"the body arrives at less than {SLOWEST_BYTES_PER_SECOND} bytes a second")
        return message


def _has_hung_up(receive: Receive) -> bool:
    return bool(getattr(getattr(receive, "__self__", None), "disconnected", False))


class HangUp:
    """Tells whether the client has disconnected, or waits for that. Read the body first: `wait` discards data."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive

    def is_set(self) -> bool:
        return _has_hung_up(self._receive)

    async def wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


class Body:
    """The body of a request, read from ASGI's `receive`. It can be read only once."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ended = False
        self.hang_up = HangUp(receive)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces as it arrives. Raises ClientGoneError if the client disconnects before its end."""
        while not self._ended:
            if piece := await self._piece():
                yield piece

    async def read(self, limit_bytes: int) -> bytes:
        """Read the whole body. Raises ApiError 413 above `limit_bytes`, ClientGoneError if the client disconnects."""
        pieces, size = [], 0
        while not self._ended:
            pieces.append(await self._piece())
            size += len(pieces[-1])
            if size > limit_bytes:
                raise too_large(f"the limit for this request is {limit_bytes} bytes")
        return b"".join(pieces)

    async def _piece(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        self._ended = not message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece


def first_headers(scope: Scope) -> dict[bytes, bytes]:
    """The headers of a request by lower-case name. If a header is repeated, its first value is used."""
    return dict(reversed(scope["headers"]))


def decode_fast(raw: bytes, scope: Scope, content_type: bytes, decoder: msgspec.json.Decoder[T], kind: type[T]) -> T:
    """Decode the parameters in `raw` (the body) and the query as a `kind`. Raises ApiError 400 if they are not valid.
    Without a query, the JSON decoder `decoder` is tried first: four times as fast for the JSON of runners."""
    if not scope["query_string"]:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return decoder.decode(raw)
    return decode(raw, content_type.decode("latin-1"), scope["query_string"], kind)


async def parameters(request: Request, kind: type[T], *, limit_bytes: int) -> T:
    """Read the parameters (body, query) as a `kind`. Raises ApiError 400 if not valid, 413 if above `limit_bytes`. The
    names of unsupported ones are then in `request.state.ignored` (see `unsupported_fields`)."""
    raw = await Body(request.receive).read(limit_bytes)
    if len(raw) > _DECODE_IN_THREAD_BYTES:
        return await asyncio.to_thread(decode_request, raw, request, kind)
    return decode_request(raw, request, kind)


def decode_request(raw: bytes, request: Request, kind: type[T]) -> T:
    """Decode the parameters of a request, of which `raw` is the body, and note those that are not supported."""
    content_type, query = request.headers.get("content-type", ""), request.scope["query_string"]
    values = decode(raw, content_type, query, dict[str, Any])
    params = convert(values, kind)
    if name := find_nul(params):
        raise bad_field(name, "must not contain a NUL character")
    request.state.ignored = find_ignored(values, kind, {*request.path_params, *getattr(request.state, "query", ())})
    return params


def decode(raw: bytes, content_type: str, query: bytes, kind: type[T]) -> T:
    """Decode the parameters in a body (form, multipart form or JSON) and a query as a value of type `kind`. If a
    parameter is in both, the value in the body is used. Raises ApiError 400 if they are not valid."""
    values: dict[str, Any] = unfold(_pairs(query)) if query else {}
    if content_type.startswith("application/x-www-form-urlencoded"):
        values |= unfold(_pairs(raw))
    elif content_type.startswith("multipart/form-data"):
        values |= unfold(form_fields(raw, content_type, limit=_MAX_FORM_FIELDS))
    elif raw.strip():
        values |= _json_object(raw)
    return convert(values, kind)


def convert(values: dict[str, Any], kind: type[T]) -> T:
    """Convert a request's parameters to `kind`. Raises ApiError 400, worded as in GitLab, about the first bad one."""
    try:
        parameters = msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise bad_parameter(_describe_problem(str(error))) from None
    if isinstance(parameters, msgspec.Struct):
        _check_numbers(parameters)
    return parameters


def choice_in_query(request: Request, name: str, valid: Collection[str], default: str = "") -> str:
    """The query parameter `name`, or `default` if missing or empty. Raises ApiError 400 if it is not in `valid`."""
    value = request.query_params.get(name) or default
    if value and value not in valid:
        raise bad_parameter(f"{name} does not have a valid value")
    return value


def number_in_query(request: Request, name: str) -> int | None:
    """Query parameter `name` as a number; None if missing or empty. Raises ApiError 400 if it is not a number."""
    text = request.query_params.get(name, "")
    if text and not is_number(text):
        raise bad_parameter(f"{name} is invalid")
    return int(text) if text else None


def time_in_query(request: Request, name: str) -> float | None:
    """The query parameter `name`, an ISO 8601 time (UTC if it has no time zone), as seconds since the epoch; None if it
    is missing or empty. Raises ApiError 400 if it is not a time."""
    text = request.query_params.get(name, "")
    return read_time(name, text) if text else None


def read_time(name: str, text: str) -> float:
    """The value of the parameter `name`, an ISO 8601 time (UTC if it has no time zone), as seconds since the epoch.
    Raises ApiError 400 if it is not a time."""
    try:
        return parse_shown_time(text)
    except ValueError:
        raise bad_parameter(f"{name} is invalid: expected a time such as 2026-01-31T08:00:00Z") from None


def flag_in_query(request: Request, name: str) -> bool:
    """True if the query parameter `name` is `true` or `1`; False if it has any other value or is missing."""
    return request.query_params.get(name, "").lower() in ("true", "1")


def is_number(text: str) -> bool:
    """True for text of at most MAX_DIGITS digits: such a number fits into an integer column of every database."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def with_given(old: S, /, **fields: Any) -> S:
    """A copy of `old` with these fields changed; None: the field was not in the request and keeps its value."""
    return msgspec.structs.replace(old, **{name: field for name, field in fields.items() if field is not None})


def find_nul(value: object, name: str = "") -> str:
    """Return the name of the first parameter below `value` with a NUL character, which no database but SQLite stores,
    such as `tag_list[0]`; empty if there is none. Parameters in the class variable `with_nul` are not looked at."""
    match value:
        case str():
            return name if "\0" in value else ""
        case msgspec.Struct():
            # A token with a NUL is answered as any other invalid token.
            skipped = (*getattr(value, "with_nul", ()), "token")
            names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
            entries: Iterable[tuple[object, object]] = (
                (shown, getattr(value, field)) for field, shown in names if field not in skipped
            )
        case dict():
            if any("\0" in key for key in value if isinstance(key, str)):
                return name
            entries = value.items()
        case list() | tuple():
            entries = enumerate(value)
        case _:
            return ""
    return next(filter(None, (find_nul(entry, f"{name}[{key}]" if name else str(key)) for key, entry in entries)), "")


def _check_numbers(parameters: msgspec.Struct) -> None:
    """Raise ApiError 400 for a number of more than MAX_DIGITS digits: the database could not store it."""
    for name in parameters.__struct_fields__:
        value = getattr(parameters, name)
        if isinstance(value, int) and not -_MAX_NUMBER <= value <= _MAX_NUMBER:
            raise bad_parameter(f"{name} is invalid: a number has at most 18 digits")


def _json_object(raw: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from None
    if value is None:  # GitLab's Go client sends this if there are no parameters.
        return {}
    if not isinstance(value, dict):
        raise bad_request("the body is not a JSON object")
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise bad_request(f"the body is nested more than {MAX_DEPTH} levels deep")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    """True if decoded JSON is nested deeper than `levels`. Not recursive, because the value can be very deep."""
    level = [value]
    for _ in range(levels):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=_MAX_FORM_FIELDS)
    except ValueError:
        raise bad_request("the form or query cannot be read") from None


def unfold(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Turn form fields such as `a`, `a[]`, `a[b]` and `a[][b]` into nested dicts and lists. A field that the last entry
    of `a[][b]` already has begins a new entry; in `a[0][b]`, which some clients write, the number tells the entry."""
    values: dict[str, Any] = {}
    numbered: dict[tuple[str, str], dict[str, str]] = {}
    for name, value in pairs:
        key, *rest = name.partition("[")[0], *_KEY_PART.findall(name)
        match rest:
            case []:
                values[key] = value
            case [""]:
                _list(values, key).append(value)
            case ["", field]:
                entries = _list(values, key)
                if not entries or not isinstance(entries[-1], dict) or field in entries[-1]:
                    entries.append({})
                entries[-1][field] = value
            case [number, field] if number.isdecimal():
                if (key, number) not in numbered:
                    numbered[key, number] = {}
                    _list(values, key).append(numbered[key, number])
                numbered[key, number][field] = value
            case [field]:
                inner = values.setdefault(key, {})
                if isinstance(inner, dict):
                    inner[field] = value
    return values


def _list(values: dict[str, Any], key: str) -> list[Any]:
    value = values.setdefault(key, [])
    if not isinstance(value, list):
        value = values[key] = []
    return value


def _describe_problem(problem: str) -> str:
    missing, place = _MISSING.search(problem), _AT.search(problem)
    field = re.sub(r"\.(\w+)", r"[\1]", _INDEX.sub("", place[1])) if place else ""
    if missing:
        return f"{field}[{missing[1]}] is missing" if field else f"{missing[1]} is missing"
    return f"{field} is invalid" if field else "the parameters are invalid"
