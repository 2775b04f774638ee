"""What Ctrl-C does during a run: before the pipeline exists it stops the run; after that the first one cancels the
pipeline and the second one leaves. SIGTERM and a closed terminal count as Ctrl-C. Used by `remuda run`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from remuda.lib.exits import InterruptedRunError


class Interrupts:
    def __init__(self) -> None:
        self.asked = asyncio.Event()
        """Cancel the pipeline and wait for its end."""
        self.again = asyncio.Event()
        """Leave without waiting."""
        self._limit: asyncio.Timeout | None = None

    def arrive(self) -> None:
        """Handle Ctrl-C, SIGTERM or a closed terminal. Called by the signal handler."""
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())
            self._limit = None
        (self.again if self.asked.is_set() else self.asked).set()

    @asynccontextmanager
    async def stop_on_interrupt(self) -> AsyncIterator[None]:
        """An interrupt cancels the block (its clean-up still runs), until `hold` is called in it."""
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
        """From now on interrupts do not cancel the block: it checks `asked` and `again` itself."""
        self._limit = None
