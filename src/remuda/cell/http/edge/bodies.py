"""What a caller sends: bytes with a limit, parameters as a typed value.

Decided here: how far a body is read, and that parameters may stand in the query, in JSON or in a form, as in GitLab.
Every endpoint reads through this module, so none can be made to hold an unbounded request in memory.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from remuda.cell.http.edge.errors import ClientGoneError, bad_parameter, bad_request, too_large, too_slow
from remuda.cell.http.edge.multipart import form_fields
from remuda.lib.clock import Clock

T = TypeVar("T")

SLOWEST_BYTES_PER_SECOND = 1024
"""A body that comes more slowly is given up, once it has been waited for as long as for a silent one."""
_DECODE_IN_THREAD_BYTES = 256 * 1024
_MAX_FORM_FIELDS = 1000
_MAX_NUMBER = 10**18 - 1
MAX_DEPTH = 100
"""How often JSON objects and lists may stand in each other."""
_MISSING = re.compile(r"missing required field `([^`]+)`")
_AT = re.compile(r"at `\$\.?([^`]*)`")
_INDEX = re.compile(r"\[[0-9.]*\]")
_KEY_PART = re.compile(r"\[([^\]]*)\]")


def limit_silence(receive: Receive, seconds: float, clock: Clock) -> Receive:
    """The same caller, given up with 408 when it is silent for so long in the middle of its body, or trickles.

    Most bodies are whole before anybody asks: uvicorn's side of the call tells, and then there is nothing to watch.
    """
    cycle = getattr(receive, "__self__", None)
    return _BodyTimer(receive, seconds, clock).receive if getattr(cycle, "more_body", True) else receive


class _BodyTimer:
    """Watches how a body comes in.

    Only the time for which the caller is waited for counts. Once the body is whole nothing but the caller's going away
    is waited for, and that may take as long as it likes.
    """

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
            raise too_slow(f"nothing of the body came for {self._seconds:g} seconds") from None
        self._is_whole = not message.get("more_body", False)
        self._waited += self._clock.monotonic() - began
        self._heard += len(message.get("body", b""))
        if not self._is_whole and self._waited > self._seconds + self._heard / SLOWEST_BYTES_PER_SECOND:
            raise too_slow(f"the body comes with less than {SLOWEST_BYTES_PER_SECOND} bytes a second")
        return message


def _has_hung_up(receive: Receive) -> bool:
    """Whether the server knows that nobody is there any more, as uvicorn's side of a call does."""
    return bool(getattr(getattr(receive, "__self__", None), "disconnected", False))


class HangUp:
    """That the caller has hung up, or will; only of use once the body was read."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive

    def is_set(self) -> bool:
        return _has_hung_up(self._receive)

    async def wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


class Body:
    """A request's body, read once."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ended = False
        self.hang_up = HangUp(receive)

    async def pieces(self) -> AsyncIterator[bytes]:
        """What comes, as it comes; ClientGoneError when the rest never will."""
        while not self._ended:
            if piece := await self._piece():
                yield piece

    async def read(self, limit_bytes: int) -> bytes:
        """All of it; 413 when it is more than the limit."""
        pieces, size = [], 0
        while not self._ended:
            pieces.append(await self._piece())
            size += len(pieces[-1])
            if size > limit_bytes:
                raise too_large(f"this request may have {limit_bytes} bytes")
        return b"".join(pieces)

    async def _piece(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        self._ended = not message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece


def first_headers(scope: Scope) -> dict[bytes, bytes]:
    """The headers of a request by their names in small letters; of several with one name the first."""
    return dict(reversed(scope["headers"]))


def decode_fast(raw: bytes, scope: Scope, content_type: bytes, decoder: msgspec.json.Decoder[T], kind: type[T]) -> T:
    """The same as `decode`, fast for what runners send; old ones send forms, and a mistake is described by the slow
    way."""
    if not scope["query_string"]:
        with suppress(msgspec.DecodeError):
            return decoder.decode(raw)
    return decode(raw, content_type.decode("latin-1"), scope["query_string"], kind)


async def parameters(request: Request, kind: type[T], *, limit_bytes: int) -> T:
    """The request's parameters as a value; 400 in GitLab's words when they do not make one."""
    raw = await Body(request.receive).read(limit_bytes)
    content_type = request.headers.get("content-type", "")
    query = request.scope["query_string"]
    if len(raw) > _DECODE_IN_THREAD_BYTES:
        return await asyncio.to_thread(decode, raw, content_type, query, kind)
    return decode(raw, content_type, query, kind)


def decode(raw: bytes, content_type: str, query: bytes, kind: type[T]) -> T:
    """Parameters out of a body and a query; the body wins."""
    given: dict[str, Any] = unfold(_pairs(query)) if query else {}
    if content_type.startswith("application/x-www-form-urlencoded"):
        given |= unfold(_pairs(raw))
    elif content_type.startswith("multipart/form-data"):
        given |= unfold(form_fields(raw, content_type, limit=_MAX_FORM_FIELDS))
    elif raw.strip():
        given |= _json_object(raw)
    return convert(given, kind)


def convert(given: dict[str, Any], kind: type[T]) -> T:
    """Parameters as a value; 400 in GitLab's words when they do not make one."""
    try:
        found = msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise bad_parameter(_describe_problem(str(error))) from None
    if isinstance(found, msgspec.Struct):
        _check_numbers(found)
    return found


def _check_numbers(found: msgspec.Struct) -> None:
    """400 for a number that no store can hold."""
    for name in found.__struct_fields__:
        value = getattr(found, name)
        if isinstance(value, int) and not -_MAX_NUMBER <= value <= _MAX_NUMBER:
            raise bad_parameter(f"{name} is invalid: no number has more than 18 digits")


def _json_object(raw: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise bad_request("the body is not a JSON object")
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise bad_request(f"the body has more than {MAX_DEPTH} levels")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects stand in each other more often than that. Goes down level by level: it may be deep."""
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
    """`a`, `a[]`, `a[b]`, `a[][b]` as the structures they stand for; a repeated field of `a[][b]` begins the next.

    `a[0][b]`, which some clients write, is a list too: each number is one entry of it.
    """
    found: dict[str, Any] = {}
    numbered: dict[tuple[str, str], dict[str, str]] = {}
    for name, value in pairs:
        key, *rest = name.partition("[")[0], *_KEY_PART.findall(name)
        match rest:
            case []:
                found[key] = value
            case [""]:
                _list(found, key).append(value)
            case ["", field]:
                entries = _list(found, key)
                if not entries or not isinstance(entries[-1], dict) or field in entries[-1]:
                    entries.append({})
                entries[-1][field] = value
            case [number, field] if number.isdecimal():
                if (key, number) not in numbered:
                    numbered[key, number] = {}
                    _list(found, key).append(numbered[key, number])
                numbered[key, number][field] = value
            case [field]:
                inner = found.setdefault(key, {})
                if isinstance(inner, dict):
                    inner[field] = value
    return found


def _list(found: dict[str, Any], key: str) -> list[Any]:
    value = found.setdefault(key, [])
    if not isinstance(value, list):
        value = found[key] = []
    return value


def _describe_problem(problem: str) -> str:
    missing, at = _MISSING.search(problem), _AT.search(problem)
    where = re.sub(r"\.(\w+)", r"[\1]", _INDEX.sub("", at[1])) if at else ""
    if missing:
        return f"{where}[{missing[1]}] is missing" if where else f"{missing[1]} is missing"
    return f"{where} is invalid" if where else "the parameters are invalid"
