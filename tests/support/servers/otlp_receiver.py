"""An OpenTelemetry receiver for tests: stores spans that it receives as JSON over HTTP, or sends planned responses."""

import asyncio
import gzip
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedSpan:
    """A received span with its attributes as plain values."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: int
    started: int
    ended: int
    error: str | None
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass
class OtlpReceiver:
    """`start` it, send to `endpoint`, wait with `until`."""

    spans: list[ReceivedSpan] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    """Headers of each request."""
    answers: deque[web.Response] = field(default_factory=deque)
    """Responses for the next requests, instead of success. The spans of such requests are not stored."""
    endpoint: str = ""

    async def start(self) -> None:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        self._changed = asyncio.Event()
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        self.endpoint = f"http://127.0.0.1:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until the condition holds; it is checked after each request."""
        async with asyncio.timeout(30):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    def spans_named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.requests.append(dict(request.headers))
        self._changed.set()
        if self.answers:
            return self.answers.popleft()
        if request.content_type != "application/json":
            return web.Response(status=415)
        if body.startswith(b"\x1f\x8b"):
            body = gzip.decompress(body)
        for group in json.loads(body)["resourceSpans"]:
            resource = _values(group["resource"]["attributes"])
            self.spans += [_span(span, resource) for scope in group["scopeSpans"] for span in scope["spans"]]
        return web.json_response({})


def _span(span: dict[str, Any], resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        trace_id=span["traceId"],
        span_id=span["spanId"],
        parent_id=span.get("parentSpanId", ""),
        name=span["name"],
        kind=span["kind"],
        started=int(span["startTimeUnixNano"]),
        ended=int(span["endTimeUnixNano"]),
        error=span["status"].get("message") if span["status"].get("code") == 2 else None,
        attributes=_values(span["attributes"]),
        resource=resource,
    )


def _values(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {each["key"]: _value(each["value"]) for each in attributes}


def _value(value: dict[str, Any]) -> Any:
    [(kind, content)] = value.items()
    if kind == "arrayValue":
        return [_value(item) for item in content["values"]]
    return int(content) if kind == "intValue" else content
