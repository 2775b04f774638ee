"""The span exporter (OTLP over HTTP): batches, retries, refused spans, dropped spans and shutdown."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from tests.support.servers.otlp_receiver import OtlpReceiver

from remuda.lib.clock import VirtualClock
from remuda.telemetry import otlp
from remuda.telemetry.otlp import SpanExporter
from remuda.telemetry.otlp_settings import OtlpError, OtlpSettings
from remuda.telemetry.spans import Span, span_id_of, trace_id_of


@pytest.fixture
async def receiver() -> AsyncIterator[OtlpReceiver]:
    receiver = OtlpReceiver()
    await receiver.start()
    yield receiver
    await receiver.stop()


def a_span(name: str = "build") -> Span:
    return Span(trace_id=trace_id_of(), span_id=span_id_of(name), name=name, started_at=1, ended_at=2, attributes={})


class Bench:
    """An exporter with its clock and its counters."""

    def __init__(self, url: str, **settings: object) -> None:
        self.clock = VirtualClock()
        self.counts: Counter[str] = Counter()
        self.exporter = SpanExporter(OtlpSettings(url=url, **settings), self.clock, self._count)  # type: ignore[arg-type]

    def _count(self, outcome: str, number: int) -> None:
        self.counts[outcome] += number

    @asynccontextmanager
    async def run(self) -> AsyncIterator[SpanExporter]:
        async with self.exporter, asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.exporter.run(), name="exporter")
            yield self.exporter
            task.cancel()


async def test_spans_are_sent_in_one_batch_with_headers(receiver: OtlpReceiver) -> None:
    bench = Bench(
        f"{receiver.endpoint}/v1/traces",
        headers={"Api-Key": "k"},
        is_compressed=True,
        resource={"service.name": "remuda"},
    )
    async with bench.run() as exporter:
        exporter.offer(a_span("one"))
        exporter.offer(a_span("two"))
        await bench.clock.advance(otlp.GATHERING_SECONDS)
        await receiver.until(lambda: len(receiver.spans) == 2)
    [headers] = receiver.requests
    assert (headers["Api-Key"], headers["Content-Encoding"]) == ("k", "gzip")
    assert receiver.spans[0].resource == {"service.name": "remuda"}
    assert bench.counts == {"sent": 2}


async def test_waiting_spans_are_sent_at_the_end(receiver: OtlpReceiver) -> None:
    bench = Bench(f"{receiver.endpoint}/v1/traces")
    async with bench.run() as exporter:
        for number in range(otlp.BATCH + 1):
            exporter.offer(a_span(str(number)))
    assert [span.name for span in receiver.spans] == [str(number) for number in range(otlp.BATCH + 1)]
    assert len(receiver.requests) == 2


async def test_a_busy_receiver_is_retried(receiver: OtlpReceiver) -> None:
    receiver.answers.extend([web.Response(status=503), web.Response(status=429)])
    bench = Bench(f"{receiver.endpoint}/v1/traces")
    async with bench.run() as exporter:
        exporter.offer(a_span())
        async with asyncio.timeout(30):
            while not receiver.spans:
                await bench.clock.advance(1.0)
                await asyncio.sleep(0.01)
    assert len(receiver.requests) == 3
    assert [span.name for span in receiver.spans] == ["build"]
    assert bench.counts == {"sent": 1}


async def test_refused_spans_are_not_sent_again(receiver: OtlpReceiver) -> None:
    partial_success = web.json_response({"partialSuccess": {"rejectedSpans": "1", "errorMessage": "no"}})
    receiver.answers.extend([web.Response(status=400), partial_success])
    bench = Bench(f"{receiver.endpoint}/v1/traces")
    async with bench.run() as exporter:
        exporter.offer(a_span())
        await bench.clock.advance(otlp.GATHERING_SECONDS)
        await receiver.until(lambda: len(receiver.requests) == 1)
        exporter.offer(a_span("one"))
        exporter.offer(a_span("two"))
    assert bench.counts == {"refused": 2, "sent": 1}


async def test_without_a_receiver_spans_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "MOST_WAITING", 3)
    bench = Bench("http://127.0.0.1:9/v1/traces")
    async with bench.run() as exporter:
        for number in range(5):
            exporter.offer(a_span(str(number)))
        await bench.clock.advance(10)
    assert bench.counts == {"dropped": 5}


async def test_a_receiver_that_never_answers_does_not_delay_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "LAST_SECONDS", 0.1)
    disconnected = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        disconnected.set()

    async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as server:
        bench = Bench(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/traces")
        async with bench.run() as exporter:
            exporter.offer(a_span())
        assert bench.counts == {"dropped": 1}
        await disconnected.wait()


async def test_an_unreadable_ca_file_is_an_error() -> None:
    with pytest.raises(OtlpError, match="/no/such/file cannot be used"):
        Bench("https://collector/v1/traces", ca_file="/no/such/file")
