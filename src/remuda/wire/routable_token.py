"""Routable tokens: a random secret that also says, readable by anyone, which cell it belongs to.

    <prefix><base64url payload>.<version>.<length><crc>

The payload is random bytes, then lines `key:value` sorted by key with base36 values, then one byte that tells how
long those lines are. The check sum covers everything before it and catches typing errors and truncation, not
forgery: routing is a hint, and the cell looks up the SHA-256 of the whole token (`token_hash`).

Pure: the caller brings the random bytes."""

import base64
import binascii
import hashlib
import hmac
import re
import zlib
from collections.abc import Mapping

import msgspec

VERSION = "01"
KEYS = frozenset("cgoptu")
"""Keys that a new token may have: cell, group, organization, project, runner type, user."""

USER_PREFIX = "glpat-"
RUNNER_PREFIX = "glrt-"
REGISTERED_RUNNER_PREFIX = "glrtr-"

_MAX_PREFIX = 20
_MIN_RANDOM, _MAX_RANDOM = 16, 65
_MIN_ROUTING, _MAX_ROUTING = 3, 159
_MIN_BASE64, _MAX_BASE64 = 27, 300
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LINE = re.compile(r"([a-z]):([0-9a-z]{1,13})", re.ASCII)


class TokenError(ValueError):
    """A token is malformed or not valid; the message says why. Also raised for job tokens (`job_token`)."""


class Routable(msgspec.Struct, frozen=True, kw_only=True):
    prefix: str
    random: bytes
    routing: Mapping[str, int]

    @property
    def cell_id(self) -> int | None:
        return self.routing.get("c")


def to_base36(number: int) -> str:
    if number < 0:
        raise ValueError("base36 of a negative number")
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits


def to_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def encode(*, prefix: str, routing: Mapping[str, int], random: bytes) -> str:
    if len(prefix) > _MAX_PREFIX:
        raise TokenError(f"the prefix is longer than {_MAX_PREFIX} characters")
    if not _MIN_RANDOM <= len(random) <= _MAX_RANDOM:
        raise TokenError(f"a token has {_MIN_RANDOM} to {_MAX_RANDOM} random bytes, not {len(random)}")
    unknown = set(routing) - KEYS
    if unknown:
        raise TokenError(f"unknown routing keys: {', '.join(sorted(unknown))}")
    if not routing.keys() & {"c", "o"}:
        raise TokenError("a token names at least its cell (c) or its organization (o)")
    lines = "\n".join(f"{key}:{to_base36(routing[key])}" for key in sorted(routing)).encode()
    if not _MIN_ROUTING <= len(lines) <= _MAX_ROUTING:
        raise TokenError(f"the routing part has {_MIN_ROUTING} to {_MAX_ROUTING} bytes, not {len(lines)}")
    payload = to_base64url(random + lines + bytes([len(lines)]))
    head = f"{prefix}{payload}.{VERSION}.{to_base36(len(payload)).rjust(2, '0')}"
    return head + _checksum(head)


def decode(token: str) -> Routable:
    """Parse a token and check its check sum. Raises TokenError if the text is not a routable token."""
    if len(token) > _MAX_PREFIX + _MAX_BASE64 + 13:
        raise TokenError("too long for a routable token")
    if not token.isascii():
        raise TokenError("a routable token has ASCII characters only")
    tail = token.rsplit(".", 2)
    if len(tail) != 3 or len(tail[2]) != 9:
        raise TokenError("not of the form payload.version.check")
    before, version, check = tail
    if version != VERSION:
        raise TokenError(f"unknown token version {version!r}")
    if not re.fullmatch(r"[0-9a-z]{9}", check, re.ASCII):
        raise TokenError("the check part is not base36")
    length = int(check[:2], 36)
    if not _MIN_BASE64 <= length <= _MAX_BASE64 or length > len(before):
        raise TokenError("the length does not fit")
    if not hmac.compare_digest(_checksum(token[:-7]), check[2:]):
        raise TokenError("the check sum is wrong: the token is damaged or cut off")
    prefix, payload = before[: len(before) - length], before[len(before) - length :]
    if len(prefix) > _MAX_PREFIX:
        raise TokenError(f"the prefix is longer than {_MAX_PREFIX} characters")
    if not re.fullmatch(r"[0-9A-Za-z_-]+", payload, re.ASCII):
        raise TokenError("the payload is not base64url")
    try:
        raw = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
    except binascii.Error:
        raise TokenError("the payload is not base64url") from None
    return _parse_payload(prefix, raw)


def _parse_payload(prefix: str, raw: bytes) -> Routable:
    routing_length = raw[-1]
    random_length = len(raw) - 1 - routing_length
    if not _MIN_ROUTING <= routing_length <= _MAX_ROUTING or not _MIN_RANDOM <= random_length <= _MAX_RANDOM:
        raise TokenError("the routing part does not fit into the payload")
    routing: dict[str, int] = {}
    try:
        lines = raw[random_length:-1].decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise TokenError("the routing part is not text") from None
    for line in lines:
        parts = _LINE.fullmatch(line)
        if not parts or parts[1] in routing:
            raise TokenError("the routing part is not a list of key:value lines")
        routing[parts[1]] = int(parts[2], 36)
    if list(routing) != sorted(routing):
        raise TokenError("the routing keys are not in order")
    return Routable(prefix=prefix, random=raw[:random_length], routing=routing)


def _checksum(head: str) -> str:
    return to_base36(zlib.crc32(head.encode())).rjust(7, "0")


def token_hash(token: str) -> str:
    """The SHA-256 that is stored instead of a token. Tokens are long and random, so no salt is needed."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
