"""What jobs ask for: those that wait here, and what a server tells of its own.

A server is asked now and then, in a task of its own, so that a slow one holds up no plan. Decided here: how an answer
is kept right until the next one. Jobs that wait here are counted here, and those that were accepted since the server
was asked do not wait there any more. An answer that is too old counts for nothing: then only jobs that wait here do.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping

from msgspec.structs import replace

from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.lib.clock import Clock
from remuda.taskscaler.core.values import Demand, KeyDemand
from remuda.taskscaler.fleet.setup import FleetSetup
from remuda.taskscaler.loop.deadlines import within
from remuda.telemetry.logs import logger

FetchDemand = Callable[[Mapping[str, int]], Awaitable[Demand]]
ASK_SECONDS = 10.0
BELIEVED_SECONDS = 60.0


class DemandTracker:
    """The demand of a fleet."""

    def __init__(
        self,
        ask: FetchDemand | None,
        clock: Clock,
        *,
        changed: Callable[[], None],
        waiting: Callable[[], Iterable[str]] | None = None,
    ) -> None:
        """`waiting`: the holders that wait for a slot now; without it all that are not done."""
        self._ask = ask
        self._waiting = waiting
        self._clock = clock
        self._changed = changed
        self._told = Demand()
        self._told_at = float("-inf")
        self._accepted: Counter[str] = Counter()
        self._keys: dict[str, str] = {}
        self.is_closed = False
        """What waits at the server is none of our business: nobody asks for it."""
        self.error = ""

    def add(self, holder: str, key: str) -> None:
        """A job was accepted, and waits here from now on."""
        self._keys[holder] = key
        self._accepted[key] += 1

    def remove(self, holder: str) -> None:
        """It will not wait any more."""
        self._keys.pop(holder, None)

    def demand(self) -> Demand:
        """As a plan wants it."""
        left = self._count_by_key()
        is_believed = not self.is_closed and self._clock.now() - self._told_at <= BELIEVED_SECONDS
        keys = [
            replace(one, waiting=left.pop(one.key, 0), ready=max(one.ready - self._accepted[one.key], 0))
            for one in (self._told.keys if is_believed else ())
        ]
        keys += [KeyDemand(key=key, waiting=jobs) for key, jobs in sorted(left.items()) if jobs]
        return Demand(keys=tuple(keys))

    async def run(self, setup: Callable[[], FleetSetup]) -> None:
        """Ask until it is cancelled, if there is somebody to ask."""
        while self._ask is not None:
            if self.is_closed:
                self.error = ""
                await self._clock.sleep(setup().demand_seconds)
                continue
            before = Counter(self._accepted)
            try:
                told = await within(
                    self._clock, ASK_SECONDS, self._answer(self._ask), what="the question for the demand"
                )
            except (TemporaryError, PermanentError) as error:
                if not self.error:
                    logger("scaler").warning("the demand is not known", fleet=setup().name, cause=str(error))
                self.error = str(error)
            else:
                is_new = told != self._told or before
                self._told, self._told_at, self.error = told, self._clock.now(), ""
                self._accepted -= before
                if is_new:
                    self._changed()
            await self._clock.sleep(setup().demand_seconds)

    async def _answer(self, ask: FetchDemand) -> Demand:
        return await ask(self._count_by_key())

    def _count_by_key(self) -> Counter[str]:
        return Counter(self._keys.get(holder, "") for holder in (self._waiting or self._keys.copy)())
