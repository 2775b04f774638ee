"""Logs in to the instances (created machines) of a runner over SSH, prepares them for jobs, and checks their health.

The first host key of a machine is trusted and stored, unless known_hosts_file is configured. Connecting to a booting
machine is tried again until the configured timeout; if the machine denies the login, only for DENIED_SECONDS."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from remuda.fleeting.errors import PermanentError, TemporaryError, UnhealthyError
from remuda.fleeting.port import TIMEOUT_SECONDS, ConnectInfo
from remuda.lib.clock import Clock
from remuda.lib.files import write_whole
from remuda.manager.config.fleet_setup import autoscaler_of, host_key_path
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.remote_machine import RemoteMachine
from remuda.manager.environments.ssh import COMMANDS_AT_ONCE, KEEP_ALIVE_SECONDS, Address, SshError, SshLastingError
from remuda.taskscaler.fleet.setup import FleetSetup
from remuda.telemetry.logs import logger

DENIED_SECONDS = 10.0
"""How long a machine may deny the login: some install keys a moment after their sshd starts."""
CHECK_SECONDS = 20.0
SSH_PORT = 22


@dataclass
class _Entry:
    machine: RemoteMachine
    info: ConnectInfo
    tried_at: float | None = None
    """Time of the first login attempt."""
    denied_at: float | None = None
    disk_free_bytes: int | None = None


class Instances:
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
        """`ask` gets address and login of an instance from its plugin; it may raise TemporaryError or PermanentError.
        `folder` is for stored host keys. `base` replaces the usual folder for jobs on the machines, for tests."""
        self._ask = ask
        self._base = base
        self._folder = folder
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._log = logger("manager")
        self.change(runner, setup)

    def change(self, runner: RunnerConfig, setup: FleetSetup) -> None:
        """Set the configuration for machines that are prepared or connected from now on."""
        self._ready_command = autoscaler_of(runner).instance_ready_command
        self._own = runner.remuda
        self._groups = {group.name: group for group in setup.groups}

    async def prepare(self, instance: str, info: ConnectInfo) -> None:
        entry = await self._update(instance, info)
        now = self._clock.monotonic()
        entry.tried_at = now if entry.tried_at is None else entry.tried_at
        seconds = info.connector.timeout_seconds or TIMEOUT_SECONDS
        try:
            await self._log_in(instance, entry)
        except SshLastingError as error:
            entry.denied_at = now if entry.denied_at is None else entry.denied_at
            if now - entry.denied_at >= DENIED_SECONDS:
                raise PermanentError(str(error)) from error
            raise TemporaryError(str(error)) from error
        except SshError as error:
            if now - entry.tried_at >= seconds:
                raise PermanentError(f"no login within {seconds:.0f} s: {error}") from error
            raise TemporaryError(str(error)) from error
        try:
            await entry.machine.need_sessions()
            if self._ready_command:
                await entry.machine.command(self._ready_command, seconds=seconds)
            await entry.machine.reach()
        except SshLastingError as error:
            raise PermanentError(str(error)) from error
        except SshError as error:
            raise TemporaryError(str(error)) from error
        self._log.info("machine is ready for jobs", machine=instance, address=entry.machine.address.host)

    async def _log_in(self, instance: str, entry: _Entry) -> None:
        host_key = await entry.machine.log_in()
        entry.denied_at = None
        if not entry.machine.address.checks_host_key:
            await asyncio.to_thread(self._store_pin, instance, host_key)
            entry.machine.trust_host_key(host_key)

    async def check(self, instance: str) -> None:
        try:
            # Outside the timeout, because the plugin may be slow.
            entry = await self._find(instance)
            async with asyncio.timeout(CHECK_SECONDS):
                if not entry.machine.is_up:
                    await self._log_in(instance, entry)
                free = await entry.machine.disk_free_bytes()
        except SshError as error:
            raise UnhealthyError(str(error)) from error
        except TimeoutError:
            raise UnhealthyError(f"{instance} does not answer within {CHECK_SECONDS:.0f} s") from None
        if instance in self._entries:
            self._entries[instance].disk_free_bytes = free
        if free < (least := self._own.least_disk_bytes):
            detail = f"{free >> 20} MiB are free, and least_disk asks for {least >> 20} MiB"
            raise UnhealthyError(f"{instance}: its disk is full: {detail}")

    async def forget(self, instance: str) -> None:
        # First, because another instance of this name may come soon.
        entry = self._entries.pop(instance, None)
        self._pin_file(instance).unlink(missing_ok=True)
        if entry is not None:
            await entry.machine.close()

    async def connect(self, instance: str) -> RemoteMachine:
        """Return the machine of an instance with an open connection. If there is none, the plugin is asked for the
        address, which may have changed, and the manager logs in."""
        entry = await self._find(instance)
        if not entry.machine.is_up:
            await self._log_in(instance, entry)
        return entry.machine

    async def _find(self, instance: str) -> _Entry:
        entry = self._entries.get(instance)
        if entry is not None and entry.machine.is_up:
            return entry
        return await self._update(instance, await self._ask(instance))

    def cut(self, instance: str) -> None:
        """Abort the connection to a vanished instance, so that calls fail at once and not after a timeout."""
        if (entry := self._entries.get(instance)) is not None:
            entry.machine.abort()

    def info(self, instance: str) -> ConnectInfo | None:
        """Return the last known address and login of an instance, or None if it was not contacted yet."""
        return None if (entry := self._entries.get(instance)) is None else entry.info

    @property
    def disk_free_bytes(self) -> int | None:
        """The most free disk space of any machine; None until a health check has measured one."""
        return max(
            (entry.disk_free_bytes for entry in self._entries.values() if entry.disk_free_bytes is not None),
            default=None,
        )

    async def close(self) -> None:
        for entry in self._entries.values():
            await entry.machine.close()
        self._entries.clear()

    async def _update(self, instance: str, info: ConnectInfo) -> _Entry:
        address = await asyncio.to_thread(self._address, instance, info)
        entry = self._entries.get(instance)
        if entry is not None and entry.machine.address == address:
            entry.info = info
            return entry
        group = self._groups.get(instance.partition("/")[0])
        capacity = group.limits.capacity if group is not None else 1
        frozen = Path(self._own.frozen_agent) if self._own.frozen_agent else None
        at_once = min(capacity, COMMANDS_AT_ONCE)
        folder = f"{self._base}/{instance}" if self._base else ""
        machine = RemoteMachine(instance, address, frozen=frozen, commands_at_once=at_once, folder=folder)
        new = self._entries[instance] = _Entry(machine, info)
        if entry is not None:
            new.tried_at, new.denied_at = entry.tried_at, entry.denied_at
            await entry.machine.close()
        return new

    def _address(self, instance: str, info: ConnectInfo) -> Address:
        """Return an instance's SSH address and login. Raises PermanentError if the plugin's data cannot be used."""
        group = self._groups.get(instance.partition("/")[0])
        login = info.connector
        if login.protocol not in ("", "ssh"):
            raise PermanentError(f"the plugin says that {instance} is reached by {login.protocol}; only ssh works")
        host, port = host_and_port(info.address(use_external=group is not None and group.use_external_addr))
        pinned = self._read_pin(instance)
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

    def _read_pin(self, instance: str) -> str:
        """Return the host key of the first login; empty if none is stored, or known_hosts_file is used. Raises
        PermanentError if the file is unreadable, because no key may be trusted without a comparison then."""
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
            f"the stored host key of {instance} cannot be read from {file}: {cause}; "
            "remove the file to trust the key that the machine has now"
        )

    def _store_pin(self, instance: str, host_key: str) -> None:
        file = self._pin_file(instance)
        if host_key and not self._own.known_hosts_file and not file.exists():
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(file, f"{host_key}\n".encode(), durable=True)

    def _pin_file(self, instance: str) -> Path:
        return host_key_path(self._folder, instance)


def host_and_port(address: str) -> tuple[str, int]:
    """Return host and port of an address: `host`, `host:port`, `v6`, `[v6]` or `[v6]:port`. The port is 0 if the
    address has none. Raises PermanentError if the address is invalid."""
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        port = rest.removeprefix(":")
    elif address.count(":") == 1:
        host, _, port = address.partition(":")
    else:
        host, port = address, ""
    if not host or (port and not (port.isascii() and port.isdigit() and int(port) < 65536)):
        raise PermanentError(f"the plugin gave an invalid address of an instance: {address!r}")
    return host, int(port or 0)
