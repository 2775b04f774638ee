"""The machines behind instances of a group: logged in to by what the plugin says of each, prepared, looked after.

`Instances` is what the scaler has done with machines, and what `autoscaled` finds the machines of jobs by. Decided
here: which address is dialled, whose host key is believed (the first one seen, kept over restarts, or those of a file),
and how long a machine that has just booted may refuse us. A port that refuses is tried again after pauses; a login that
is denied has only as long as it takes a booting machine to put its keys in place.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from remuda.fleeting.errors import PermanentError, TemporaryError, UnhealthyError
from remuda.fleeting.port import TIMEOUT_SECONDS, ConnectInfo
from remuda.lib.clock import Clock
from remuda.lib.files import write_whole
from remuda.manager.config.fleet_setup import autoscaler_of, host_key_path
from remuda.manager.config.load import RunnerConfig
from remuda.manager.environments.remote_machine import RemoteMachine
from remuda.manager.environments.ssh import COMMANDS_AT_ONCE, KEEP_ALIVE_SECONDS, Address, SshError, SshLastingError
from remuda.taskscaler.loop import FleetSetup
from remuda.telemetry.logs import logger

DENIED_SECONDS = 10.0
"""So long a machine that answers may deny the login: some put keys in place a moment after their sshd runs."""
CHECK_SECONDS = 20.0
SSH_PORT = 22


@dataclass
class _Kept:
    """A machine, and how far its preparation is."""

    machine: RemoteMachine
    info: ConnectInfo
    tried_at: float | None = None
    """When it was first tried to log in."""
    denied_at: float | None = None
    disk_free_bytes: int | None = None


class Instances:
    """All machines of a fleet that somebody has had to do with."""

    def __init__(
        self,
        runner: RunnerConfig,
        setup: FleetSetup,
        folder: Path,
        *,
        clock: Clock,
        ask: Callable[[str], Awaitable[ConnectInfo]],
        base: str = "",
    ) -> None:
        """`ask` tells how to reach an instance. TemporaryError or PermanentError.

        In `base` each machine has its folder for everything, if that shall not be the usual one.
        """
        self._ask = ask
        self._base = base
        self._folder = folder
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._log = logger("manager")
        self.change(runner, setup)

    def change(self, runner: RunnerConfig, setup: FleetSetup) -> None:
        """Another configuration counts from now on, for machines that are prepared or connected to anew."""
        self._ready_command = autoscaler_of(runner).instance_ready_command
        self._own = runner.remuda
        self._groups = {group.name: group for group in setup.groups}

    async def prepare(self, instance: str, info: ConnectInfo) -> None:
        kept = await self._keep(instance, info)
        now = self._clock.monotonic()
        kept.tried_at = now if kept.tried_at is None else kept.tried_at
        seconds = info.connector.timeout_seconds or TIMEOUT_SECONDS
        try:
            await self._log_in(instance, kept)
        except SshLastingError as error:
            kept.denied_at = now if kept.denied_at is None else kept.denied_at
            if now - kept.denied_at >= DENIED_SECONDS:
                raise PermanentError(str(error)) from error
            raise TemporaryError(str(error)) from error
        except SshError as error:
            if now - kept.tried_at >= seconds:
                raise PermanentError(f"nobody could log in within {seconds:.0f} s: {error}") from error
            raise TemporaryError(str(error)) from error
        try:
            await kept.machine.need_sessions()
            if self._ready_command:
                await kept.machine.command(self._ready_command, seconds=seconds)
            await kept.machine.reach()
        except SshLastingError as error:
            raise PermanentError(str(error)) from error
        except SshError as error:
            raise TemporaryError(str(error)) from error
        self._log.info("a machine is ready", machine=instance, address=kept.machine.address.host)

    async def _log_in(self, instance: str, kept: _Kept) -> None:
        shown = await kept.machine.log_in()
        kept.denied_at = None
        if not kept.machine.address.checks_host_key:
            await asyncio.to_thread(self._pin, instance, shown)
            kept.machine.believe(shown)

    async def check(self, instance: str) -> None:
        try:
            # What the plugin takes to say where it is, is none of the machine's time.
            kept = await self._found(instance)
            async with asyncio.timeout(CHECK_SECONDS):
                if not kept.machine.is_up:
                    await self._log_in(instance, kept)
                free = await kept.machine.disk_free_bytes()
        except SshError as error:
            raise UnhealthyError(str(error)) from error
        except TimeoutError:
            raise UnhealthyError(f"{instance} does not answer within {CHECK_SECONDS:.0f} s") from None
        if instance in self._kept:
            self._kept[instance].disk_free_bytes = free
        if free < (least := self._own.least_disk_bytes):
            said = f"{free >> 20} MiB are free, and least_disk asks for {least >> 20}"
            raise UnhealthyError(f"{instance}: its disk is full: {said}")

    async def forget(self, instance: str) -> None:
        # Before anything that takes time: there may be another of this name by then.
        kept = self._kept.pop(instance, None)
        self._pin_file(instance).unlink(missing_ok=True)
        if kept is not None:
            await kept.machine.close()

    async def reached(self, instance: str) -> RemoteMachine:
        """The machine of an instance, connected; how to reach it may be otherwise than when it last was."""
        kept = await self._found(instance)
        if not kept.machine.is_up:
            await self._log_in(instance, kept)
        return kept.machine

    async def _found(self, instance: str) -> _Kept:
        """As it is known while it is connected, and as the plugin says where it is else."""
        kept = self._kept.get(instance)
        if kept is not None and kept.machine.is_up:
            return kept
        return await self._keep(instance, await self._ask(instance))

    def cut(self, instance: str) -> None:
        """It is known to be gone: whoever waits for an answer of it need not."""
        if (kept := self._kept.get(instance)) is not None:
            kept.machine.abort()

    def info(self, instance: str) -> ConnectInfo | None:
        """How it was last reached."""
        return None if (kept := self._kept.get(instance)) is None else kept.info

    @property
    def disk_free_bytes(self) -> int | None:
        """Of the machine with the most room, as they last said; None: none has said anything."""
        return max(
            (one.disk_free_bytes for one in self._kept.values() if one.disk_free_bytes is not None), default=None
        )

    async def close(self) -> None:
        for kept in self._kept.values():
            await kept.machine.close()
        self._kept.clear()

    async def _keep(self, instance: str, info: ConnectInfo) -> _Kept:
        address = await asyncio.to_thread(self._address, instance, info)
        kept = self._kept.get(instance)
        if kept is not None and kept.machine.address == address:
            kept.info = info
            return kept
        group = self._groups.get(instance.partition("/")[0])
        capacity = group.limits.capacity if group is not None else 1
        frozen = Path(self._own.frozen_agent) if self._own.frozen_agent else None
        at_once = min(capacity, COMMANDS_AT_ONCE)
        there = f"{self._base}/{instance}" if self._base else ""
        machine = RemoteMachine(instance, address, frozen=frozen, commands_at_once=at_once, folder=there)
        known, self._kept[instance] = kept, _Kept(machine, info)
        if known is not None:
            self._kept[instance].tried_at, self._kept[instance].denied_at = known.tried_at, known.denied_at
            await known.machine.close()
        return self._kept[instance]

    def _address(self, instance: str, info: ConnectInfo) -> Address:
        """PermanentError where nothing can be dialled."""
        group = self._groups.get(instance.partition("/")[0])
        login = info.connector
        if login.protocol not in ("", "ssh"):
            raise PermanentError(f"{instance} is reached by {login.protocol}, the plugin says; only ssh is supported")
        host, port = host_and_port(info.address(use_external=group is not None and group.use_external_addr))
        pinned = self._pinned(instance)
        return Address(
            host=host,
            port=port or login.port or SSH_PORT,
            user=login.username or "root",
            key=login.key,
            password="" if login.key else login.password,
            known_hosts_file=self._own.known_hosts_file,
            host_key=pinned,
            checks_host_key=bool(pinned or self._own.known_hosts_file),
            keep_alive_seconds=min(login.keepalive_seconds or KEEP_ALIVE_SECONDS, KEEP_ALIVE_SECONDS),
        )

    def _pinned(self, instance: str) -> str:
        """The key it showed first; empty: it has shown none yet. PermanentError where that cannot be known: whoever
        answers now would be believed."""
        if self._own.known_hosts_file:
            return ""
        file, cause = self._pin_file(instance), "it is empty"
        try:
            if pinned := file.read_text(encoding="utf-8").strip():
                return pinned
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            cause = str(error)
        raise PermanentError(
            f"the host key that {instance} showed first cannot be read in {file}: {cause}; "
            "remove the file if the machine is to be trusted anew"
        )

    def _pin(self, instance: str, shown: str) -> None:
        file = self._pin_file(instance)
        if shown and not self._own.known_hosts_file and not file.exists():
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(file, f"{shown}\n".encode(), durable=True)

    def _pin_file(self, instance: str) -> Path:
        return host_key_path(self._folder, instance)


def host_and_port(address: str) -> tuple[str, int]:
    """Of `host`, `host:port`, `v6`, `[v6]` and `[v6]:port`; 0: none was given."""
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        port = rest.removeprefix(":")
    elif address.count(":") == 1:
        host, _, port = address.partition(":")
    else:
        host, port = address, ""
    if not host or (port and not (port.isascii() and port.isdigit() and int(port) < 65536)):
        raise PermanentError(f"{address!r}, which the plugin gave, is no address")
    return host, int(port or 0)
