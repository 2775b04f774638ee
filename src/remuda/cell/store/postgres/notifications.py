"""How the processes of one cell tell each other which jobs they changed: LISTEN and NOTIFY, and only as a hint.

Decided here: a hint is told after the transaction, not in it, because notifying transactions commit one after the other
in the whole database; what has gathered meanwhile goes out together. A hint may be lost with its process or its
connection. Whoever listens hears after every gap that something may have been missed, and looks by itself now and then.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable
from contextlib import suppress
from typing import Any

import asyncpg

from remuda.cell.values import Job
from remuda.lib.backoff import Backoff
from remuda.model.job import JobId, JobState

_CHANNEL = "remuda_jobs"
_AT_ONCE = 400
"""Ids in one notification, which holds 8000 bytes."""
_KEPT = 10_000
"""Ids that wait to be told while there is no connection; who misses more than that learns it by looking."""
_GATHER_SECONDS = 0.05
"""Between two notifications. The first of many changes is told at once, the others together: whoever hears of one reads
the jobs, so that few large ones cost much less than many small ones."""
_PENDING_SECONDS = 0.005
"""The same where a job waits for a runner: one may wait for it at another process."""
_PAUSE = Backoff(first_seconds=0.2, ceiling_seconds=10.0)
_CHECK_SECONDS = 30.0
"""A connection that says nothing for so long is asked whether it is still there."""
_ANSWER_SECONDS = 10.0
_HINTS_ONLY = {"application_name": "remuda cell: hints", "synchronous_commit": "off"}
"""What is told was stored before; the telling itself need not survive anything, so no disk is waited for."""


class Hints:
    """What this process has to tell, and what it hears."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._told: dict[JobId, None] | None = None
        """None while nobody listens here: then there is one process only, as far as it matters."""
        self._gather_seconds = _GATHER_SECONDS
        self._heard: dict[JobId, None] = {}
        self._news = asyncio.Event()

    def tell(self, jobs: Iterable[Job]) -> None:
        """These were changed by this process."""
        if self._told is not None and len(self._told) < _KEPT:
            # Whoever waits to tell others as well need not be woken for each, only if this one is urgent.
            is_news = not self._told
            for job in jobs:
                self._told[job.id] = None
                if job.state is JobState.PENDING and self._gather_seconds != _PENDING_SECONDS:
                    self._gather_seconds = _PENDING_SECONDS
                    is_news = True
            if is_news:
                self._news.set()

    async def heard(self) -> AsyncGenerator[Collection[JobId], None]:
        """Jobs that others changed, as they are told; none at all: some may have been missed."""
        failures = 0
        self._told = {}
        try:
            while True:
                with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
                    async for jobs in self._listen():
                        failures = 0
                        yield jobs
                failures += 1
                await asyncio.sleep(_PAUSE.delay(failures, jitter=random.random()))
        finally:
            self._told = None

    async def _listen(self) -> AsyncIterator[Collection[JobId]]:
        """As `heard`, until the connection is lost."""
        db = await asyncpg.connect(
            self._url, timeout=_ANSWER_SECONDS, command_timeout=_ANSWER_SECONDS, server_settings=_HINTS_ONLY
        )
        try:
            await db.add_listener(_CHANNEL, self._take)
            db.add_termination_listener(lambda _: self._news.set())
            yield ()
            told_at = 0.0
            while True:
                if self._told and time.monotonic() >= told_at + self._gather_seconds:
                    self._gather_seconds = _GATHER_SECONDS
                    await self._notify(db)
                    told_at = time.monotonic()
                if heard := self._heard:
                    self._heard = {}
                    yield tuple(heard)
                else:
                    tell_at = told_at + self._gather_seconds
                    await self._wait(db, tell_at - time.monotonic() if self._told else _CHECK_SECONDS)
        finally:
            db.terminate()

    async def _notify(self, db: Any) -> None:
        told = dict.fromkeys(list(self._told or ())[:_AT_ONCE])
        for job_id in told:
            (self._told or {}).pop(job_id, None)
        try:
            await db.execute("SELECT pg_notify($1, $2)", _CHANNEL, ",".join(map(str, told)))
        except BaseException:
            if self._told is not None:
                self._told.update(told)
            raise

    async def _wait(self, db: Any, seconds: float) -> None:
        """Until there is something to tell or to yield; a connection that was silent for long must answer."""
        if seconds <= 0:
            return
        self._news.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            if seconds == _CHECK_SECONDS:
                await db.execute("SELECT 1")
        if db.is_closed():
            raise ConnectionResetError

    def _take(self, db: Any, pid: int, channel: str, payload: object) -> None:
        if pid != db.get_server_pid():
            self._heard.update((JobId(int(job_id)), None) for job_id in str(payload).split(","))
            self._news.set()
