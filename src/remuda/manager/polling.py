"""Asking for jobs: one asker holds one slot while its request is open, and a job that comes takes the slot over.

`Room` is the shell around `core/slots.py`: who finds no slot waits in line. With several runners the last free slot is
never held for long: a request over it goes without the cursor, so the server answers at once and others get their turn.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec

from remuda.lib.clock import Clock
from remuda.manager.config import RunnerConfig
from remuda.manager.core.pace import Pace
from remuda.manager.core.slots import Slot, Slots
from remuda.manager.errors import EnvironmentTemporaryError
from remuda.manager.link import AgentLink
from remuda.manager.ports import Environment
from remuda.model.job import FailureReason
from remuda.telemetry.logs import logger
from remuda.wire.runner_api import TraceOutput
from remuda.wire.runner_client import JobOffer, RunnerApiTemporaryError, RunnerClient, new_request_id

LEAST_DISK_BYTES = 64 << 20
"""With less room than this no job is asked for."""
_DISK_SECONDS = 10.0


class Room:
    """Slots to wait for, first come, first served."""

    def __init__(self, slots: Slots, *, runners: int = 1) -> None:
        self._slots = slots
        self._runners = runners
        self._waiting: list[tuple[str, asyncio.Future[Slot]]] = []

    async def reserve(self, runner: str) -> Slot:
        """Wait until the runner has room for one more job."""
        future: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        entry = (runner, future)
        self._waiting.append(entry)
        self._serve()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release(future.result())
            elif entry in self._waiting:
                self._waiting.remove(entry)
            raise

    def adopt(self, slot: Slot) -> None:
        """A job of an earlier process holds this slot."""
        self._slots.adopt(slot)

    def release(self, slot: Slot) -> None:
        """The slot is free."""
        self._slots.release(slot)
        self._serve()

    def may_hold(self) -> bool:
        """Whether a slot that is reserved now may stay so for long without keeping another runner from asking."""
        return self._runners == 1 or self._slots.free > 0

    def _serve(self) -> None:
        for entry in list(self._waiting):
            runner, future = entry
            if future.cancelled():
                self._waiting.remove(entry)
            elif (slot := self._slots.reserve(runner)) is not None:
                self._waiting.remove(entry)
                future.set_result(slot)


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """What askers share."""

    room: Room
    environment: Environment
    link: AgentLink
    clock: Clock
    check_interval_seconds: float
    take: Callable[[RunnerConfig, JobOffer, Slot], Awaitable[bool]]
    """Stores a job that came and sees to it from then on; True: the slot is the job's now."""
    opened: Callable[[RunnerConfig, int], None]
    """Told when a request is opened (1) and when it is answered (-1)."""


class Asker:
    """Asks one server for jobs of one runner, one request at a time; several may serve the same runner."""

    def __init__(self, runner: RunnerConfig, client: RunnerClient, asking: Asking) -> None:
        self._runner = runner
        self._client = client
        self._asking = asking
        self._pace = Pace(check_interval_seconds=asking.check_interval_seconds, strict=runner.strict_check_interval)
        self._request_id = new_request_id()
        self._log = logger("manager").bind(runner=runner.short_token)

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self._asking.link.connected.wait()
            slot = await self._asking.room.reserve(self._runner.short_token)
            wait = await self._ask(slot)
            await self._asking.clock.sleep(wait)

    async def _ask(self, slot: Slot) -> float:
        """One request; the seconds to wait before the next one."""
        is_taken = False
        try:
            try:
                usage = await self._asking.environment.usage()
            except EnvironmentTemporaryError as error:
                self._log.error("no job is asked for", cause=str(error))
                return _DISK_SECONDS
            if usage.disk_free_bytes < LEAST_DISK_BYTES:
                self._log.error("no job is asked for: the disk is full", free_bytes=usage.disk_free_bytes)
                return _DISK_SECONDS
            while True:
                may_hold = self._asking.room.may_hold()
                offer, wait = await self._request(may_hold)
                if offer is not None or not may_hold:
                    break
                # Keep the slot: the server may have handed a job out to the request that broke.
                await self._asking.clock.sleep(wait)
            if offer is not None and offer.payload is not None:
                is_taken = await self._asking.take(self._runner, offer, slot)
            elif offer is not None:
                await self._look_at(offer)
        finally:
            if not is_taken:
                self._asking.room.release(slot)
        return wait

    async def _request(self, may_hold: bool) -> tuple[JobOffer | None, float]:
        """The server's answer, None when there was none; and how long to wait after it."""
        self._asking.opened(self._runner, 1)
        began = self._asking.clock.monotonic()
        offer: JobOffer | None = None
        try:
            offer = await self._client.request_job(request_id=self._request_id, may_hold=may_hold)
            self._request_id = new_request_id()
        except RunnerApiTemporaryError as error:
            # The next one has the same id: a cell that had already handed a job out hands out the same one again.
            self._log.warning("the server cannot be reached", cause=str(error))
        finally:
            self._asking.opened(self._runner, -1)
        took = self._asking.clock.monotonic() - began
        status = offer.status if offer is not None else None
        self._pace, wait = self._pace.after(status, took_seconds=took, may_hold=may_hold, jitter=random.random())
        return offer, wait

    async def _look_at(self, offer: JobOffer) -> None:
        """An answer without a job that we could read."""
        match offer.status:
            case 201:
                self._log.error(
                    "a job came that cannot be read", cause=offer.problem, job=(offer.rejected or (None,))[0]
                )
                if offer.rejected is not None:
                    await self._refuse(*offer.rejected)
            case 204 | 409:
                pass
            case 403:
                self._log.warning(
                    "the server refuses the runner: removed there, or the token is wrong", message=offer.message
                )
            case status:
                self._log.warning("the server answered a request for a job oddly", status=status, message=offer.message)

    async def _refuse(self, job_id: int, token: str) -> None:
        """Nobody can read this job's payload, so nobody will ever run it: say so at once."""
        try:
            await self._client.update_job(
                job_id,
                token,
                state="failed",
                failure_reason=FailureReason.RUNNER_SYSTEM_FAILURE,
                output=TraceOutput(checksum="crc32:00000000", bytesize=0),
            )
        except RunnerApiTemporaryError as error:
            self._log.warning("the server cannot be reached", cause=str(error))
