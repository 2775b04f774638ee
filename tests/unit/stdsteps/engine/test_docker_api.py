"""The engine's API: addresses, streams, and what a failure is."""

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


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50)), max_size=20), st.data())
def test_frames_are_taken_apart_wherever_the_stream_is_cut(
    frames: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(struct.pack("!BxxxI", kind, len(part)) + part for kind, part in frames)
    taken, found = Frames(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += taken.feed(stream[:size])
        stream = stream[size:]
    for kind in (1, 2):
        assert b"".join(part for one, part in found if one == kind) == b"".join(p for k, p in frames if k == kind)


Answers = Callable[..., Engine]


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Answers]:
    """An engine that answers each call with the next of these texts and closes the connection."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "sock"))
    listener.listen()
    threads: list[threading.Thread] = []

    def build(*answers: str) -> Engine:
        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with closing(connection), suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(answer.encode())

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return Engine(f"unix://{tmp_path}/sock")

    yield build
    for thread in threads:
        thread.join(10)
    listener.close()


def ping(version: str) -> str:
    return f"HTTP/1.1 200 OK\r\nApi-Version: {version}\r\nContent-Length: 2\r\n\r\nOK"


def answer(status: str, body: object, kind: str = "application/json") -> str:
    text = body if isinstance(body, str) else json.dumps(body)
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(text)}\r\n\r\n{text}"


@pytest.mark.parametrize(("theirs", "ours"), [("1.41", "1.41"), ("1.47", "1.47"), ("1.99", "1.51"), ("2.0", "1.51")])
def test_the_newest_version_that_both_know_is_spoken(answering: Answers, theirs: str, ours: str) -> None:
    assert answering(ping(theirs)).version == ours


@pytest.mark.parametrize(("theirs", "words"), [("1.40", "too old"), ("", "does not answer like a container engine")])
def test_what_is_no_engine_for_us(answering: Answers, theirs: str, words: str) -> None:
    with pytest.raises(PlatformError, match=words):
        _ = answering(ping(theirs)).version


def test_refusals_have_a_status_and_a_cause(answering: Answers) -> None:
    engine = answering(
        ping("1.41"), answer("404 Not Found", {"message": "No such image"}), answer("500 x", "boom", "text/plain")
    )
    with pytest.raises(EngineRefusedError, match="No such image") as absent:
        engine.call("GET", "/images/x/json")
    assert (absent.value.status, absent.value.exit_code) == (404, 1)
    with pytest.raises(EngineRefusedError, match="boom") as broken:
        engine.call("GET", "/info")
    assert (broken.value.status, broken.value.exit_code) == (500, 75)


def test_an_engine_that_dies_in_an_answer(answering: Answers) -> None:
    half = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    engine = answering(ping("1.41"), half, "", half.replace("100", "200"), "")
    for _ in range(2):
        with pytest.raises(EngineGoneError, match="connection broke"):
            engine.call("GET", "/info")
    with pytest.raises(EngineGoneError):
        list(engine.lines("/images/create", query={}))
    with pytest.raises(EngineGoneError, match="without an answer"):
        engine.stream("/exec/1/start")


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(EngineGoneError, match="socket does not exist"):
        Engine(f"unix://{tmp_path}/none").call("GET", "/info")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    with pytest.raises(EngineGoneError, match="nothing listens"):
        Engine(f"unix://{tmp_path}/dead").call("GET", "/info")


def test_a_stream_begins_with_what_came_along_with_the_answer(answering: Answers) -> None:
    head = "HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n"
    frame = struct.pack("!BxxxI", 2, 3).decode() + "abc"
    stream = answering(ping("1.41"), head + frame).stream("/exec/1/start")
    assert stream.read(5) == [(2, b"abc")]
    assert stream.read(5) is None
    stream.close()
