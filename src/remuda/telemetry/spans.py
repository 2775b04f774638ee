"""Spans as values, and their encoding as OTLP JSON. Pure. A span is created when its operation has ended. Its ids are
derived from the operation, so that a span that is created again after a restart has the same ids."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

INTERNAL, SERVER = 1, 2
"""Kinds of spans, with OTLP's numbers."""
_ERROR = 2
_SAMPLED = 1
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")

Value = str | bool | int | float | Sequence[str]


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """A span context: trace id and span id of the parent of new spans."""

    trace_id: str
    span_id: str
    is_sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The context in the format of the W3C header `traceparent`, for other processes."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.is_sampled else '00'}"


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """An operation with a start and an end, as OpenTelemetry defines it."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str
    kind: int = INTERNAL
    started_at: float
    ended_at: float
    attributes: Mapping[str, Value]
    error: str | None = None
    """Why the operation failed, as text for people; None if it succeeded."""


def trace_id_of(*words: object) -> str:
    """Derive a trace id from words that identify an operation, such as its kind and id."""
    return _digest(words, 16)


def span_id_of(*words: object) -> str:
    return _digest(words, 8)


def _digest(words: Sequence[object], size: int) -> str:
    return hashlib.blake2b("\0".join(map(str, words)).encode(), digest_size=size).hexdigest()


def parse_traceparent(text: str) -> Context | None:
    """Parse the value of TRACEPARENT; None if it is invalid or empty."""
    match = _TRACEPARENT.fullmatch(text.strip())
    if match is None or not match[1].strip("0") or not match[2].strip("0"):
        return None
    return Context(trace_id=match[1], span_id=match[2], is_sampled=bool(int(match[3], 16) & _SAMPLED))


def encode(spans: Sequence[Span], *, resource: Mapping[str, Value], version: str) -> bytes:
    """Encode spans as one OTLP request. `resource`: the attributes of the sender. `version`: the version of Remuda."""
    scope = {"scope": {"name": "remuda", "version": version}, "spans": [_encode_span(span) for span in spans]}
    return msgspec.json.encode(
        {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}]}
    )


def _encode_span(span: Span) -> dict[str, Any]:
    return {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        **({"parentSpanId": span.parent_id} if span.parent_id else {}),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": _nanoseconds(span.started_at),
        "endTimeUnixNano": _nanoseconds(max(span.ended_at, span.started_at)),
        "attributes": _attributes(span.attributes),
        "status": {} if span.error is None else {"code": _ERROR, "message": span.error},
        "flags": _SAMPLED,
    }


def _nanoseconds(seconds: float) -> str:
    """Convert seconds to nanoseconds as text, which OTLP's JSON requires for 64-bit numbers. Rounds to microseconds."""
    return str(round(seconds * 1e6) * 1000)


def _attributes(values: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
    return {"arrayValue": {"values": [{"stringValue": item} for item in value]}}
