"""Runs an instance group's plugin in the caller's process: for tests, and for plugins that need no own process. Raises
TemporaryError, with method or source line, if a method returns a wrong type or fails with an unexpected error."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from remuda.fleeting.errors import PermanentError, TemporaryError, UnhealthyError, UnsupportedError
from remuda.fleeting.method_results import a_count, a_value, halves, place, several, states, wait_for
from remuda.fleeting.method_results import instances as names
from remuda.fleeting.port import (
    CanRecover,
    CanSuspend,
    ConnectInfo,
    GroupStats,
    HasHeartbeat,
    HasStats,
    InstanceState,
    ProviderInfo,
    Provides,
    RoomAtProvider,
    Settings,
    TaggedInstance,
    Wishes,
)
from remuda.fleeting.sdk import Plugin, complete_info, read_config
from remuda.lib.event_loop import count_cancellations

NOT_READY = "Init has to be called first"
_log = logging.getLogger("remuda.fleeting")


class InProcess:
    """An instance group whose `Plugin` object runs in this process. Implements all interfaces of `port`."""

    def __init__(self, plugin: Plugin[Any]) -> None:
        self._plugin = plugin
        self.info: ProviderInfo | None = None

    async def init(self, config: Mapping[str, Any], settings: Settings) -> ProviderInfo:
        for half in halves(self._plugin):
            _log.warning("plugin implements an ability only in part (%s); the host does not use that ability", half)
        with self._classify_errors():
            read = read_config(self._plugin.config_type, config)
            info = a_value("init", await wait_for("init", self._plugin.init(read, settings)), ProviderInfo)
            self.info = a_value("init", complete_info(info, self._plugin), ProviderInfo)
        return self.info

    async def update(self) -> Mapping[str, InstanceState]:
        with self._ready():
            return states("update", await wait_for("update", self._plugin.update()))

    async def increase(self, count: int) -> int:
        with self._ready():
            accepted = a_count("increase", await wait_for("increase", self._plugin.increase(count)))
            if accepted > count:
                _log.warning(
                    "plugin's increase(%d) returned %d; counting only the requested instances", count, accepted
                )
            return min(accepted, count)

    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        with self._ready():
            return _of_these(instances, names("decrease", await wait_for("decrease", self._plugin.decrease(instances))))

    async def connect_info(self, instance: str) -> ConnectInfo:
        with self._ready():
            info = await wait_for("connect_info", self._plugin.connect_info(instance))
            return a_value("connect_info", info, ConnectInfo)

    async def shutdown(self) -> None:
        with self._ready():
            await wait_for("shutdown", self._plugin.shutdown())

    async def heartbeat(self, instance: str) -> None:
        if not isinstance(self._plugin, HasHeartbeat):
            return
        try:
            with self._ready():
                await wait_for("heartbeat", self._plugin.heartbeat(instance))
        except (TemporaryError, PermanentError) as error:
            raise UnhealthyError(str(error)) from error

    async def suspend(self, instances: Sequence[str]) -> Sequence[str]:
        if not isinstance(self._plugin, CanSuspend):
            raise UnsupportedError("the plugin does not have suspend_resume")
        with self._ready():
            return _of_these(instances, names("suspend", await wait_for("suspend", self._plugin.suspend(instances))))

    async def resume(self, instances: Sequence[str]) -> Sequence[str]:
        if not isinstance(self._plugin, CanSuspend):
            raise UnsupportedError("the plugin does not have suspend_resume")
        with self._ready():
            return _of_these(instances, names("resume", await wait_for("resume", self._plugin.resume(instances))))

    async def stats(self) -> GroupStats:
        if not isinstance(self._plugin, HasStats):
            raise UnsupportedError("the plugin does not have remuda.stats")
        with self._ready():
            return a_value("stats", await wait_for("stats", self._plugin.stats()), GroupStats)

    async def recover(self) -> Sequence[TaggedInstance]:
        if not isinstance(self._plugin, CanRecover):
            raise UnsupportedError("the plugin does not have remuda.recover")
        with self._ready():
            return several("recover", await wait_for("recover", self._plugin.recover()), TaggedInstance)

    async def room(self, wishes: Wishes) -> RoomAtProvider:
        with self._ready():
            return a_value("room", await wait_for("room", self._provider.room(wishes)), RoomAtProvider)

    async def acquire(self, holder: str, *, key: str = "", caches: Sequence[str] = ()) -> str:
        with self._ready():
            answer = await wait_for("acquire", self._provider.acquire(holder, key=key, caches=caches))
            return a_value("acquire", answer, str)

    async def release(self, holder: str, *, is_used: bool = True, warmed: Sequence[str] = ()) -> None:
        with self._ready():
            await wait_for("release", self._provider.release(holder, is_used=is_used, warmed=warmed))

    async def close(self) -> None:
        """Do nothing: there is no process to stop."""

    @property
    def _provider(self) -> Provides:
        if not isinstance(self._plugin, Provides):
            raise UnsupportedError("the plugin does not have remuda.provider: it does not scale by itself")
        return self._plugin

    @contextmanager
    def _ready(self) -> Iterator[None]:
        if self.info is None:
            raise PermanentError(NOT_READY)
        with self._classify_errors():
            yield

    @contextmanager
    def _classify_errors(self) -> Iterator[None]:
        cancellations = count_cancellations()
        try:
            yield
        except (TemporaryError, PermanentError):
            raise
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and count_cancellations() > cancellations:
                raise
            # SystemExit must not end the host, and a cancellation by the plugin itself must be answered.
            _log.exception("plugin raised an unexpected error; the call is answered with a temporary error")
            where = place(error, type(self._plugin).__module__)
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise TemporaryError(f"{text} ({where})" if where else text) from error


def _of_these(requested: Sequence[str], answered: Sequence[str]) -> Sequence[str]:
    accepted = set(answered)
    return [name for name in requested if name in accepted]
