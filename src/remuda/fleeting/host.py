"""Runs the plugin of an instance group in a process of its own, and restarts it when it ends.

`init` starts the program and raises if that fails. Later, a process that ends or hangs is restarted after a growing
pause; meanwhile calls raise TemporaryError, or PermanentError if the last restart failed with that, with the cause.
Instances are not affected. `close` ends the process."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from grpclib import GRPCError
from grpclib.client import Channel

from remuda.fleeting.client import Deadlines, HungError, WireGroup
from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.fleeting.plugin_search import find_program
from remuda.fleeting.port import ProviderInfo, Settings
from remuda.fleeting.process import END_SECONDS, FleetingProcess
from remuda.fleeting.streams import ENDS, hold_broker, read_stdio
from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock, SystemClock
from remuda.lib.tasks import TaskOwner, finish_despite_cancel
from remuda.plugins.output import Line, RateLimit, Reader, Splitter
from remuda.plugins.process import START_SECONDS
from remuda.telemetry.logs import logger
from remuda.wire.proto import fleeting_process_pb2 as pb
from remuda.wire.proto.fleeting_process_grpc import GRPCControllerStub

STEADY_SECONDS = 60.0
"""A process that ran longer counts as healthy: its end is a first failure, with the shortest pause."""
BACKOFF = Backoff(first_seconds=0.5, ceiling_seconds=60.0)
P = ParamSpec("P")
T = TypeVar("T")


def _forward(
    method: Callable[Concatenate[WireGroup, P], Awaitable[T]], *, is_vital: bool = False
) -> "Callable[Concatenate[HostedGroup, P], Coroutine[Any, Any, T]]":
    """Make a method that calls `method` of the plugin process. `is_vital`: restart it if it does not answer in time."""

    async def forward(host: "HostedGroup", /, *args: P.args, **options: P.kwargs) -> T:
        return await host._call(lambda group: method(group, *args, **options), is_vital=is_vital)

    return forward


class HostedGroup:
    """An instance group with a plugin process that is restarted when it ends. Implements all interfaces of `port`."""

    def __init__(
        self,
        plugin: str,
        *,
        clock: Clock | None = None,
        auto_mtls: bool = False,
        deadlines: Deadlines | None = None,
        backoff: Backoff = BACKOFF,
        start_seconds: float = START_SECONDS,
        end_seconds: float = END_SECONDS,
    ) -> None:
        self._plugin = plugin
        self._clock = clock or SystemClock()
        self._auto_mtls = auto_mtls
        self._deadlines = deadlines or Deadlines()
        self._backoff = backoff
        self._start_seconds = start_seconds
        self._end_seconds = end_seconds
        self._log = logger("fleeting").bind(plugin=Path(plugin).name)
        self._rate_limit = RateLimit()
        self._init_arguments: tuple[Mapping[str, Any], Settings] | None = None
        self._process: FleetingProcess | None = None
        self._group: WireGroup | None = None
        self._cause: Exception = TemporaryError("it has not been started")
        self._tasks = TaskOwner()
        self._is_started = False
        self.info: ProviderInfo | None = None
        """Answer of the last successful Init."""
        self.starts = 0
        """Number of processes started."""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._group is not None else None

    async def init(self, config: Mapping[str, Any], settings: Settings) -> ProviderInfo:
        if self._is_started:
            raise PermanentError(f"plugin {self._plugin} has been started already")
        self._init_arguments = (config, settings)
        running: asyncio.Future[ProviderInfo] = asyncio.get_running_loop().create_future()
        self._is_started = True
        keeper = self._tasks.start(self._keep(running), name=f"plugin {self._plugin}")
        keeper.add_done_callback(lambda _: running.cancel())
        try:
            return await running
        except BaseException:
            await self.close()
            raise

    update = _forward(WireGroup.update, is_vital=True)
    increase = _forward(WireGroup.increase, is_vital=True)
    decrease = _forward(WireGroup.decrease, is_vital=True)
    connect_info = _forward(WireGroup.connect_info)
    shutdown = _forward(WireGroup.shutdown)
    heartbeat = _forward(WireGroup.heartbeat)
    suspend = _forward(WireGroup.suspend)
    resume = _forward(WireGroup.resume)
    stats = _forward(WireGroup.stats)
    recover = _forward(WireGroup.recover)
    room = _forward(WireGroup.room)
    acquire = _forward(WireGroup.acquire)
    release = _forward(WireGroup.release)

    async def close(self) -> None:
        """Stop the plugin's process. May be called several times; `init` starts the process again."""
        await self._tasks.close()
        self._is_started = False

    async def _call(self, call: Callable[[WireGroup], Awaitable[T]], *, is_vital: bool = False) -> T:
        group, process = self._group, self._process
        if group is None or process is None:
            raise _same_kind(self._cause, f"the plugin {self._plugin} does not run: {self._cause}")
        try:
            return await call(group)
        except HungError as error:
            if is_vital:
                self._cause = error
                process.kill()
            raise
        except TemporaryError as error:
            if isinstance(error.__cause__, GRPCError) or not await process.has_ended():
                raise
            raise TemporaryError(process.describe(f"ended with {process.exit_code}")) from error

    async def _keep(self, running: "asyncio.Future[ProviderInfo]") -> None:
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                async with self._run_process() as process:
                    assert self.info is not None
                    if not running.done():
                        running.set_result(self.info)
                    else:
                        self._log.info("plugin restarted", program=process.program, version=self.info.version)
                    await process.ended.wait()
                    await process.read_last_words()
                    hung = f"{self._cause}; " if isinstance(self._cause, HungError) else ""
                    self._cause = TemporaryError(hung + process.describe(f"ended with {process.exit_code}"))
            except (TemporaryError, PermanentError) as error:
                self._cause = error
            except Exception as error:  # noqa: BLE001 - the plugin must be restarted after any error
                kind = "" if isinstance(error, OSError) else f"{type(error).__name__}: "
                self._cause = TemporaryError(f"it cannot be started: {kind}{error}")
            if not running.done():
                running.set_exception(self._cause)
                return
            failures = 1 if self._clock.monotonic() - began > STEADY_SECONDS else failures + 1
            pause = self._backoff.delay(failures, jitter=random.random())
            self._log.warning(
                "plugin process ended or cannot start; restarting it",
                cause=str(self._cause),
                again_in_seconds=round(pause, 1),
            )
            await self._clock.sleep(pause)

    @asynccontextmanager
    async def _run_process(self) -> AsyncIterator[FleetingProcess]:
        """Start a plugin process and call Init. The process is stopped at the end of the `async with` block."""
        assert self._init_arguments is not None
        process = self._process = FleetingProcess(
            find_program(self._plugin),
            say=self._say,
            auto_mtls=self._auto_mtls,
            start_seconds=self._start_seconds,
            end_seconds=self._end_seconds,
        )
        channel: Channel | None = None
        streams = TaskOwner()
        try:
            channel = await process.start()
            streams.start(read_stdio(channel, self._stdio_logger()), name=f"stdio of {self._plugin}")
            streams.start(hold_broker(channel), name=f"broker of {self._plugin}")
            self.starts += 1
            group = WireGroup(channel, self._log, self._deadlines)
            try:
                self.info = await group.init(*self._init_arguments)
            except TemporaryError as error:
                if process.ended.is_set() or not isinstance(error.__cause__, GRPCError):
                    await process.read_last_words()
                    raise TemporaryError(process.describe(f"failed in Init: {error}")) from error
                raise
            self._cause = TemporaryError("it has ended")
            self._group = group
            yield process
        finally:
            self._group = None
            # Shielded from cancellation: otherwise nobody would wait for the process.
            await finish_despite_cancel(self._end(process, channel, streams), name=f"end of {self._plugin}")

    async def _end(self, process: FleetingProcess, channel: Channel | None, streams: TaskOwner) -> None:
        if channel is not None and not process.ended.is_set():
            # Go plugins end before they answer, which is an error of the call.
            with suppress(*ENDS):
                await GRPCControllerStub(channel).Shutdown(pb.Empty(), timeout=self._end_seconds)
        await streams.close()
        if channel is not None:
            channel.close()
        elif not process.ended.is_set():
            process.kill()  # without a channel it cannot be asked to end
        await process.close()

    def _stdio_logger(self) -> Callable[[bytes], None]:
        splitter, reader = Splitter(), Reader()

        def hear(data: bytes) -> None:
            for text in splitter.feed(data):
                self._say(reader.read(text))

        return hear

    def _say(self, line: Line) -> None:
        if not self._rate_limit.allows(self._clock.monotonic()):
            return
        if dropped := self._rate_limit.take_dropped():
            self._log.warning("plugin logs too much; dropped log lines of the plugin", lines=dropped)
        log = self._log.bind(values=line.values) if line.values else self._log
        getattr(log, line.level)(line.text)


def _same_kind(error: Exception, text: str) -> Exception:
    return PermanentError(text) if isinstance(error, PermanentError) else TemporaryError(text)
