"""A plugin in our own process, as the same port that a host is: for tests, and where no second process is wanted.

Configuration is read, capabilities are announced, and answers are held to what was asked, just as over the wire; errors
that are neither temporary nor permanent become temporary ones.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from remuda.fleeting.errors import PermanentError, TemporaryError, UnhealthyError, UnsupportedError
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
from remuda.fleeting.sdk import Plugin, completed, read_config

NOT_READY = "Init has to come first"
_log = logging.getLogger("remuda.fleeting")


class InProcess:
    """The instance group of a plugin object. All Protocols of `port`."""

    def __init__(self, plugin: Plugin[Any]) -> None:
        self._plugin = plugin
        self.info: ProviderInfo | None = None

    async def init(self, config: Mapping[str, Any], settings: Settings) -> ProviderInfo:
        with _sorted():
            read = read_config(self._plugin.config_type, config)
            self.info = completed(await self._plugin.init(read, settings), self._plugin)
        return self.info

    async def update(self) -> Mapping[str, InstanceState]:
        with self._ready():
            return dict(await self._plugin.update())

    async def increase(self, count: int) -> int:
        with self._ready():
            return min(await self._plugin.increase(count), count)

    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        with self._ready():
            return _of_these(instances, await self._plugin.decrease(instances))

    async def connect_info(self, instance: str) -> ConnectInfo:
        with self._ready():
            return await self._plugin.connect_info(instance)

    async def shutdown(self) -> None:
        with self._ready():
            await self._plugin.shutdown()

    async def heartbeat(self, instance: str) -> None:
        if not isinstance(self._plugin, HasHeartbeat):
            return
        try:
            with self._ready():
                await self._plugin.heartbeat(instance)
        except (TemporaryError, PermanentError) as error:
            raise UnhealthyError(str(error)) from error

    async def suspend(self, instances: Sequence[str]) -> Sequence[str]:
        if not isinstance(self._plugin, CanSuspend):
            raise UnsupportedError("the plugin does not have suspend_resume")
        with self._ready():
            return _of_these(instances, await self._plugin.suspend(instances))

    async def resume(self, instances: Sequence[str]) -> Sequence[str]:
        if not isinstance(self._plugin, CanSuspend):
            raise UnsupportedError("the plugin does not have suspend_resume")
        with self._ready():
            return _of_these(instances, await self._plugin.resume(instances))

    async def stats(self) -> GroupStats:
        if not isinstance(self._plugin, HasStats):
            raise UnsupportedError("the plugin does not have remuda.stats")
        with self._ready():
            return await self._plugin.stats()

    async def recover(self) -> Sequence[TaggedInstance]:
        if not isinstance(self._plugin, CanRecover):
            raise UnsupportedError("the plugin does not have remuda.recover")
        with self._ready():
            return list(await self._plugin.recover())

    async def room(self, wishes: Wishes) -> RoomAtProvider:
        with self._ready():
            return await self._provider.room(wishes)

    async def acquire(self, holder: str, *, key: str = "", caches: Sequence[str] = ()) -> str:
        with self._ready():
            return await self._provider.acquire(holder, key=key, caches=caches)

    async def release(self, holder: str, *, is_used: bool = True, warmed: Sequence[str] = ()) -> None:
        with self._ready():
            await self._provider.release(holder, is_used=is_used, warmed=warmed)

    async def close(self) -> None:
        """There is nothing to end."""

    @property
    def _provider(self) -> Provides:
        if not isinstance(self._plugin, Provides):
            raise UnsupportedError("the plugin does not have remuda.provider: it does not scale by itself")
        return self._plugin

    @contextmanager
    def _ready(self) -> Iterator[None]:
        if self.info is None:
            raise PermanentError(NOT_READY)
        with _sorted():
            yield


@contextmanager
def _sorted() -> Iterator[None]:
    try:
        yield
    except (TemporaryError, PermanentError):
        raise
    except Exception as error:
        _log.exception("a fault of the plugin")
        raise TemporaryError(f"{type(error).__name__}: {error}") from error


def _of_these(asked: Sequence[str], answered: Sequence[str]) -> Sequence[str]:
    accepted = set(answered)
    return [one for one in asked if one in accepted]
