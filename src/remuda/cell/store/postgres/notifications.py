"""Tells the other processes of a cell which jobs and runners this process changed, with PostgreSQL's LISTEN and NOTIFY.
A notification is sent after the transaction, not in it, because PostgreSQL commits notifying transactions one after the
other in the whole database. Notifications may be lost; so `receive` yields a value without ids after each connect,
which makes its caller read all pending jobs and match all held requests again, and `dispatch.timeouts` reads waiting
and assigned jobs periodically."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import suppress
from typing import Any

import asyncpg

from remuda.cell.values import Job
from remuda.cell.values.changes import OtherChanges
from remuda.lib.backoff import Backoff
from remuda.model.job import JobId, JobState, RunnerId

_CHANNEL = "remuda_jobs"
_RUNNERS = "remuda_runners"
"""A channel of its own, so that processes of an older release, which expect ids of jobs, do not read these."""
_AT_ONCE = 400
"""Maximum number of ids in one notification, which holds 8000 bytes."""
_MOST_UNSENT = 10_000
"""Maximum number of ids that wait for a connection. Further ids are dropped; listeners find those jobs by reading."""
_GATHER_SECONDS = 0.05
"""Time between two notifications. The first of many changes is sent at once, the others together: every notification
makes its listeners read the jobs, so a few large ones cost much less than many small ones."""
_PENDING_SECONDS = 0.005
"""Time between two notifications if a job is pending: a runner may wait for it at another process."""
_PAUSE = Backoff(first_seconds=0.2, ceiling_seconds=10.0)
_CHECK_SECONDS = 30.0
"""Time without a message after which a connection is checked."""
_ANSWER_SECONDS = 10.0
_SERVER_SETTINGS = {"application_name": "remuda cell: hints", "synchronous_commit": "off"}
"""The changes are stored already; notifications need not survive a crash, so no disk is waited for."""


class JobNotifications:
    def __init__(self, url: str) -> None:
        self._url = url
        self._unsent: dict[JobId, None] | None = None
        """None while this process has no listener; then notifications are not sent either."""
        self._gather_seconds = _GATHER_SECONDS
        self._received: dict[JobId, None] = {}
        self._unsent_runners: dict[RunnerId, None] = {}
        self._received_runners: dict[RunnerId, None] = {}
        self._news = asyncio.Event()

    def send(self, jobs: Iterable[Job]) -> None:
        if self._unsent is not None and len(self._unsent) < _MOST_UNSENT:
            is_urgent = not self._unsent
            for job in jobs:
                self._unsent[job.id] = None
                if job.state is JobState.PENDING and self._gather_seconds != _PENDING_SECONDS:
                    self._gather_seconds = _PENDING_SECONDS
                    is_urgent = True
            if is_urgent:
                self._news.set()

    def send_runner(self, runner_id: RunnerId) -> None:
        if self._unsent is not None and len(self._unsent_runners) < _MOST_UNSENT:
            self._unsent_runners[runner_id] = None
            self._news.set()

    async def receive(self) -> AsyncGenerator[OtherChanges, None]:
        """Yield what other processes have changed. A value without ids means that some may have been missed."""
        failures = 0
        self._unsent = {}
        try:
            while True:
                with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
                    async for changes in self._listen():
                        failures = 0
                        yield changes
                failures += 1
                await asyncio.sleep(_PAUSE.delay(failures, jitter=random.random()))
        finally:
            self._unsent = None
            self._unsent_runners = {}

    async def _listen(self) -> AsyncIterator[OtherChanges]:
        db = await asyncpg.connect(
            self._url, timeout=_ANSWER_SECONDS, command_timeout=_ANSWER_SECONDS, server_settings=_SERVER_SETTINGS
        )
        try:
            await db.add_listener(_CHANNEL, self._take)
            await db.add_listener(_RUNNERS, self._take_runners)
            db.add_termination_listener(lambda _: self._news.set())
            yield OtherChanges()
            sent_at = 0.0
            while True:
                if self._unsent and time.monotonic() >= sent_at + self._gather_seconds:
                    self._gather_seconds = _GATHER_SECONDS
                    await self._notify(db)
                    sent_at = time.monotonic()
                while self._unsent_runners:
                    await self._notify_of_runners(db)
                if received := self._received:
                    self._received = {}
                    yield OtherChanges(job_ids=tuple(received))
                elif runners := self._received_runners:
                    self._received_runners = {}
                    yield OtherChanges(runner_ids=tuple(runners))
                else:
                    send_at = sent_at + self._gather_seconds
                    await self._wait(db, send_at - time.monotonic() if self._unsent else _CHECK_SECONDS)
        finally:
            db.terminate()

    async def _notify(self, db: Any) -> None:
        job_ids = dict.fromkeys(list(self._unsent or ())[:_AT_ONCE])
        for job_id in job_ids:
            (self._unsent or {}).pop(job_id, None)
        try:
            await db.execute("SELECT pg_notify($1, $2)", _CHANNEL, ",".join(map(str, job_ids)))
        except BaseException:
            if self._unsent is not None:
                self._unsent.update(job_ids)
            raise

    async def _notify_of_runners(self, db: Any) -> None:
        runner_ids = dict.fromkeys(list(self._unsent_runners)[:_AT_ONCE])
        for runner_id in runner_ids:
            del self._unsent_runners[runner_id]
        try:
            await db.execute("SELECT pg_notify($1, $2)", _RUNNERS, ",".join(map(str, runner_ids)))
        except BaseException:
            self._unsent_runners.update(runner_ids)
            raise

    async def _wait(self, db: Any, seconds: float) -> None:
        """Wait at most `seconds` for job ids to send or ids that arrived; test the connection if nothing happens for
        `_CHECK_SECONDS`. Raises ConnectionResetError if the connection is closed."""
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
            self._received.update((JobId(int(job_id)), None) for job_id in str(payload).split(","))
            self._news.set()

    def _take_runners(self, db: Any, pid: int, channel: str, payload: object) -> None:
        if pid != db.get_server_pid():
            self._received_runners.update((RunnerId(int(each)), None) for each in str(payload).split(","))
            self._news.set()
