"""Buffers for the log bytes and step results of one job, between agent and server. Pure code without I/O.

Agent and server use the same positions (byte offsets, sequence numbers). Data waits here until the server has confirmed
it. Data out of sequence is ignored, because it can be requested from the agent again."""

import zlib
from collections import deque

CHUNK_BYTES = 1 << 20
"""Most bytes of one call with log or results. After a pause the agent is asked for more when fewer bytes wait."""
LEAST_BYTES = 1 << 10
"""Chunks are not made smaller than this."""
HIGH_BYTES = 2 << 20
"""Above this the agent is asked to pause, so that a slow server does not fill the memory."""


class TraceRelay:
    """Buffers log bytes: the server has all before the offset `confirmed`, the agent has sent all before `received`."""

    __slots__ = ("_crc", "_most", "_waiting", "confirmed", "received")

    def __init__(self, *, confirmed: int = 0, crc: int | None = 0) -> None:
        self.confirmed = confirmed
        self.received = confirmed
        self._waiting = bytearray()
        self._most = CHUNK_BYTES
        self._crc = crc

    @property
    def bytes_waiting(self) -> int:
        return len(self._waiting)

    @property
    def crc(self) -> int | None:
        """CRC-32 of all bytes that the server has; None if unknown, for example because the agent deleted some."""
        return self._crc if self.received >= self.confirmed else None

    def add(self, offset: int, data: bytes, *, is_first: bool = False) -> None:
        """Add bytes from the agent. `is_first`: it deleted all bytes before `offset`, which the server has."""
        if is_first and offset > self.received:
            self._waiting.clear()
            self.received, self.confirmed = offset, max(offset, self.confirmed)
            self._crc = None
        if not offset <= self.received < offset + len(data):
            return
        data = data[self.received - offset :]
        confirmed = min(max(self.confirmed - self.received, 0), len(data))
        self._sum(data[:confirmed])
        self.received += len(data)
        self._waiting += data[confirmed:]

    def head(self) -> bytes:
        """Return the next chunk to send; it begins at offset `confirmed`."""
        return bytes(self._waiting[: self._most])

    def halve(self, refused: int) -> None:
        """Send smaller chunks from now on: the server or a proxy refused one of `refused` bytes as too large."""
        self._most = max(min(self._most, refused) // 2, LEAST_BYTES)

    def server_has(self, size: int) -> None:
        """Set how many bytes the server has. If it has fewer than before, the agent must send bytes again."""
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
    """Buffers step results. `received` is the number (from 1) of the next result from the agent, `confirmed` that of
    the next one for the server."""

    __slots__ = ("_waiting", "bytes_waiting", "confirmed", "received")

    def __init__(self, *, confirmed: int = 1) -> None:
        self.confirmed = confirmed
        self.received = confirmed
        self._waiting: deque[tuple[int, bytes]] = deque()
        self.bytes_waiting = 0

    def add(self, seq: int, document: bytes) -> None:
        if seq != self.received:
            return
        self.received += 1
        if seq >= self.confirmed:
            self._waiting.append((seq, document))
            self.bytes_waiting += len(document)

    def head(self) -> list[bytes]:
        """Return the next results to send, together at most CHUNK_BYTES; a larger result is returned alone."""
        batch: list[bytes] = []
        size = 0
        for _, document in self._waiting:
            if batch and size + len(document) > CHUNK_BYTES:
                break
            batch.append(document)
            size += len(document)
        return batch

    def drop(self) -> None:
        """Delete waiting results, as the server accepts none: a full buffer would stop reading the job's events."""
        self._waiting.clear()
        self.bytes_waiting = 0

    def server_wants(self, seq: int) -> None:
        """Set the number of the next result that the server needs. For an earlier one the agent must send again."""
        while self._waiting and self._waiting[0][0] < seq:
            self.bytes_waiting -= len(self._waiting.popleft()[1])
        first = self._waiting[0][0] if self._waiting else self.received
        if seq < first:
            self._waiting.clear()
            self.bytes_waiting = 0
            self.received = seq
        self.confirmed = seq
