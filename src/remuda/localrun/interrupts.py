"""Handles Ctrl-C during `remuda run`; SIGTERM and a closed terminal count as Ctrl-C. Before the pipeline exists, it
stops the run. Later, the first one cancels the pipeline; the second ends the run without waiting for its end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from remuda.lib.exits import InterruptedRunError


class Interrupts:
    def __init__(self) -> None:
        self.asked = asyncio.Event()
        """Set by the first interrupt: cancel the pipeline and wait for its end."""
        self.again = asyncio.Event()
        """Set by the second interrupt: exit without waiting."""
        self._limit: asyncio.Timeout | None = None

    def arrive(self) -> None:
        """Signal handler: cancel the block of `stop_on_interrupt`; set `asked`, or `again` at later interrupts."""
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())
            self._limit = None
        (self.again if self.asked.is_set() else self.asked).set()

    @asynccontextmanager
    async def stop_on_interrupt(self) -> AsyncIterator[None]:
        """Run the `async with` block and cancel it at the first interrupt; then raise InterruptedRunError. Cleanup code
        in the block still runs. If the block calls `hold`, later interrupts do not cancel it."""
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
        """From now on, interrupts do not cancel the current block, which must check `asked` and `again` itself."""
        self._limit = None
