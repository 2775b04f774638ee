"""The relay between agent and server: the server's log is exact even if the agent repeats or the server loses bytes."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from remuda.manager.core.relay import CHUNK_BYTES, LEAST_BYTES, ResultRelay, TraceRelay


def test_bytes_wait_until_the_server_has_them() -> None:
    relay = TraceRelay()
    relay.add(0, b"hello ")
    relay.add(6, b"world")
    assert (relay.head(), relay.received, relay.confirmed) == (b"hello world", 11, 0)
    relay.server_has(6)
    assert (relay.head(), relay.confirmed, relay.crc) == (b"world", 6, zlib.crc32(b"hello "))


def test_bytes_after_a_gap_are_ignored_and_overlaps_are_cut() -> None:
    relay = TraceRelay(confirmed=4, crc=zlib.crc32(b"0123"))
    relay.add(7, b"789")
    relay.add(0, b"0123")
    relay.add(2, b"23456")
    assert (relay.head(), relay.received) == (b"456", 7)


def test_a_server_that_is_ahead_gets_only_missing_bytes() -> None:
    relay = TraceRelay()
    relay.add(0, b"01")
    relay.server_has(5)
    assert (relay.bytes_waiting, relay.crc) == (0, None)
    relay.add(2, b"23456")
    assert (relay.head(), relay.confirmed, relay.crc) == (b"56", 5, zlib.crc32(b"01234"))


def test_bytes_that_the_server_lost_are_requested_from_the_agent_again() -> None:
    relay = TraceRelay(confirmed=10, crc=123)
    relay.add(10, b"more")
    relay.server_has(3)
    assert (relay.received, relay.confirmed, relay.bytes_waiting, relay.crc) == (3, 3, 0, None)
    relay.server_has(0)
    assert relay.crc == 0


def test_one_call_sends_at_most_one_chunk() -> None:
    relay = TraceRelay()
    relay.add(0, b"x" * (CHUNK_BYTES + 1))
    assert len(relay.head()) == CHUNK_BYTES


@given(st.binary(min_size=1, max_size=200), st.data())
def test_the_server_ends_with_exactly_the_log(log: bytes, data: st.DataObject) -> None:
    """Chunks may be repeated or lost, and the server may answer with another position."""
    relay, server = TraceRelay(), b""
    for _ in range(data.draw(st.integers(0, 40))):
        match data.draw(st.sampled_from(("chunk", "send", "lost answer", "server lost bytes"))):
            case "chunk":
                start = data.draw(st.integers(0, len(log)))
                relay.add(start, log[start : data.draw(st.integers(start, len(log)))])
            case "send" | "lost answer" as how if relay.bytes_waiting:
                head = relay.head()[: data.draw(st.integers(1, relay.bytes_waiting))]
                if relay.confirmed == len(server):
                    server += head
                    if how == "send":
                        relay.server_has(relay.confirmed + len(head))
                else:
                    relay.server_has(len(server))
            case "server lost bytes":
                server = server[: data.draw(st.integers(0, len(server)))]
    for _ in range(6):
        relay.add(relay.received, log[relay.received :])
        if relay.bytes_waiting and relay.confirmed == len(server):
            server += relay.head()
        relay.server_has(len(server))
    assert server == log
    assert relay.crc in (None, zlib.crc32(log))


def test_results_are_sent_in_order_from_the_number_that_the_server_wants() -> None:
    relay = ResultRelay()
    relay.add(2, b"two")
    relay.add(1, b"one")
    relay.add(2, b"two")
    relay.add(2, b"two again")
    assert relay.head() == [b"one", b"two"]
    relay.server_wants(2)
    assert (relay.head(), relay.bytes_waiting) == ([b"two"], 3)
    relay.server_wants(1)
    assert (relay.head(), relay.received, relay.confirmed) == ([], 1, 1)
    relay.server_wants(3)
    relay.add(1, b"one")
    relay.add(2, b"two")
    relay.add(3, b"three")
    assert relay.head() == [b"three"]


def test_results_of_one_call_are_limited_to_about_one_chunk() -> None:
    relay = ResultRelay()
    for seq in (1, 2, 3):
        relay.add(seq, b"x" * (CHUNK_BYTES // 2 + 1))
    assert len(relay.head()) == 1


def test_numbers_continue_after_results_were_dropped() -> None:
    relay = ResultRelay()
    relay.add(1, b"one")
    relay.drop()
    relay.add(2, b"two")
    assert (relay.received, relay.confirmed, relay.head(), relay.bytes_waiting) == (3, 1, [b"two"], 3)


def test_refused_chunks_are_halved_down_to_a_minimum() -> None:
    relay = TraceRelay()
    relay.add(0, b"x" * (2 * CHUNK_BYTES))
    relay.halve(len(relay.head()))
    assert len(relay.head()) == CHUNK_BYTES // 2
    for _ in range(20):
        relay.halve(len(relay.head()))
    assert len(relay.head()) == LEAST_BYTES
