"""The client of the container engine's API: addresses, streams, and errors."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.engine.docker_api import (
    Address,
    Engine,
    EngineGoneError,
    EngineRefusedError,
    Frames,
    parse_address,
)


def test_addresses() -> None:
    assert parse_address("unix:///run/x.sock") == Address(path="/run/x.sock")
    assert parse_address("tcp://host:2376") == Address(host="host", port=2376)
    assert parse_address("tcp://[::1]") == Address(host="::1", port=2375)
    for text in ("", "/run/x.sock", "unix://run/x", "ssh://host", "https://host", "tcp://host:x", "tcp://"):
        with pytest.raises(StepError, match="not an address of a container engine"):
            parse_address(text)


def join_parts(frames: list[tuple[int, bytes]], kind: int) -> bytes:
    return b"".join(part for frame_kind, part in frames if frame_kind == kind)


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50)), max_size=20), st.data())
def test_frames_are_parsed_wherever_the_stream_is_cut(frames: list[tuple[int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(struct.pack("!BxxxI", kind, len(part)) + part for kind, part in frames)
    parser, parsed = Frames(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        parsed += parser.feed(stream[:size])
        stream = stream[size:]
    for kind in (1, 2):
        assert join_parts(parsed, kind) == join_parts(frames, kind)


CreateEngine = Callable[..., Engine]


@pytest.fixture
def create_engine(tmp_path: Path) -> Iterator[CreateEngine]:
    """Return a function that starts an engine. It sends one of the responses per connection, then closes it."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "sock"))
    listener.listen()
    threads: list[threading.Thread] = []

    def create(*responses: str) -> Engine:
        def serve() -> None:
            for response in responses:
                connection, _ = listener.accept()
                with closing(connection), suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(response.encode())

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return Engine(f"unix://{tmp_path}/sock")

    yield create
    for thread in threads:
        thread.join(10)
    listener.close()


def format_ping(version: str) -> str:
    return f"HTTP/1.1 200 OK\r\nApi-Version: {version}\r\nContent-Length: 2\r\n\r\nOK"


def format_response(status: str, body: object, content_type: str = "application/json") -> str:
    text = body if isinstance(body, str) else json.dumps(body)
    return f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(text)}\r\n\r\n{text}"


@pytest.mark.parametrize(
    ("theirs", "expected"), [("1.41", "1.41"), ("1.47", "1.47"), ("1.99", "1.51"), ("2.0", "1.51")]
)
def test_the_newest_version_that_both_support_is_used(create_engine: CreateEngine, theirs: str, expected: str) -> None:
    assert create_engine(format_ping(theirs)).version == expected


@pytest.mark.parametrize(("theirs", "message"), [("1.40", "too old"), ("", "does not answer like a container engine")])
def test_unsupported_engines_are_refused(create_engine: CreateEngine, theirs: str, message: str) -> None:
    with pytest.raises(PlatformError, match=message):
        _ = create_engine(format_ping(theirs)).version


def test_a_refusal_has_a_status_and_a_message(create_engine: CreateEngine) -> None:
    engine = create_engine(
        format_ping("1.41"),
        format_response("404 Not Found", {"message": "No such image"}),
        format_response("500 x", "boom", "text/plain"),
    )
    with pytest.raises(EngineRefusedError, match="No such image") as absent:
        engine.call("GET", "/images/x/json")
    assert (absent.value.status, absent.value.exit_code) == (404, 1)
    with pytest.raises(EngineRefusedError, match="boom") as broken:
        engine.call("GET", "/info")
    assert (broken.value.status, broken.value.exit_code) == (500, 75)


def test_a_connection_that_breaks_during_a_response(create_engine: CreateEngine) -> None:
    half = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    engine = create_engine(format_ping("1.41"), half, "", half.replace("100", "200"), "")
    for _ in range(2):
        with pytest.raises(EngineGoneError, match="connection broke"):
            engine.call("GET", "/info")
    with pytest.raises(EngineGoneError):
        list(engine.lines("/images/create", query={}))
    with pytest.raises(EngineGoneError, match="without an answer"):
        engine.stream("/exec/1/start")


def test_no_engine_listens(tmp_path: Path) -> None:
    with pytest.raises(EngineGoneError, match="socket does not exist"):
        Engine(f"unix://{tmp_path}/none").call("GET", "/info")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    with pytest.raises(EngineGoneError, match="nothing listens"):
        Engine(f"unix://{tmp_path}/dead").call("GET", "/info")


def test_a_stream_begins_with_the_bytes_after_the_response_head(create_engine: CreateEngine) -> None:
    head = "HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n"
    frame = struct.pack("!BxxxI", 2, 3).decode() + "abc"
    stream = create_engine(format_ping("1.41"), head + frame).stream("/exec/1/start")
    assert stream.read(5) == [(2, b"abc")]
    assert stream.read(5) is None
    stream.close()
