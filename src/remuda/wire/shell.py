"""What a cell and a runner manager say to each other about people who look into jobs or stop them, and the bytes.

The manager asks what is wanted of it (`LookRequest`, `Wanted`), over and over, and says each time what it has: whoever
restarts need remember nothing. A shell is two byte streams that only grow, one each way, with exact offsets; what is in
them is *frames*, which the cell passes on and never reads. Both ends of a frame are here, so that they cannot differ.

    to the command      d bytes for stdin · s columns and rows · e no more stdin
    from the command    o it runs · d bytes · x bytes of stderr · c exit code, the end · r why there is none, the end
"""

import struct

import msgspec

VERSION = 1
LONGEST_FRAME = 1024 * 1024
_HEAD = struct.Struct(">cI")
_SIZE = struct.Struct(">HH")
_CODE = struct.Struct(">i")

DATA, ERRORS, SIZE, END, OPENED, EXIT, REFUSED = b"d", b"x", b"s", b"e", b"o", b"c", b"r"


class FrameError(ValueError):
    """Bytes that no frame begins with."""


class HeldJob(msgspec.Struct, frozen=True, kw_only=True):
    """A failed job whose environment is still there."""

    job_id: int
    seconds: float
    """For how long it will be."""


class WantedStop(msgspec.Struct, frozen=True, kw_only=True):
    """A job that the manager should stop, or has stopped by itself."""

    job_id: int
    status: str
    """`canceling`, or how it ended."""


class LookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request body of POST /api/remuda/v1/runners/wanted."""

    token: str = ""
    system_id: str | None = None
    shells: tuple[str, ...] = ()
    """Those that the manager attends to."""
    held: tuple[HeldJob, ...] = ()
    releasing: tuple[int, ...] = ()
    """Jobs that it lets go just now."""
    stops: tuple[WantedStop, ...] | None = None
    """What it was told last of jobs to stop; None: it does not want to know."""


class WantedShell(msgspec.Struct, frozen=True, kw_only=True):
    """A shell that somebody wants, or that an earlier process of the manager had."""

    id: str
    job_id: int
    command: tuple[str, ...] = ()
    terminal: bool = True
    columns: int = 80
    rows: int = 24
    term: str = ""
    begun: bool = False
    """It was attended to before; what ran there is gone."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell wants of a manager now, beyond what that said it does."""

    version: int = VERSION
    shells: tuple[WantedShell, ...] = ()
    release: tuple[int, ...] = ()
    """Held jobs to let go."""
    stops: tuple[WantedStop, ...] = ()
    """All jobs that the manager has and should stop, whether it was told of them before or not."""


def frame(kind: bytes, data: bytes = b"") -> bytes:
    return _HEAD.pack(kind, len(data)) + data


def size_frame(columns: int, rows: int) -> bytes:
    return frame(SIZE, _SIZE.pack(min(columns, 0xFFFF), min(rows, 0xFFFF)))


def exit_frame(code: int) -> bytes:
    return frame(EXIT, _CODE.pack(code))


def refusal_frame(reason: str) -> bytes:
    return frame(REFUSED, reason.encode()[: LONGEST_FRAME // 2])


def size_of(data: bytes) -> tuple[int, int]:
    try:
        columns, rows = _SIZE.unpack(data)
    except struct.error:
        raise FrameError("a size that is none") from None
    return columns, rows


def code_of(data: bytes) -> int:
    try:
        (code,) = _CODE.unpack(data)
    except struct.error:
        raise FrameError("an exit code that is none") from None
    return int(code)


class Frames:
    """Takes a stream apart, however its bytes come."""

    def __init__(self, kinds: bytes) -> None:
        self._kinds = kinds
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The frames that are whole now."""
        rest = self._rest + data
        found, place = [], 0
        while len(rest) - place >= _HEAD.size:
            kind, size = _HEAD.unpack_from(rest, place)
            if kind not in self._kinds or size > LONGEST_FRAME:
                raise FrameError("the stream of a shell holds what is no frame")
            if len(rest) - place - _HEAD.size < size:
                break
            begin = place + _HEAD.size
            found.append((kind, rest[begin : begin + size]))
            place = begin + size
        self._rest = rest[place:]
        return found


TO_COMMAND = DATA + SIZE + END
FROM_COMMAND = OPENED + DATA + ERRORS + EXIT + REFUSED
