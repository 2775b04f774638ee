"""Tracks how many jobs need slots of a fleet: accepted jobs without a slot, and the demand that the server reports.

A task of its own asks the server, so a slow server delays no plan. Jobs accepted since the last answer do not count as
waiting at the server. An answer older than `BELIEVED_SECONDS` is ignored; then only accepted jobs count."""

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.lib.clock import Clock
from remuda.taskscaler.core.values import Demand, KeyDemand
from remuda.taskscaler.fleet.setup import FetchDemand, FleetSetup
from remuda.taskscaler.loop.deadlines import within
from remuda.telemetry.logs import logger

ASK_SECONDS = 10.0
BELIEVED_SECONDS = 60.0


class DemandTracker:
    """How many jobs need slots of a fleet. `ask` fetches the server's part; None: it reports none. `changed` is called
    after an answer. `waiting`: ids of accepted jobs without a slot; None: all added and not removed jobs."""

    def __init__(
        self,
        ask: FetchDemand | None,
        clock: Clock,
        *,
        changed: Callable[[], None],
        waiting: Callable[[], Iterable[str]] | None = None,
    ) -> None:
        self._ask = ask
        self._waiting = waiting
        self._clock = clock
        self._changed = changed
        self._answer = Demand()
        self._answered_at = float("-inf")
        self._accepted: Counter[str] = Counter()
        self._keys: dict[str, str] = {}
        self.is_closed = False
        """True: no jobs are requested, so the server's demand does not count."""
        self.error = ""

    def add(self, holder: str, key: str) -> None:
        """Count an accepted job (id `holder`) as waiting. `key`: name of its capability key (its needs of a runner)."""
        self._keys[holder] = key
        self._accepted[key] += 1

    def remove(self, holder: str) -> None:
        self._keys.pop(holder, None)

    def demand(self) -> Demand:
        unmatched = self._count_by_key()
        is_believed = not self.is_closed and self._clock.now() - self._answered_at <= BELIEVED_SECONDS
        keys = [
            replace(key, waiting=unmatched.pop(key.key, 0), ready=max(key.ready - self._accepted[key.key], 0))
            for key in (self._answer.keys if is_believed else ())
        ]
        keys += [KeyDemand(key=name, waiting=jobs) for name, jobs in sorted(unmatched.items()) if jobs]
        return Demand(keys=tuple(keys))

    async def run(self, setup: Callable[[], FleetSetup]) -> None:
        """Fetch the server's demand at intervals until cancelled. Returns at once if `ask` is None. `setup` returns the
        current configuration, with the interval."""
        while self._ask is not None:
            if self.is_closed:
                self.error = ""
                await self._clock.sleep(setup().demand_seconds)
                continue
            before = Counter(self._accepted)
            try:
                answer = await within(
                    self._clock, ASK_SECONDS, self._fetch(self._ask), what="the request for the demand"
                )
            except (TemporaryError, PermanentError) as error:
                if not self.error:
                    logger("scaler").warning(
                        "cannot ask the server how many jobs wait; trying again, using the last answer for a minute",
                        fleet=setup().name,
                        cause=str(error),
                    )
                self.error = str(error)
            else:
                is_new = answer != self._answer or before
                self._answer, self._answered_at, self.error = answer, self._clock.now(), ""
                self._accepted -= before
                if is_new:
                    self._changed()
            await self._clock.sleep(setup().demand_seconds)

    async def _fetch(self, ask: FetchDemand) -> Demand:
        return await ask(self._count_by_key())

    def _count_by_key(self) -> Counter[str]:
        return Counter(self._keys.get(holder, "") for holder in (self._waiting or self._keys.copy)())
