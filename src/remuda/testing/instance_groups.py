"""A fake instance group for tests, in the test's process or as a plugin program. It passes the contract tests.

Instances are `creating` until they were listed once, then `running`; `deleting` until listed once, then removed."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from remuda.fleeting import (
    ConnectInfo,
    GroupStats,
    InstanceState,
    Plugin,
    ProviderInfo,
    Settings,
    TaggedInstance,
    TemporaryError,
)

OWNER = "test"
"""Owner tag of the instances if the settings of `init` have none."""


class TableConfig(msgspec.Struct, frozen=True, kw_only=True):
    max_size: int = 10
    accepts: int = 1000
    """Maximum number of instances that one `increase` accepts."""
    broken: tuple[str, ...] = ()
    """Names of the methods that raise an error."""
    address: str = "10.0.0.1"


class PlainGroup(Plugin[TableConfig]):
    """A fake instance group that has only the methods that every plugin must have."""

    name = "plain"
    version = "1.2.3"
    config_type = TableConfig

    def __init__(self) -> None:
        self._states: dict[str, InstanceState] = {}
        self._made = 0

    async def init(self, config: TableConfig, settings: Settings) -> ProviderInfo:
        self._config = config
        self._settings = settings
        self._fail("init")
        return ProviderInfo(id="test/table", max_size=config.max_size, build_info="built by hand")

    async def update(self) -> Mapping[str, InstanceState]:
        self._fail("update")
        shown = dict(self._states)
        for name, state in shown.items():
            if state is InstanceState.DELETING:
                del self._states[name]
            elif state is InstanceState.CREATING:
                self._states[name] = InstanceState.RUNNING
        return shown

    async def increase(self, count: int) -> int:
        self._fail("increase")
        accepted = min(count, self._config.accepts)
        for _ in range(accepted):
            self._made += 1
            self._states[f"instance-{self._made}"] = InstanceState.CREATING
        return accepted

    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        self._fail("decrease")
        accepted = list(instances)[: self._config.accepts]
        for name in accepted:
            if name in self._states:
                self._states[name] = InstanceState.DELETING
        return accepted

    async def connect_info(self, instance: str) -> ConnectInfo:
        self._fail("connect_info")
        if instance not in self._states:
            raise TemporaryError(f"there is no instance {instance}")
        return ConnectInfo(connector=self._settings.connector, internal_addr=self._config.address)

    def _fail(self, method: str) -> None:
        if method in self._config.broken:
            raise RuntimeError(f"{method} is broken")


class TableGroup(PlainGroup):
    """A fake instance group that also has the optional methods of a plugin, such as heartbeat, suspend and recover."""

    name = "table"

    async def heartbeat(self, instance: str) -> None:
        self._fail("heartbeat")
        if instance not in self._states:
            raise TemporaryError(f"{instance} is gone")

    async def suspend(self, instances: Sequence[str]) -> Sequence[str]:
        return self._turn(instances, InstanceState.SUSPENDED)

    async def resume(self, instances: Sequence[str]) -> Sequence[str]:
        return self._turn(instances, InstanceState.RUNNING)

    async def stats(self) -> GroupStats:
        return GroupStats(quota=self._config.max_size)

    async def recover(self) -> Sequence[TaggedInstance]:
        owner = self._settings.owner or OWNER
        return [TaggedInstance(instance=name, owner=owner, created_at=1_750_000_000.0) for name in self._states]

    def _turn(self, instances: Sequence[str], state: InstanceState) -> Sequence[str]:
        existing = [name for name in instances if name in self._states]
        self._states.update(dict.fromkeys(existing, state))
        return existing


def a_plugin(folder: Path, kind: type[PlainGroup] = TableGroup, *, first: str = "") -> Path:
    """Write an executable plugin that serves a fake group. `first`: Python code that it runs before anything else."""
    body = (
        f"#!{sys.executable}\n{first}\nimport sys\nfrom remuda.fleeting import serve\n"
        f"from {__name__} import {kind.__name__}\nsys.exit(serve({kind.__name__}()))\n"
    )
    return a_program(folder, body, name=f"fleeting-plugin-{kind.name}")


def a_program(folder: Path, text: str, *, name: str = "fleeting-plugin-odd") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(text)
    program.chmod(0o755)
    return program
