"""Two streams of one job between agent and server: the log's bytes and the step results.

Both sides name positions in the same space (byte offsets, sequence numbers), so everything here is one rule: what the
server does not have yet waits here, what arrives out of place is ignored because it can be asked for again, and
whichever side says where it stands is believed. Nothing is sent here; `life.py` decides when.
"""

import zlib
from collections import deque

CHUNK_BYTES = 1 << 20
"""Most bytes of one PATCH; also the room that must be free before the agent is asked for more."""
LEAST_BYTES = 1 << 10
"""A server that does not take so little takes nothing."""
HIGH_BYTES = 2 << 20
"""Above this the agent is asked to pause: a slow server costs time, not memory."""


class TraceRelay:
    """Log bytes on their way. Invariant: the waiting bytes are those from `confirmed` to `received`."""

    __slots__ = ("_crc", "_most", "_waiting", "confirmed", "received")

    def __init__(self, *, confirmed: int = 0, crc: int | None = 0) -> None:
        self.confirmed = confirmed
        self.received = confirmed
        self._waiting = bytearray()
        self._most = CHUNK_BYTES
        self._crc = crc

    @property
    def waiting(self) -> int:
        """How many bytes wait."""
        return len(self._waiting)

    @property
    def crc(self) -> int | None:
        """CRC-32 of the confirmed bytes, if all of them passed through here or through an earlier process."""
        return self._crc if self.received >= self.confirmed else None

    def add(self, offset: int, data: bytes, *, is_first: bool = False) -> None:
        """Bytes from the agent; those that do not join on are ignored. `is_first`: it has none before them any more,
        because the server has those."""
        if is_first and offset > self.received:
            self._waiting.clear()
            self.received, self.confirmed = offset, max(offset, self.confirmed)
            self._crc = None
        if not offset <= self.received < offset + len(data):
            return
        data = data[self.received - offset :]
        known = min(max(self.confirmed - self.received, 0), len(data))
        self._sum(data[:known])
        self.received += len(data)
        self._waiting += data[known:]

    def head(self) -> bytes:
        """The next bytes for the server; they begin at `confirmed`."""
        return bytes(self._waiting[: self._most])

    def halve(self, refused: int) -> None:
        """The server, or what stands before it, does not take so many bytes at a time."""
        self._most = max(min(self._most, refused) // 2, LEAST_BYTES)

    def server_has(self, size: int) -> None:
        """The server has exactly the first `size` bytes."""
        if self.confirmed <= size <= self.received:
            self._sum(self._waiting[: size - self.confirmed])
            del self._waiting[: size - self.confirmed]
        elif size > self.received:
            self._sum(self._waiting)
            self._waiting.clear()
        else:
            self._waiting.clear()
            self.received = size
            self._crc = 0 if size == 0 else None
        self.confirmed = size

    def _sum(self, data: bytes | bytearray) -> None:
        if self._crc is not None:
            self._crc = zlib.crc32(data, self._crc)


class ResultRelay:
    """Step results on their way; `confirmed` and `received` are the next numbers wanted on either side, from 1."""

    __slots__ = ("_waiting", "bytes_waiting", "confirmed", "received")

    def __init__(self, *, confirmed: int = 1) -> None:
        self.confirmed = confirmed
        self.received = confirmed
        self._waiting: deque[tuple[int, bytes]] = deque()
        self.bytes_waiting = 0

    def add(self, seq: int, document: bytes) -> None:
        """A result from the agent; one that does not join on is ignored."""
        if seq != self.received:
            return
        self.received += 1
        if seq >= self.confirmed:
            self._waiting.append((seq, document))
            self.bytes_waiting += len(document)

    def head(self) -> list[bytes]:
        """The next results for the server, one at least, together hardly more than a chunk."""
        chosen: list[bytes] = []
        size = 0
        for _, document in self._waiting:
            if chosen and size + len(document) > CHUNK_BYTES:
                break
            chosen.append(document)
            size += len(document)
        return chosen

    def drop(self) -> None:
        """Nobody wants what waits; if it stayed, a job with many results could not read on."""
        self._waiting.clear()
        self.bytes_waiting = 0

    def server_wants(self, seq: int) -> None:
        """The server has every result before `seq`, and none from there on."""
        while self._waiting and self._waiting[0][0] < seq:
            self.bytes_waiting -= len(self._waiting.popleft()[1])
        first = self._waiting[0][0] if self._waiting else self.received
        if seq < first:
            self._waiting.clear()
            self.bytes_waiting = 0
            self.received = seq
        self.confirmed = seq
