"""Records the usage of the cell (running and waiting jobs, slots) every few seconds, for charts of demand against
capacity. Each process of a cell calls it; the first one stores the sample of an interval, and the others store nothing.
`core.waiting.usage` has the form of the history. A lost or late sample only makes the chart coarser."""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from remuda.cell.core.waiting import usage
from remuda.cell.core.waiting.usage import Usage
from remuda.cell.dispatch.memory import DispatchMemory
from remuda.cell.errors import CellError
from remuda.cell.store.ports import Store
from remuda.cell.values import LEGACY, Page, Runner, RunnerManager
from remuda.lib.clock import Clock
from remuda.telemetry.logs import logger

_REUSE_FACTOR = 10
"""Runners and managers are read again after this multiple of the time that it takes."""
_ALL = Page(size=100_000, counted=False)
_log = logger("cell")


class UsageRecorder:
    def __init__(self, store: Store, memory: DispatchMemory, clock: Clock) -> None:
        self._store = store
        self._memory = memory
        self._clock = clock
        self._read: tuple[float, float, Sequence[Runner], Sequence[RunnerManager]] = (-math.inf, 0.0, (), ())
        """When runners and managers were read, how many seconds that took, and the rows."""

    async def watch(self, stop: asyncio.Event) -> None:
        """Record a sample in every interval until `stop` is set."""
        async with asyncio.TaskGroup() as group:
            rounds = group.create_task(self._run(), name="cell usage: samples")
            await stop.wait()
            rounds.cancel()

    async def _run(self) -> None:
        while True:
            try:
                await self.record()
            except CellError as error:
                _log.warning("cannot record the usage of the cell; the chart has a gap", error=str(error))
            now = self._clock.now()
            await self._clock.sleep(usage.start_of_interval(now) + usage.INTERVAL_SECONDS - now)

    async def record(self) -> Usage:
        """Count the jobs and slots now, and store the sample unless this interval has one. Returns the sample."""
        sample = await self.measure()
        name = usage.name_of_hour(sample.at)
        # Most samples change nothing; they need no transaction.
        if usage.add_sample(await self._store.settings.load_setting(name), sample) is not None:
            await self._store.settings.change_setting(name, lambda stored: usage.add_sample(stored, sample))
        return sample

    async def measure(self) -> Usage:
        """Count the jobs and slots now. If there are many runners, they may be from a few seconds ago."""
        now = self._clock.now()
        read_at, took, runners, managers = self._read
        if not 0 <= now - read_at < _REUSE_FACTOR * took:
            runners, _ = await self._store.runners.list_runners(_ALL)
            managers = await self._store.runners.list_all_managers()
            self._read = now, self._clock.now() - now, runners, managers
        jobs = self._memory.assigned_jobs.values()
        running = Counter((int(job.runner_id or 0), job.system_id or LEGACY) for job in jobs)
        slots, present = usage.count_slots(runners, managers, running, now)
        waiting = len(self._memory.waiting_jobs)
        return Usage(usage.start_of_interval(now), running.total(), waiting, slots, present)

    async def load_stored(self) -> Mapping[str, str]:
        """Return the stored history, for `usage.read_samples`."""
        return await self._store.settings.load_settings(usage.ring_names())
