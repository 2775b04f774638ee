"""What Ctrl-C means during a run: before the pipeline exists, stop at once; after that, first cancel, then leave.

`remuda run` is the caller; SIGTERM and a terminal that is gone count as Ctrl-C.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from remuda.cli.exits import InterruptedRunError


class Interrupts:
    """The interrupts of one run."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        """Cancel the pipeline and wait for its end."""
        self.again = asyncio.Event()
        """Do not wait."""
        self._limit: asyncio.Timeout | None = None

    def arrive(self) -> None:
        """One more interrupt."""
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())
            self._limit = None
        (self.again if self.asked.is_set() else self.asked).set()

    @asynccontextmanager
    async def stopping(self) -> AsyncIterator[None]:
        """Work that an interrupt ends on the spot (its clean-up still runs), until `hold` is called in it."""
        try:
            async with asyncio.timeout(None) as limit:
                self._limit = limit
                if self.asked.is_set():
                    self.hold()
                    raise InterruptedRunError("interrupted")
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise InterruptedRunError("interrupted") from None
        finally:
            self._limit = None

    def hold(self) -> None:
        """From here on the work looks at `asked` and `again` itself."""
        self._limit = None
