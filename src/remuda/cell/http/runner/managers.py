"""Records in the store which runner managers poll with a runner's token, and caches runners by the hash of their token.
A manager that polls often is written only once a minute, but at once if it reports something new about itself."""

import math
from collections import OrderedDict
from typing import Any

from msgspec.structs import replace

from remuda.cell.errors import NotFoundError
from remuda.cell.store.ports import Store
from remuda.cell.values import LEGACY, Job, Runner, RunnerManager
from remuda.lib.clock import Clock
from remuda.model.job import RunnerId
from remuda.wire.runner_api import RunnerInfo

WRITE_EVERY_SECONDS = 60
MAX_CAPACITY = 100_000
_REMEMBERED = 10_000
_MAX_SYSTEM_ID = 64
_MAX_TEXT = 255
_MAX_PROBLEM = 1000


class Managers:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._written: OrderedDict[tuple[RunnerId, str], RunnerManager] = OrderedDict()
        self._said: dict[tuple[RunnerId, str], RunnerInfo] = {}
        """The last description that each manager in `_written` sent of itself."""
        self._runners: OrderedDict[str, Runner] = OrderedDict()

    def find_runner(self, token_hash: str) -> Runner | None:
        """The cached runner with this token, perhaps outdated or removed; None if not cached or the token expired."""
        runner = self._runners.get(token_hash)
        is_expired = runner is None or (runner.token_expires_at or math.inf) <= self._clock.wall()
        return None if is_expired else runner

    def remember_runner(self, runner: Runner) -> None:
        self._runners[runner.token_hash] = runner
        self._runners.move_to_end(runner.token_hash)
        if len(self._runners) > _REMEMBERED:
            self._runners.popitem(last=False)

    async def try_note_call(
        self,
        runner_id: RunnerId,
        system_id: str | None,
        info: RunnerInfo | None,
        ip: str,
        load: dict[str, Any] | None = None,
        problem: str | None = None,
    ) -> bool:
        """Record a call of a runner manager (see `note_call`). Returns False if the runner was removed, else True."""
        try:
            await self.note_call(runner_id, system_id, info, ip, load, problem)
        except NotFoundError:
            return False
        return True

    def is_fresh(self, job: Job, ip: str) -> bool:
        """True if a call about this job need not be stored: the job's runner manager called from the same address, and
        that was stored, in the last minute; or the job has no runner."""
        if job.runner_id is None:
            return True
        before = self._written.get(_key(job.runner_id, job.system_id))
        if before is None or before.ip_address != ip:
            return False
        return self._clock.now() - before.contacted_at < WRITE_EVERY_SECONDS

    async def note_job_call(self, job: Job, info: RunnerInfo | None, ip: str) -> None:
        """Record a call about a job as a sign of life of its runner manager. Does nothing if the runner was removed."""
        if job.runner_id is not None:
            await self.try_note_call(job.runner_id, job.system_id, info, ip)

    async def note_call(
        self,
        runner_id: RunnerId,
        system_id: str | None,
        info: RunnerInfo | None,
        ip: str,
        load: dict[str, Any] | None = None,
        problem: str | None = None,
    ) -> None:
        """Record time and address of a manager's call: in the store once a minute, or at once if something is new. A
        new `load` (running jobs, free slots) alone is written at once only if none is stored yet. `problem`: why the
        manager takes no jobs (empty: it does); None leaves what it reported before. Raises NotFoundError if a write is
        needed and the runner was removed."""
        now = self._clock.now()
        key = _key(runner_id, system_id)
        before = self._written.get(key)
        if before is None and info is None:
            # It may have reported itself to another process of the cell.
            before = await self._store.runners.load_manager(*key)
        is_recent = before is not None and now - before.contacted_at < WRITE_EVERY_SECONDS
        is_news = info is not None and info != self._said.get(key)
        running, free = _number((load or {}).get("running")), _number((load or {}).get("free"))
        if running is not None and before is not None and before.load_running is None:
            is_news = True
        problem = (before.problem if before is not None else "") if problem is None else problem[:_MAX_PROBLEM]
        if before is not None and before.problem != problem:
            is_news = True
        if before is not None and is_recent and not is_news and before.ip_address == ip:
            return  # nearly all calls
        manager = replace(_manager(key, info, before, ip, now), problem=problem)
        if load is not None:
            manager = replace(manager, load_running=running, load_free=free)
        elif before is not None:
            manager = replace(manager, load_running=before.load_running, load_free=before.load_free)
        if before is None or not is_recent or replace(manager, contacted_at=before.contacted_at) != before:
            await self._store.runners.put_manager(manager)
            self._written[key] = manager
        if info is not None:
            self._said[key] = info
        if key in self._written:
            self._written.move_to_end(key)
        if len(self._written) > _REMEMBERED:
            self._said.pop(self._written.popitem(last=False)[0], None)

    async def remove(self, runner_id: RunnerId, system_id: str) -> bool:
        """Remove a manager from store and cache; its next call is stored again. False if there is no such manager."""
        key = _key(runner_id, system_id)
        self._written.pop(key, None)
        self._said.pop(key, None)
        return await self._store.runners.remove_manager(*key)


def _key(runner_id: RunnerId, system_id: str | None) -> tuple[RunnerId, str]:
    return runner_id, (system_id or LEGACY)[:_MAX_SYSTEM_ID]


def _manager(
    key: tuple[RunnerId, str], info: RunnerInfo | None, before: RunnerManager | None, ip: str, now: float
) -> RunnerManager:
    if info is None:
        # A call without `info` keeps what an earlier one reported.
        manager = before or RunnerManager(runner_id=key[0], system_id=key[1], contacted_at=now)
        return replace(manager, contacted_at=now, ip_address=ip)
    features = info.features or {}
    return RunnerManager(
        runner_id=key[0],
        system_id=key[1],
        contacted_at=now,
        name=(info.name or "")[:_MAX_TEXT],
        runner_version=(info.version or "")[:_MAX_TEXT],
        revision=(info.revision or "")[:_MAX_TEXT],
        platform=(info.platform or "")[:_MAX_TEXT],
        architecture=(info.architecture or "")[:_MAX_TEXT],
        executor=(info.executor or "")[:_MAX_TEXT],
        features=tuple(sorted(name for name, on in features.items() if on)),
        ip_address=ip,
        capacity=_capacity(info.config),
    )


def _capacity(config: dict[str, Any] | None) -> int | None:
    """How many jobs a manager can run, as it reports; None if it reports nothing, or a negative or too large number."""
    return _number((config or {}).get("capacity"))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_CAPACITY else None
