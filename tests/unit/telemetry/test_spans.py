"""Spans in the OTLP JSON format, ids, and the traceparent header."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.telemetry.spans import SERVER, Context, Span, encode, parse_traceparent, span_id_of, trace_id_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def a_span(**more: Any) -> Span:
    values: dict[str, Any] = {
        "trace_id": TRACE, "span_id": SPAN, "name": "build", "started_at": 1.5, "ended_at": 2.0, "attributes": {},
    }  # fmt: skip
    return Span(**values | more)


def encode_spans(*spans: Span) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(encode(spans, resource={"service.name": "s"}, version="1"))
    return body


def test_an_export_request() -> None:
    attributes = {"text": "x", "number": 3, "share": 0.5, "is": True, "list": ["a"]}
    span = a_span(parent_id="00f067aa0ba902b7", kind=SERVER, attributes=attributes, error="exit status 1")
    assert encode_spans(span) == {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "s"}}]},
                "scopeSpans": [
                    {
                        "scope": {"name": "remuda", "version": "1"},
                        "spans": [
                            {
                                "traceId": TRACE,
                                "spanId": SPAN,
                                "parentSpanId": "00f067aa0ba902b7",
                                "name": "build",
                                "kind": 2,
                                "startTimeUnixNano": "1500000000",
                                "endTimeUnixNano": "2000000000",
                                "attributes": [
                                    {"key": "text", "value": {"stringValue": "x"}},
                                    {"key": "number", "value": {"intValue": "3"}},
                                    {"key": "share", "value": {"doubleValue": 0.5}},
                                    {"key": "is", "value": {"boolValue": True}},
                                    {
                                        "key": "list",
                                        "value": {"arrayValue": {"values": [{"stringValue": "a"}]}},
                                    },
                                ],
                                "status": {"code": 2, "message": "exit status 1"},
                                "flags": 1,
                            }
                        ],
                    }
                ],
            }
        ]
    }


def test_a_span_without_parent_and_error_never_ends_before_it_began() -> None:
    [span] = encode_spans(a_span(ended_at=1.0))["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert "parentSpanId" not in span
    assert span["status"] == {}
    assert span["endTimeUnixNano"] == span["startTimeUnixNano"]


@given(st.lists(st.text() | st.integers()))
def test_ids_depend_only_on_their_words(words: list[object]) -> None:
    assert trace_id_of(*words) == trace_id_of(*words)
    assert (len(trace_id_of(*words)), len(span_id_of(*words))) == (32, 16)
    assert span_id_of(*words) != span_id_of(*words, "more")


def test_a_traceparent_is_written_and_read_back() -> None:
    for is_sampled in (True, False):
        context = Context(trace_id=TRACE, span_id=SPAN, is_sampled=is_sampled)
        assert parse_traceparent(context.traceparent) == context
    assert parse_traceparent(f" cc-{TRACE}-{SPAN}-09-what-the-future-will-be ") == Context(trace_id=TRACE, span_id=SPAN)


@pytest.mark.parametrize(
    "text",
    ["", "x", f"00-{TRACE}-{SPAN}", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01"],
)
def test_invalid_traceparents(text: str) -> None:
    assert parse_traceparent(text) is None
