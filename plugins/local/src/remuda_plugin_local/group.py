"""The plugin: calls of the group, and tasks that make, watch and remove machines.

The state is in `store`. `update` compares it with what should be and starts the missing tasks, so work that a killed
process left is continued by the next one. In memory are only tasks, at most one for each machine. Machines are no
children of this process and survive it."""

import asyncio
import logging
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from ipaddress import IPv4Network
from typing import Any

from remuda.fleeting import (
    ConnectInfo,
    Connector,
    GroupStats,
    InstanceState,
    PermanentError,
    Plugin,
    ProviderInfo,
    Settings,
    TaggedInstance,
    TemporaryError,
    UnhealthyError,
)
from remuda.fleeting.background import BackgroundTasks, answers_ssh
from remuda_plugin_local import cgroups, namespace, qemu
from remuda_plugin_local.addresses import clash, routes
from remuda_plugin_local.config import Config, check
from remuda_plugin_local.keys import load_key, public_half
from remuda_plugin_local.processes import end
from remuda_plugin_local.store import Draft, Seen, Store

AT_ONCE = 8
"""Limit on concurrent starts of machines."""
LOOK_SECONDS = {"namespace": 0.05, "qemu": 0.5}
"""Interval between checks of a starting machine, by kind."""
END_SECONDS = 60.0
"""Time limit for the end of a machine's process. After that, the next `update` tries again to remove the machine."""
_LAUNCH = (files(__package__) / "launch.sh").read_text()
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_log = logging.getLogger("fleeting-plugin-local")


class LocalGroup(Plugin[Config]):
    """A group of machines on this host."""

    name = "local"
    version = "0.1.0"
    config_type = Config

    def __init__(self) -> None:
        self._tasks = BackgroundTasks(_log)
        self._gone: set[str] = set()
        """Removed machines that `update` has not returned as deleted yet. One that is only missing would be suspect."""
        self._starting = asyncio.Semaphore(AT_ONCE)

    async def init(self, config: Config, settings: Settings) -> ProviderInfo:
        check(config)
        self._config = config
        self._owner = settings.owner
        self._store = Store(config.place)
        try:
            await asyncio.to_thread(self._store.prepare)
        except OSError as error:
            raise PermanentError(f"folder = {str(config.place)!r} cannot be used: {error.strerror}") from error
        self._connector = await asyncio.to_thread(self._make_connector, settings.connector)
        self._authorized = public_half(self._connector.key)
        if config.kind == "namespace":
            network = IPv4Network(config.network)
            if other := clash(network, await asyncio.to_thread(routes)):
                raise PermanentError(
                    f"network = {config.network!r} is in use: this host has a route to {other}; choose another one"
                )
        # QEMU sets its own limits and may run without root.
        self._cgroups = cgroups.here() if os.geteuid() == 0 else ()
        if config.kind == "namespace" and (missing := cgroups.missing_for(self._cgroups, **self._limits)):
            raise PermanentError(f"this host has no control groups for {missing}: leave memory and cpus out")
        await self.update()
        return ProviderInfo(id=f"local/{config.name}", max_size=config.max_size)

    async def update(self) -> Mapping[str, InstanceState]:
        machines = await asyncio.to_thread(self._store.look_all)
        for seen in machines:
            self._store.mark(seen.machine.id, "lease")
            if seen.state in (InstanceState.DELETING, InstanceState.DELETED):
                self._tasks.begin(seen.machine.id, self._remove(seen.machine.id))
            elif seen.state is InstanceState.CREATING:
                self._tasks.begin(seen.machine.id, self._watch(seen.machine.id))
        shown = dict.fromkeys(self._gone, InstanceState.DELETED) | {seen.machine.id: seen.state for seen in machines}
        self._gone.difference_update(shown)
        return shown

    async def increase(self, count: int) -> int:
        # A cancelled caller does not stop the creation of added machines.
        return await asyncio.shield(self._tasks.begin(f"increase {time.monotonic_ns()}", self._increase(count)))

    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        for machine in instances:
            if self._store.look(machine) is not None:
                self._store.mark(machine, "deleting")
                self._tasks.begin(machine, self._remove(machine))
        return instances

    async def connect_info(self, instance: str) -> ConnectInfo:
        seen = self._existing(instance)
        if not seen.address:
            raise TemporaryError(f"{instance} has no address yet")
        return ConnectInfo(connector=self._connector, internal_addr=seen.address)

    async def heartbeat(self, instance: str) -> None:
        seen = self._existing(instance)
        if not seen.is_alive:
            raise UnhealthyError(f"{instance} has ended")
        if seen.is_up and not await _answers(seen.address):
            raise UnhealthyError(f"{instance} runs, but its sshd does not answer at {seen.address}")

    async def stats(self) -> GroupStats:
        return GroupStats(quota=self._config.max_size)

    async def recover(self) -> Sequence[TaggedInstance]:
        machines = await asyncio.to_thread(self._store.look_all)
        return [
            TaggedInstance(instance=seen.machine.id, owner=seen.machine.owner, created_at=seen.machine.created_at)
            for seen in machines
        ]

    async def shutdown(self) -> None:
        """Wait for running tasks. Machines stay."""
        await self._tasks.finish()
        await asyncio.to_thread(cgroups.tidy, self._cgroups)

    @property
    def _limits(self) -> dict[str, Any]:
        return {"memory_bytes": self._config.memory_bytes, "cpus": self._config.cpus}

    def _make_connector(self, asked: Connector) -> Connector:
        if asked.protocol not in ("", "ssh"):
            raise PermanentError(f"protocol = {asked.protocol!r}: machines are reached by ssh")
        if asked.use_static_credentials and not asked.key:
            raise PermanentError(
                "use_static_credentials needs a key (key_path): logins by password are not possible. Without "
                "use_static_credentials the plugin makes a key"
            )
        with self._store.alone():
            key = asked.key if asked.use_static_credentials else load_key(self._store.folder / "key")
        return replace(
            asked,
            os="linux",
            arch=_ARCHITECTURES.get(platform.machine(), platform.machine()),
            protocol="ssh",
            port=0,
            username=asked.username or "root",
            password="",
            key=key,
        )

    def _existing(self, machine: str) -> Seen:
        seen = self._store.look(machine)
        if seen is None:
            raise PermanentError(f"there is no machine {machine}")
        return seen

    async def _increase(self, count: int) -> int:
        drafts = await asyncio.to_thread(
            lambda: self._store.add(
                count,
                group=self._config.name,
                owner=self._owner,
                now=time.time(),
                max_size=self._config.max_size,
            )
        )
        for draft in drafts:
            self._tasks.begin(draft.machine.id, self._make(draft))
        return len(drafts)

    async def _make(self, draft: Draft) -> None:
        async with self._starting:
            await asyncio.to_thread(self._launch, draft)
        await self._watch(draft.machine.id)

    def _launch(self, draft: Draft) -> None:
        machine, folder, config = draft.machine.id, self._store.place(draft.machine.id), self._config
        try:
            if (folder / "deleting").exists():
                return
            login = self._connector.username
            if config.kind == "namespace":
                namespace.prepare(folder, self._authorized)
                environment, words = namespace.command(config, machine, folder, login=login, cgroups=self._cgroups)
                made = cgroups.make(self._cgroups, machine, **self._limits)
            else:
                qemu.prepare(folder, machine, login=login, authorized=self._authorized)
                port = qemu.free_port(self._ports())
                (folder / "address").write_text(f"127.0.0.1:{port}\n")
                environment, words = qemu.command(config, machine, folder, port=port)
                made = cgroups.make(self._cgroups, machine, memory_bytes=0, cpus=0)
            environment |= {
                "PATH": _PATH,
                "FOLDER": str(folder),
                "LEASE": str(config.lease_seconds),
                "GROUPS_": " ".join(str(path) for _, path in made),
            }
            clean = ["env", "-i", "--default-signal", *(f"{key}={value}" for key, value in environment.items())]
            with (folder / "log").open("ab") as log:
                subprocess.run(
                    [*clean, "setsid", "--fork", "sh", "-c", _LAUNCH, "launch", *words],
                    stdin=draft.lock,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    check=True,
                )
        except (OSError, subprocess.SubprocessError, TemporaryError) as error:
            _log.warning("cannot start machine %s; removing it: %s", machine, error)
        finally:
            os.close(draft.lock)

    def _ports(self) -> set[int]:
        addresses = [seen.address for seen in self._store.look_all()]
        return {int(address.rpartition(":")[2]) for address in addresses if ":" in address}

    async def _watch(self, machine: str) -> None:
        """Wait until login works, and remove the machine if it ends before that. Returns early if the plugin ends."""
        while True:
            seen = self._store.look(machine)
            if seen is None or seen.state is InstanceState.RUNNING:
                return
            if seen.state is not InstanceState.CREATING:
                await self._remove(machine)
                return
            if seen.address and await _answers(seen.address):
                self._store.mark(machine, "up")
                return
            if self._tasks.is_ending:
                return
            await self._tasks.rest(LOOK_SECONDS[self._config.kind])

    async def _remove(self, machine: str) -> None:
        with suppress(FileNotFoundError):
            await asyncio.to_thread(self._remove_now, machine)
        self._gone.add(machine)

    def _remove_now(self, machine: str) -> None:
        deadline = time.monotonic() + END_SECONDS
        while (lock := self._store.take_lock(machine)) is None:
            if time.monotonic() > deadline:
                raise TemporaryError("the machine does not end; the next update tries again")
            process = self._store.process(machine)
            if process is None or end(process):
                time.sleep(0.01)  # its process is just starting or ending
        try:
            seen = self._store.look(machine)
            if seen is not None and not seen.is_deleting:
                how = "ended by itself" if seen.is_up else "ended before a login was possible"
                _log.warning(
                    "machine %s %s; removing it. Its last output: %s",
                    machine,
                    how,
                    self._store.last_words(machine) or "none",
                )
            if self._config.kind == "namespace":
                # The kernel would remove it with the machine's network, but with a delay.
                link = ["ip", "link", "delete", namespace.link_name(machine)]
                subprocess.run(link, stderr=subprocess.DEVNULL, check=False)
            cgroups.remove(self._cgroups, machine)
            self._store.remove(machine)
        finally:
            os.close(lock)


async def _answers(address: str) -> bool:
    host, _, port = address.partition(":")
    return await answers_ssh(host, int(port or 22))
