"""Keeps files of the agent open that are written often, because opening a file takes as long as writing to it.

Only the most recently used files are open, so that thousands of waiting jobs need no descriptors."""

import os
from collections import OrderedDict

MOST = 256

_open: OrderedDict["OpenFile", int] = OrderedDict()


class OpenFile:
    __slots__ = ("_flags", "path")

    def __init__(self, path: str, *, flags: int = 0) -> None:
        self.path = path
        self._flags = flags | os.O_RDWR | os.O_CREAT | os.O_CLOEXEC

    def descriptor(self) -> int:
        """Open the file if necessary, and return its descriptor. Use it at once: using another file may close it."""
        descriptor = _open.get(self)
        if descriptor is None:
            if len(_open) >= MOST:
                os.close(_open.popitem(last=False)[1])
            descriptor = os.open(self.path, self._flags, 0o600)
            _open[self] = descriptor
        else:
            _open.move_to_end(self)
        return descriptor

    def close(self) -> None:
        descriptor = _open.pop(self, None)
        if descriptor is not None:
            os.close(descriptor)
