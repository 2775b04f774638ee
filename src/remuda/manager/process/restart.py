"""A part of the manager that fails in a way nobody foresaw is logged and begun anew: it must not take others with it.

`supervision.py` runs all its parts through this. What fails again and again waits longer each time; what went well for
a while in between counts as if it had never failed.
"""

from collections.abc import Awaitable, Callable

from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.telemetry.logs import logger

STEADY_SECONDS = 60.0
"""What ran for so long ran well."""
_AGAIN = Backoff(first_seconds=1.0, ceiling_seconds=60.0)


async def begun_anew(name: str, work: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Until the work returns by itself."""
    failures = 0
    while True:
        began = clock.monotonic()
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - an unforeseen failure must stay that of one part
            failures = 1 if clock.monotonic() - began >= STEADY_SECONDS else failures + 1
            logger("manager").error("a part of the manager failed", failed=name, exc_info=error)
            await clock.sleep(_AGAIN.delay(failures))
        else:
            return
