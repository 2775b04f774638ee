"""Calls of the Linux kernel that the standard library lacks: inotify, subreaper, punching holes into files.

`Changes` reports when a file has grown. A watch calls back once; the reader arms it again, so that much output costs
few wake-ups. Without inotify, files are polled every 50 ms. A wake-up is only a hint: perhaps nothing has changed."""

import asyncio
import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

POLL_SECONDS = 0.05

_libc = ctypes.CDLL(None, use_errno=True)
_EVENT = struct.Struct("iIII")
_IN_MODIFY, _IN_ONESHOT, _IN_Q_OVERFLOW = 0x2, 0x80000000, 0x4000
_FALLOC_KEEP_SIZE_PUNCH_HOLE = 0x1 | 0x2
_PR_SET_CHILD_SUBREAPER = 36


class Pulse:
    """Calls all its callbacks every 50 ms, for polling where the kernel cannot notify. Stops if there are none."""

    def __init__(self) -> None:
        self._callbacks: set[Callable[[], None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, callback: Callable[[], None]) -> None:
        self._callbacks.add(callback)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL_SECONDS, self._beat)

    def remove(self, callback: Callable[[], None]) -> None:
        self._callbacks.discard(callback)

    def _beat(self) -> None:
        self._timer = None
        for callback in tuple(self._callbacks):
            callback()
        if self._callbacks:
            self._timer = asyncio.get_running_loop().call_later(POLL_SECONDS, self._beat)


class Changes:
    def __init__(self, pulse: Pulse, *, use_inotify: bool = True) -> None:
        self._pulse = pulse
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._fd = -1
        if use_inotify and hasattr(_libc, "inotify_init1"):
            self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd >= 0:
            asyncio.get_running_loop().add_reader(self._fd, self._read)

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def watch(self, path: Path | str, callback: Callable[[], None]) -> "Watch":
        """Return a watch that calls `callback` when the file changes, once after each call of its method `arm`."""
        return Watch(self, path, callback)

    def add(self, path: Path | str, callback: Callable[[], None]) -> int:
        watch: int = -1
        if self._fd >= 0:
            watch = _libc.inotify_add_watch(self._fd, os.fsencode(path), _IN_MODIFY | _IN_ONESHOT)
        if watch >= 0:
            self._callbacks[watch] = callback
        else:
            self._pulse.add(callback)
        return watch

    def remove(self, watch: int, callback: Callable[[], None]) -> None:
        # The kernel drops the watch when the file is removed, which is soon. Removing it here costs half a millisecond.
        self._pulse.remove(callback)
        self._callbacks.pop(watch, None)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 64 * 1024)
        except BlockingIOError:
            return
        offset = 0
        while offset < len(data):
            watch, mask, _, name_bytes = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size + name_bytes
            if mask & _IN_Q_OVERFLOW:
                for callback in self._callbacks.values():
                    callback()
            elif callback_of_watch := self._callbacks.pop(watch, None):
                callback_of_watch()


class Watch:
    def __init__(self, changes: Changes, path: Path | str, callback: Callable[[], None]) -> None:
        self._changes = changes
        self._path = path
        self._callback = callback
        self._number = -1

    def arm(self) -> None:
        """Have the callback called once, after the next change of the file (without inotify: every 50 ms until
        `close`). Calling `arm` again before that has no effect."""
        self._number = self._changes.add(self._path, self._callback)

    def close(self) -> None:
        self._changes.remove(self._number, self._callback)


def become_subreaper() -> None:
    """Become the parent of all descendants whose own parents end (PR_SET_CHILD_SUBREAPER)."""
    if hasattr(_libc, "prctl"):
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def punch_hole(fd: int, offset: int, size: int) -> None:
    """Free the disk space of a part of a file, which then reads as zeros, if the file system supports that."""
    if hasattr(_libc, "fallocate"):
        _libc.fallocate(fd, _FALLOC_KEEP_SIZE_PUNCH_HOLE, ctypes.c_int64(offset), ctypes.c_int64(size))
