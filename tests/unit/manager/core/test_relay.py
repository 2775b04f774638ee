"""The relay keeps the log exact whatever the agent repeats and wherever the server says it stands."""

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


def test_what_does_not_join_on_is_ignored_and_what_overlaps_is_cut() -> None:
    relay = TraceRelay(confirmed=4, crc=zlib.crc32(b"0123"))
    relay.add(7, b"789")
    relay.add(0, b"0123")
    relay.add(2, b"23456")
    assert (relay.head(), relay.received) == (b"456", 7)


def test_a_server_that_is_ahead_gets_only_what_it_misses() -> None:
    relay = TraceRelay()
    relay.add(0, b"01")
    relay.server_has(5)
    assert (relay.bytes_waiting, relay.crc) == (0, None)
    relay.add(2, b"23456")
    assert (relay.head(), relay.confirmed, relay.crc) == (b"56", 5, zlib.crc32(b"01234"))


def test_a_server_that_lost_bytes_makes_us_ask_the_agent_again() -> None:
    relay = TraceRelay(confirmed=10, crc=123)
    relay.add(10, b"more")
    relay.server_has(3)
    assert (relay.received, relay.confirmed, relay.bytes_waiting, relay.crc) == (3, 3, 0, None)
    relay.server_has(0)
    assert relay.crc == 0


def test_one_call_carries_no_more_than_a_chunk() -> None:
    relay = TraceRelay()
    relay.add(0, b"x" * (CHUNK_BYTES + 1))
    assert len(relay.head()) == CHUNK_BYTES


@given(st.binary(min_size=1, max_size=200), st.data())
def test_the_server_ends_with_exactly_the_log(log: bytes, data: st.DataObject) -> None:
    """Whatever is repeated, lost or answered with another position, the stored bytes are the log's."""
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


def test_results_go_in_order_and_back_to_where_the_server_stands() -> None:
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


def test_results_of_one_call_are_hardly_more_than_a_chunk() -> None:
    relay = ResultRelay()
    for seq in (1, 2, 3):
        relay.add(seq, b"x" * (CHUNK_BYTES // 2 + 1))
    assert len(relay.head()) == 1


def test_results_that_nobody_wants_are_dropped_and_the_count_goes_on() -> None:
    relay = ResultRelay()
    relay.add(1, b"one")
    relay.drop()
    relay.add(2, b"two")
    assert (relay.received, relay.confirmed, relay.head(), relay.bytes_waiting) == (3, 1, [b"two"], 3)


def test_pieces_that_are_refused_get_smaller_down_to_a_least() -> None:
    relay = TraceRelay()
    relay.add(0, b"x" * (2 * CHUNK_BYTES))
    relay.halve(len(relay.head()))
    assert len(relay.head()) == CHUNK_BYTES // 2
    for _ in range(20):
        relay.halve(len(relay.head()))
    assert len(relay.head()) == LEAST_BYTES
