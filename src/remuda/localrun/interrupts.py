"""Handles Ctrl-C during `remuda run`; SIGTERM and a closed terminal count as Ctrl-C. Before the pipeline exists, Ctrl-C
stops the run. After that, the first Ctrl-C cancels the pipeline; the second one ends the run without waiting for the
end of the pipeline."""

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
        """Record an interrupt and cancel the block of `stop_on_interrupt`, if any. Called by the signal handler."""
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())
            self._limit = None
        (self.again if self.asked.is_set() else self.asked).set()

    @asynccontextmanager
    async def stop_on_interrupt(self) -> AsyncIterator[None]:
        """Cancel the `async with` block at the first interrupt and raise InterruptedRunError; cleanup in the block
        still runs. After the block has called `hold`, interrupts do not cancel it any more."""
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
        """Make later interrupts not cancel the current block of `stop_on_interrupt`. They only set `asked` and `again`,
        which the block checks."""
        self._limit = None
