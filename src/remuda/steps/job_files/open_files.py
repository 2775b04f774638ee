"""Files of the agent that are written again and again, kept open: to open one takes as long as to write to it.

Only so many are open at a time, those that were used last, so that thousands of waiting jobs cost no descriptors. Who
uses one asks for its descriptor anew each time. Used by `journal` and `logfile`; no step ever gets one of these.
"""

import os
from collections import OrderedDict

MOST = 256

_open: OrderedDict["OpenFile", int] = OrderedDict()


class OpenFile:
    """A file that is there as long as it is used, and made when it is not there."""

    __slots__ = ("_flags", "path")

    def __init__(self, path: str, *, flags: int = 0) -> None:
        self.path = path
        self._flags = flags | os.O_RDWR | os.O_CREAT | os.O_CLOEXEC

    def descriptor(self) -> int:
        """For what is done at once: it may be closed as soon as another is asked for."""
        found = _open.get(self)
        if found is None:
            if len(_open) >= MOST:
                os.close(_open.popitem(last=False)[1])
            found = os.open(self.path, self._flags, 0o600)
            _open[self] = found
        else:
            _open.move_to_end(self)
        return found

    def close(self) -> None:
        """It may be used again."""
        found = _open.pop(self, None)
        if found is not None:
            os.close(found)
