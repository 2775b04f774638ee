"""Messages between a cell and a runner manager about interactive shells in jobs, failed jobs that are kept for
debugging, and jobs to stop; and the frames of a shell's byte streams.

The manager repeats one long-poll request (`LookRequest`) and gets the open requests of users (`Wanted`). Each request
lists the shells and held jobs of the manager, so neither side needs to remember anything across a restart. A shell is
two byte streams with exact offsets, one in each direction. They consist of *frames*, which the cell forwards without
reading them. This module both encodes and decodes frames:

    to the command      d bytes for stdin · s columns and rows · e end of stdin
    from the command    o started · d bytes of stdout · x bytes of stderr · c exit code, last frame
                        r why the shell could not be opened, or ended without an exit code, last frame
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
    """The stream has bytes that are not a valid frame."""


class HeldJob(msgspec.Struct, frozen=True, kw_only=True):
    """A failed job whose environment is kept for debugging."""

    job_id: int
    seconds: float
    """How much longer the environment is kept."""


class WantedStop(msgspec.Struct, frozen=True, kw_only=True):
    """A job that the manager should stop because it was canceled or has ended at the cell, with its status there."""

    job_id: int
    status: str
    """`canceling`, or the final status of the job."""


class LookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request body of POST /api/remuda/v1/runners/wanted, the manager's long poll for requests of users."""

    token: str = ""
    system_id: str | None = None
    shells: tuple[str, ...] = ()
    """Ids of the shells that the manager serves now."""
    held: tuple[HeldJob, ...] = ()
    releasing: tuple[int, ...] = ()
    """Held jobs that the manager is releasing now."""
    stops: tuple[WantedStop, ...] | None = None
    """The jobs to stop that the manager already knows. None: the manager does not support this."""


class WantedShell(msgspec.Struct, frozen=True, kw_only=True):
    """A shell that the manager should open for a user; if `begun` (by an earlier process), it should only close it."""

    id: str
    job_id: int
    command: tuple[str, ...] = ()
    terminal: bool = True
    columns: int = 80
    rows: int = 24
    term: str = ""
    begun: bool = False
    """The shell was already served by an earlier process; its command has ended."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A cell's answer to a manager's long poll: shells to open, jobs to stop, and failed jobs that need not be kept for
    debugging any more. Shells and jobs that the manager already handles are left out."""

    version: int = VERSION
    shells: tuple[WantedShell, ...] = ()
    release: tuple[int, ...] = ()
    """Held jobs that the manager should release."""
    stops: tuple[WantedStop, ...] = ()
    """All jobs of the manager that it should stop, including those that it already knows."""


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
        raise FrameError("the size of a terminal is invalid") from None
    return columns, rows


def code_of(data: bytes) -> int:
    try:
        (code,) = _CODE.unpack(data)
    except struct.error:
        raise FrameError("an exit code is invalid") from None
    return int(code)


class Frames:
    """Splits a byte stream into frames, whatever the sizes of its pieces. `kinds`: the allowed ones, `TO_COMMAND` or
    `FROM_COMMAND`; another one raises FrameError."""

    def __init__(self, kinds: bytes) -> None:
        self._kinds = kinds
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Add bytes of the stream, and return the kind and data of each frame that is complete now."""
        rest = self._rest + data
        frames, place = [], 0
        while len(rest) - place >= _HEAD.size:
            kind, size = _HEAD.unpack_from(rest, place)
            if kind not in self._kinds or size > LONGEST_FRAME:
                raise FrameError("the stream of a shell has an invalid frame")
            if len(rest) - place - _HEAD.size < size:
                break
            begin = place + _HEAD.size
            frames.append((kind, rest[begin : begin + size]))
            place = begin + size
        self._rest = rest[place:]
        return frames


TO_COMMAND = DATA + SIZE + END
FROM_COMMAND = OPENED + DATA + ERRORS + EXIT + REFUSED
