"""Adds text for the user to git's answer to a push. git shows it as lines that begin with `remote: `.

The answer consists of packets: four hexadecimal digits with the packet's length, these digits included, then its bytes.
If the client can show text, the first byte of a packet is its band: 1 for the report about the refs, 2 for text. A
packet `0000` ends the answer, so it is held back until the text is known. The report, which is split over packets of
band 1, has packets of its own, such as `ok refs/heads/main`.

Invariant: an answer without bands, or one that this module does not understand, is passed on unchanged."""

_END = b"0000"
_HEAD_BYTES = 4
_REPORT, _TEXT = 1, 2
_TEXT_BYTES = 900
"""Bytes of text in a packet. Old clients take packets of at most 1000 bytes."""
_REPORT_BYTES = 1024 * 1024
"""How much of the report is read: about 20,000 refs."""


class PushReport:
    def __init__(self) -> None:
        self._rest = b""
        self._report = bytearray()
        self._is_understood = True
        self._is_ended = False

    def pass_on(self, piece: bytes) -> bytes:
        """Take the next piece of git's answer. Returns the bytes to send now: complete packets, but not the end."""
        if not self._is_understood:
            return piece
        answer = self._rest + piece
        at = 0
        packets = bytearray()
        while self._is_understood and len(answer) - at >= _HEAD_BYTES:
            size = _packet_size(answer[at : at + _HEAD_BYTES])
            if self._is_ended or size is None or (size and size <= _HEAD_BYTES):
                self._is_understood = False
            elif not size:
                self._is_ended = True
                at += _HEAD_BYTES
            elif len(answer) - at < size:
                break
            else:
                packet = answer[at : at + size]
                at += size
                packets += packet
                self._note(packet)
        self._rest = answer[at:]
        if not self._is_understood:
            packets += (_END if self._is_ended else b"") + self._rest
            self._rest, self._is_ended = b"", False
        return bytes(packets)

    def _note(self, packet: bytes) -> None:
        band, content = packet[_HEAD_BYTES], packet[_HEAD_BYTES + 1 :]
        if band not in (_REPORT, _TEXT):
            self._is_understood = False
        elif band == _REPORT and len(self._report) + len(content) <= _REPORT_BYTES:
            self._report += content

    @property
    def can_show_text(self) -> bool:
        """True if the answer is complete and the client shows text."""
        return self._is_understood and self._is_ended

    def accepted_refs(self) -> list[str]:
        """Return the full names of the refs that git has moved, created or deleted, from its report."""
        refs = []
        report = bytes(self._report)
        at = 0
        while (size := _packet_size(report[at : at + _HEAD_BYTES])) is not None and size > _HEAD_BYTES:
            line = report[at + _HEAD_BYTES : at + size]
            at += size
            if line.startswith(b"ok "):
                refs.append(line[3:].removesuffix(b"\n").decode(errors="replace"))
        return refs

    def finish(self, text: str = "") -> bytes:
        """Return what is left to send: `text` for the user, if the client can show it, and the end of the answer."""
        packets = bytearray(self._rest)
        self._rest = b""
        if self.can_show_text:
            content = text.encode(errors="replace")
            for start in range(0, len(content), _TEXT_BYTES):
                part = content[start : start + _TEXT_BYTES]
                packets += b"%04x%c" % (_HEAD_BYTES + 1 + len(part), _TEXT) + part
        return bytes(packets) + (_END if self._is_ended else b"")


def _packet_size(head: bytes) -> int | None:
    """Return the length of the packet with this head; 0 for the end of a list; None if this is no head."""
    if len(head) < _HEAD_BYTES or any(byte not in b"0123456789abcdefABCDEF" for byte in head):
        return None
    return int(head, 16)
