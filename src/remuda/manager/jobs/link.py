"""The manager's connection to one agent, with one event stream that all jobs on the agent's machine share.

A broken connection is opened again with growing pauses. Each job that receives events then gets those after the last
one it has received, so a restart of the agent only delays jobs."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.lib.waiting import first_error
from remuda.manager.environments.port import Environment
from remuda.manager.errors import ConnectingError, EnvironmentLostError, EnvironmentTemporaryError
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import (
    AgentClient,
    AgentRefusedError,
    AgentUnavailableError,
    JobEnded,
    JobStart,
    UnknownJob,
    Watch,
    WatchedEvent,
)

CALL_SECONDS = 30.0
LASTING_FAILURES = 5
"""Number of failures in a row that is logged as an error. A restart of the agent causes fewer."""
STEADY_SECONDS = 2.0
"""A connection that lasted this long resets the count of failures."""
MOST_STARTING = 32
"""While this many jobs are being started at the agent, no more are requested. Further jobs wait at the server, where
other managers can take them."""
_BACKOFF = Backoff(first_seconds=0.05, ceiling_seconds=10.0)


class Listener(Protocol):
    """A job that receives events of its agent."""

    @property
    def position(self) -> tuple[int, int]:
        """Return the offset of the next log byte and the number of the next step result that the job needs."""

    def on_event(self, event: WatchedEvent) -> None:
        """Handle an event of the agent: a log chunk, a step result, the job's end, or that it has no such job."""

    def on_agent_back(self) -> None:
        """Called each time the connection to the agent has been opened."""

    def on_agent_failed(self, cause: str) -> None:
        """Called after each failed attempt to connect to the agent, and when the connection breaks."""

    def on_machine_lost(self, cause: str) -> None:
        """Called when the agent's machine is permanently lost, so that the job must fail."""


class AgentLink:
    def __init__(
        self, environment: Environment, machine: str, clock: Clock, *, inspect: "Inspect | None" = None
    ) -> None:
        """`inspect` is awaited on every new connection, before jobs can use it, to look for unknown jobs."""
        self.environment = environment
        self.machine = machine
        self._clock = clock
        self._inspect = inspect
        self._client: AgentClient | None = None
        self._listeners: dict[str, Listener] = {}
        self._subscribed: set[str] = set()
        self._outbox: dict[tuple[str, str], Callable[[Watch], Awaitable[None]]] = {}
        self._filled = asyncio.Event()
        self._log = logger("manager").bind(machine=machine)
        self.connected = asyncio.Event()
        """Set while the agent is connected; jobs are requested only then."""
        self._starting = 0
        self._has_capacity = asyncio.Event()  # fewer than MOST_STARTING jobs are being started
        self._has_capacity.set()
        self.settled = asyncio.Event()
        """Set once the agent was connected, or its machine is known to be lost."""
        self.problem = ""
        """Why the agent is not connected; empty while it is connected, and until the first attempt has failed."""

    @property
    def client(self) -> AgentClient | None:
        return self._client

    async def wait_ready(self) -> None:
        """Wait until jobs may be requested: the agent is connected, and fewer than MOST_STARTING jobs are starting."""
        while not (self.connected.is_set() and self._has_capacity.is_set()):
            await self.connected.wait()
            await self._has_capacity.wait()

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                client = await self.environment.connect(self.machine)
                async with client, client.watch() as watch:
                    began = self._clock.monotonic()
                    try:
                        await self._serve(client, watch)
                    finally:
                        if self._clock.monotonic() - began >= STEADY_SECONDS:
                            failures = 0
            except* EnvironmentLostError as group:
                cause = self.problem = str(first_error(group))
                failures += 1
                if self._listeners or not self.settled.is_set():
                    self._log.error("machine lost; its jobs fail", cause=cause, jobs=len(self._listeners))
                self.settled.set()
                for listener in list(self._listeners.values()):
                    listener.on_machine_lost(cause)
            except* (EnvironmentTemporaryError, AgentUnavailableError, AgentRefusedError) as group:
                cause = self.problem = str(first_error(group))
                failures += 1
                if failures > 1 and self._listeners:
                    log = self._log.error if failures == LASTING_FAILURES else self._log.warning
                    log("cannot reach the agent; trying again", cause=cause, failures=failures)
                for listener in list(self._listeners.values()):
                    listener.on_agent_failed(cause)
            finally:
                self._client = None
                self.connected.clear()
            await self._clock.sleep(_BACKOFF.delay(max(failures, 1), jitter=random.random()))

    async def _serve(self, client: AgentClient, watch: Watch) -> None:
        if self._inspect is not None:
            await self._inspect(self, client)
        self._outbox.clear()
        for job_id in self._listeners:
            if job_id in self._subscribed:
                self._post(job_id, "place", self._subscribe_message(job_id))
            else:
                self._post(job_id, "confirm", self._presence_message(job_id))
        self._client = client
        self.problem = ""
        self.connected.set()
        self.settled.set()
        for listener in list(self._listeners.values()):
            listener.on_agent_back()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send(watch), name="link sender")
            async for event in watch:
                if isinstance(event, JobEnded | UnknownJob):
                    self._subscribed.discard(event.job_id)
                if (job := self._listeners.get(event.job_id)) is not None:
                    job.on_event(event)

    async def _send(self, watch: Watch) -> None:
        while True:
            while self._outbox:
                key = next(iter(self._outbox))
                await self._outbox.pop(key)(watch)
            self._filled.clear()
            await self._filled.wait()

    def _post(self, job_id: str, kind: str, send: Callable[[Watch], Awaitable[None]]) -> None:
        """Queue a message for the agent. It replaces a queued message of the same job and `kind`."""
        self._outbox.pop((job_id, kind), None)
        self._outbox[job_id, kind] = send
        self._filled.set()

    def _subscribe_message(self, job_id: str) -> Callable[[Watch], Awaitable[None]]:
        async def send(watch: Watch) -> None:
            listener = self._listeners.get(job_id)
            if listener is not None:
                log_offset, result_seq = listener.position
                await watch.subscribe(job_id, log_offset=log_offset, result_seq=result_seq)

        return send

    def _presence_message(self, job_id: str) -> Callable[[Watch], Awaitable[None]]:
        """Return a function that tells the agent that a manager takes care of the job, so that the agent does not give
        it up. The agent deletes no data because of this message, as the positions in it are 0."""

        async def send(watch: Watch) -> None:
            if job_id in self._listeners:
                await watch.confirm(job_id, log_offset=0, result_seq=0)

        return send

    def listen(self, job_id: str, listener: Listener, *, is_found: bool = False) -> None:
        """Register a job, which is told when the connection opens or fails; it gets log and results after `subscribe`.
        With `is_found` (a recovered job) a connected agent is told that a manager takes care of the job again."""
        self._listeners[job_id] = listener
        if is_found and self._client is not None:
            self._post(job_id, "confirm", self._presence_message(job_id))

    def forget(self, job_id: str) -> None:
        self.unsubscribe(job_id)
        self._listeners.pop(job_id, None)

    def subscribe(self, job_id: str) -> None:
        """Ask the agent for the job's log and results, from `Listener.position` on."""
        self._subscribed.add(job_id)
        self._post(job_id, "place", self._subscribe_message(job_id))

    def unsubscribe(self, job_id: str) -> None:
        if job_id in self._subscribed:
            self._subscribed.discard(job_id)
            self._post(job_id, "place", lambda watch: watch.unsubscribe(job_id))

    def confirm(self, job_id: str, *, log_offset: int, result_seq: int) -> None:
        """Let the agent delete the job's log and results before these positions: the server has them, and the journal
        has the positions. Without effect while the job is not subscribed."""
        if job_id in self._subscribed:
            self._post(
                job_id,
                "confirm",
                lambda watch: watch.confirm(job_id, log_offset=log_offset, result_seq=result_seq),
            )

    async def start(self, job: JobStart) -> None:
        """Start a job at the agent. Without effect if the agent already has the job. Raises EnvironmentLostError if the
        agent refuses the job."""
        self._count_starting(1)
        try:
            await self._call(lambda client: client.start(job))
        finally:
            self._count_starting(-1)

    def _count_starting(self, change: int) -> None:
        self._starting += change
        if self._starting < MOST_STARTING:
            self._has_capacity.set()
        else:
            self._has_capacity.clear()

    async def cancel(self, job_id: str) -> None:
        await self._call(lambda client: client.cancel(job_id))

    async def close_job(self, job_id: str) -> None:
        await self._call(lambda client: client.close_job(job_id))

    def require_connection(self) -> None:
        """Raise EnvironmentTemporaryError if the agent is not connected. The error is a ConnectingError as long as no
        attempt to connect has failed."""
        if not self.connected.is_set():
            if self.problem:
                raise EnvironmentTemporaryError(self.problem)
            raise ConnectingError("there is no connection to the agent yet")

    async def _call(self, call: Callable[[AgentClient], Awaitable[None]]) -> None:
        if self._client is None:
            raise EnvironmentTemporaryError("there is no connection to the agent")
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await call(self._client)
        except AgentUnavailableError as error:
            raise EnvironmentTemporaryError(str(error)) from error
        except TimeoutError:
            raise EnvironmentTemporaryError(f"the agent did not answer within {CALL_SECONDS:.0f} s") from None
        except AgentRefusedError as error:
            raise EnvironmentLostError(f"the agent refused the request: {error}") from error


Inspect = Callable[[AgentLink, AgentClient], Awaitable[None]]
