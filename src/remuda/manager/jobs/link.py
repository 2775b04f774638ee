"""The link to one agent: one connection and one watch stream for all its jobs, kept up as long as somebody uses it.

When the connection breaks it is made again with growing waits, and every job that listens is asked where it stands and
subscribed anew from there; so a job notices a dead agent only as a pause. A machine that is gone for good is told to
its jobs once. Nothing about a job is decided here; `links.py` opens and closes them.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
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
"""So many in a row are no restart of the agent any more: no job will start until somebody looks."""
STEADY_SECONDS = 2.0
"""A connection that lasted so long was one; an agent that dies sooner, again and again, is not started without end."""
MOST_STARTING = 32
"""More jobs that an agent has yet to take are not asked for: they would wait here, with all that a start needs, instead
of at the server, where others could take them."""
_BACKOFF = Backoff(first_seconds=0.05, ceiling_seconds=10.0)


class Listener(Protocol):
    """A job that wants to hear of its agent."""

    @property
    def position(self) -> tuple[int, int]:
        """The next log byte and the next result it wants."""
        ...

    def hear(self, event: WatchedEvent) -> None:
        """Something about the job."""
        ...

    def agent_is_back(self) -> None:
        """The agent can be reached (again)."""
        ...

    def agent_failed(self, cause: str) -> None:
        """The agent cannot be reached."""
        ...

    def machine_lost(self, cause: str) -> None:
        """The agent's machine is gone for good."""
        ...


class AgentLink:
    """Calls and events of one machine's agent."""

    def __init__(
        self, environment: Environment, machine: str, clock: Clock, *, inspect: "Inspect | None" = None
    ) -> None:
        """Whoever wants to `inspect` the agent is let to it on every new connection, before anybody else."""
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
        """Set while the agent can be reached; no job is asked for otherwise."""
        self._starting = 0
        self._has_time = asyncio.Event()  # few jobs wait for the agent to take them
        self._has_time.set()
        self.settled = asyncio.Event()
        """Set once the agent was reached, or its machine is known to be lost."""
        self.problem = ""
        """Why the agent cannot be reached; empty: it can, or nobody has tried."""

    @property
    def client(self) -> AgentClient | None:
        """The connection, while there is one."""
        return self._client

    async def ready(self) -> None:
        """Returns when jobs may be asked for: the agent can be reached, and keeps up with what it is given."""
        while not (self.connected.is_set() and self._has_time.is_set()):
            await self.connected.wait()
            await self._has_time.wait()

    async def run(self) -> None:
        """Keep the link up until cancelled."""
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
                cause = self.problem = str(_first(group))
                failures += 1
                if self._listeners or not self.settled.is_set():
                    self._log.error("the machine is lost", cause=cause, jobs=len(self._listeners))
                self.settled.set()
                for listener in list(self._listeners.values()):
                    listener.machine_lost(cause)
            except* (EnvironmentTemporaryError, AgentUnavailableError, AgentRefusedError) as group:
                cause = self.problem = str(_first(group))
                failures += 1
                if failures > 1 and self._listeners:
                    tell = self._log.error if failures == LASTING_FAILURES else self._log.warning
                    tell("the agent cannot be reached", cause=cause, failures=failures)
                for listener in list(self._listeners.values()):
                    listener.agent_failed(cause)
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
                self._post(job_id, "place", self._subscribing(job_id))
            else:
                self._post(job_id, "confirm", self._reappearing(job_id))
        self._client = client
        self.problem = ""
        self.connected.set()
        self.settled.set()
        for listener in list(self._listeners.values()):
            listener.agent_is_back()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send(watch), name="link sender")
            async for event in watch:
                if isinstance(event, JobEnded | UnknownJob):
                    self._subscribed.discard(event.job_id)
                hearer = self._listeners.get(event.job_id)
                if hearer is not None:
                    hearer.hear(event)

    async def _send(self, watch: Watch) -> None:
        while True:
            while self._outbox:
                key = next(iter(self._outbox))
                await self._outbox.pop(key)(watch)
            self._filled.clear()
            await self._filled.wait()

    def _post(self, job_id: str, kind: str, send: Callable[[Watch], Awaitable[None]]) -> None:
        """Only the newest message of a kind counts."""
        self._outbox.pop((job_id, kind), None)
        self._outbox[job_id, kind] = send
        self._filled.set()

    def _subscribing(self, job_id: str) -> Callable[[Watch], Awaitable[None]]:
        async def send(watch: Watch) -> None:
            listener = self._listeners.get(job_id)
            if listener is not None:
                log_offset, result_seq = listener.position
                await watch.subscribe(job_id, log_offset=log_offset, result_seq=result_seq)

        return send

    def _reappearing(self, job_id: str) -> Callable[[Watch], Awaitable[None]]:
        """Tell the agent that somebody still has to do with a job; nothing is confirmed that was not before."""

        async def send(watch: Watch) -> None:
            if job_id in self._listeners:
                await watch.confirm(job_id, log_offset=0, result_seq=0)

        return send

    def listen(self, job_id: str, listener: Listener, *, is_found: bool = False) -> None:
        """From now on the job hears of its agent; events only once it subscribed.

        The agent of one that was found is told at once that somebody has it: its server may not answer for long.
        """
        self._listeners[job_id] = listener
        if is_found and self._client is not None:
            self._post(job_id, "confirm", self._reappearing(job_id))

    def forget(self, job_id: str) -> None:
        """The job wants to hear nothing more."""
        self.unsubscribe(job_id)
        self._listeners.pop(job_id, None)

    def subscribe(self, job_id: str) -> None:
        """Send the job's events from its position on."""
        self._subscribed.add(job_id)
        self._post(job_id, "place", self._subscribing(job_id))

    def unsubscribe(self, job_id: str) -> None:
        """Send no more events of the job."""
        if job_id in self._subscribed:
            self._subscribed.discard(job_id)
            self._post(job_id, "place", lambda watch: watch.unsubscribe(job_id))

    def confirm(self, job_id: str, *, log_offset: int, result_seq: int) -> None:
        """What is before these positions is safe with the server and in the journal."""
        if job_id in self._subscribed:
            self._post(
                job_id,
                "confirm",
                lambda watch: watch.confirm(job_id, log_offset=log_offset, result_seq=result_seq),
            )

    async def start(self, job: JobStart) -> None:
        """Give a job to the agent; the same one again changes nothing."""
        self._count_starting(1)
        try:
            await self._call(lambda client: client.start(job))
        finally:
            self._count_starting(-1)

    def _count_starting(self, change: int) -> None:
        self._starting += change
        if self._starting < MOST_STARTING:
            self._has_time.set()
        else:
            self._has_time.clear()

    async def cancel(self, job_id: str) -> None:
        """End the job's running step."""
        await self._call(lambda client: client.cancel(job_id))

    async def close_job(self, job_id: str) -> None:
        """Have the agent forget the job."""
        await self._call(lambda client: client.close_job(job_id))

    def need(self) -> None:
        """EnvironmentTemporaryError says why there is no connection; ConnectingError, if that is in good order."""
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
            raise EnvironmentLostError(f"the agent refuses the job: {error}") from error


Inspect = Callable[[AgentLink, AgentClient], Awaitable[None]]


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
