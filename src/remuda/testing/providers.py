"""A fake plugin for tests that decides itself when to scale, in the test's process or as a program.

It uses an instance for one job only and keeps an idle one ready. Instances are in memory: after a restart only those
exist that the host reports as in use."""

import asyncio
import sys
from collections.abc import Mapping, Sequence

import msgspec

from remuda.fleeting import (
    ConnectInfo,
    InstanceState,
    PermanentError,
    Plugin,
    ProviderInfo,
    RoomAtProvider,
    Settings,
    Wishes,
    serve,
)


class ProviderConfig(msgspec.Struct, frozen=True, kw_only=True):
    max_size: int = 4
    address: str = "10.0.0.1"


class TableProvider(Plugin[ProviderConfig]):
    name = "table-provider"
    version = "1.0.0"
    config_type = ProviderConfig

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.idle: list[str] = []
        self.last_wishes: Wishes | None = None
        self.uses = 0
        self._made = 0
        self._changed = asyncio.Condition()

    async def init(self, config: ProviderConfig, settings: Settings) -> ProviderInfo:
        self._config = config
        self._settings = settings
        return ProviderInfo(id="test/provider", max_size=config.max_size)

    async def update(self) -> Mapping[str, InstanceState]:
        return dict.fromkeys([*self.held.values(), *self.idle], InstanceState.RUNNING)

    async def increase(self, count: int) -> int:
        raise PermanentError("a provider scales by itself")

    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        raise PermanentError("a provider scales by itself")

    async def connect_info(self, instance: str) -> ConnectInfo:
        return ConnectInfo(connector=self._settings.connector, internal_addr=self._config.address)

    async def room(self, wishes: Wishes) -> RoomAtProvider:
        self.last_wishes = wishes
        self.held.update(wishes.held)
        if wishes.is_complete:
            for holder in self.held.keys() - wishes.held.keys():
                await self.release(holder, is_used=False)
        if not self.idle and len(self.held) < self._config.max_size:
            await self._make()
        text = f"{len(self.held)} in use, {len(self.idle)} ahead, {self._config.max_size} at most"
        return RoomAtProvider(capacity=self._config.max_size, explanation=text)

    async def acquire(self, holder: str, *, key: str = "", caches: Sequence[str] = ()) -> str:
        async with self._changed:
            while holder not in self.held:
                if self.idle:
                    self.held[holder] = self.idle.pop()
                elif len(self.held) < self._config.max_size:
                    self._made += 1
                    self.held[holder] = f"m{self._made}"
                else:
                    await self._changed.wait()
        return self.held[holder]

    async def release(self, holder: str, *, is_used: bool = True, warmed: Sequence[str] = ()) -> None:
        async with self._changed:
            instance = self.held.pop(holder, None)
            if instance is not None and is_used:
                self.uses += 1
            elif instance is not None:
                self.idle.append(instance)
            self._changed.notify_all()

    async def _make(self) -> None:
        async with self._changed:
            self._made += 1
            self.idle.append(f"m{self._made}")
            self._changed.notify_all()


if __name__ == "__main__":
    sys.exit(serve(TableProvider()))
