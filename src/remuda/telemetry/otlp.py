"""Sends spans to an OpenTelemetry collector in the background: OTLP over HTTP, as JSON.

Adding a span never blocks and never fails. Spans that arrive too fast, or during a long outage, are dropped and
counted. The exporter retries with growing waits; refused spans are not sent again. At shutdown the rest is sent within
a few seconds or dropped. docs/decisions/0014-spans.md says why the OpenTelemetry SDK is not used."""

import asyncio
import gzip
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import msgspec

from remuda import __version__
from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.telemetry.logs import logger
from remuda.telemetry.otlp_settings import OtlpError, OtlpSettings
from remuda.telemetry.spans import Span, encode
from remuda.wire.http_session import HttpSession, environment_proxy
from remuda.wire.runner_server import tls_context

MOST_WAITING = 10_000
"""Maximum number of unsent spans in memory. A span has at most some kilobytes."""
BATCH = 200
GATHERING_SECONDS = 1.0
"""How long a span waits for others, so that they are sent together."""
LAST_SECONDS = 3.0
"""How long sending may take at shutdown."""
_AGAIN = Backoff(first_seconds=1.0, ceiling_seconds=60.0)
_LATER = frozenset({429, 502, 503, 504})
_MOST_ANSWER_BYTES = 64 * 1024

Counted = Callable[[str, int], None]
"""Called with an outcome (`sent`, `dropped` here, or `refused` by the collector) and a number of spans."""


class _Answer(msgspec.Struct):
    partial: dict[str, int | str] = msgspec.field(name="partialSuccess", default_factory=dict)


class SpanExporter:
    """Queue of unsent spans; `run` sends them, and leaving the context sends the rest. The constructor raises OtlpError
    if the certificate file of the settings cannot be used."""

    def __init__(self, settings: OtlpSettings, clock: Clock, counted: Counted) -> None:
        self._settings = settings
        self._session = HttpSession({"User-Agent": f"remuda {__version__}"}, connect_seconds=settings.timeout_seconds)
        self._clock = clock
        self._counted = counted
        self._waiting: deque[Span] = deque()
        self._filled = asyncio.Event()
        self._failures = 0
        self._log = logger("spans")
        self._proxy = environment_proxy(settings.url)
        self._tls: ssl.SSLContext | None = None
        if settings.ca_file:
            try:
                self._tls = tls_context(ca_file=settings.ca_file)
            except (OSError, ssl.SSLError) as error:
                raise OtlpError(f"the OTLP certificate {settings.ca_file} cannot be used: {error}") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._finish()
        except TimeoutError:
            self._drop_all("the receiver did not answer in time")
        finally:
            await self._session.__aexit__(kind, error, trace)

    def offer(self, span: Span) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._counted("dropped", 1)
            return
        self._waiting.append(span)
        self._filled.set()

    async def run(self) -> None:
        while True:
            await self._filled.wait()
            if self._failures:
                await self._clock.sleep(_AGAIN.delay(self._failures))
            elif len(self._waiting) < BATCH:
                await self._clock.sleep(GATHERING_SECONDS)
            await self._send_batch()

    async def _finish(self) -> None:
        """Send the queued spans at shutdown. If a batch cannot be sent, drop it and all others."""
        self._failures = 0
        while self._waiting and not self._failures:
            await self._send_batch()
        if self._waiting:
            self._drop_all("the receiver cannot be reached or is busy")

    def _drop_all(self, cause: str) -> None:
        self._counted("dropped", len(self._waiting))
        self._log.warning("dropping unsent spans at shutdown", spans=len(self._waiting), cause=cause)
        self._waiting.clear()

    async def _send_batch(self) -> None:
        batch = [self._waiting[number] for number in range(min(BATCH, len(self._waiting)))]
        problem = await self._send(batch)
        if problem:
            self._failures += 1
            if self._failures == 1:
                self._log.warning("cannot send spans; will retry", cause=problem)
            return
        if self._failures:
            self._log.info("sending spans works again")
        self._failures = 0
        for _ in batch:
            self._waiting.popleft()
        if not self._waiting:
            self._filled.clear()

    async def _send(self, batch: Sequence[Span]) -> str:
        """Send a batch. Returns why it failed if the batch must be sent again; '' if it was accepted or refused."""
        settings = self._settings
        body = encode(batch, resource=settings.resource, version=__version__)
        headers = {"Content-Type": "application/json", **settings.headers}
        if settings.is_compressed:
            body = gzip.compress(body, 3)
            headers["Content-Encoding"] = "gzip"
        try:
            async with (
                asyncio.timeout(settings.timeout_seconds),
                self._session.request(
                    "POST", settings.url, data=body, headers=headers, tls=self._tls, proxy=self._proxy
                ) as answer,
            ):
                status, body = answer.status, await answer.read()
        except (OSError, ValueError) as error:
            return str(error) or type(error).__name__
        if status in _LATER:
            return f"status {status}"
        refused = len(batch) if status >= 300 else min(_count_rejected(body), len(batch))
        if refused:
            self._counted("refused", refused)
            self._log.warning("collector refused spans; dropping them", spans=refused, status=status)
        self._counted("sent", len(batch) - refused)
        return ""


def _count_rejected(body: bytes) -> int:
    try:
        answer = msgspec.json.decode(body[:_MOST_ANSWER_BYTES], type=_Answer)
        return int(answer.partial.get("rejectedSpans", 0))
    except (msgspec.MsgspecError, ValueError):
        return 0
