"""The plugin: calls of the group, and tasks that make and remove machines.

The state is in `store`. `update` compares it with what should be and starts the missing tasks, so work that a killed
process left is continued by the next one. In memory are only tasks, at most one for each machine, and the pace of
creation. `update` reads local files only, and does not call the provider."""

import asyncio
import logging
import os
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from secrets import token_hex

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
from remuda.lib.backoff import Backoff
from remuda.lib.files import wait_for_lock
from remuda_plugin_docker_machine import program
from remuda_plugin_docker_machine.config import Config, check
from remuda_plugin_docker_machine.pacing import Pace
from remuda_plugin_docker_machine.program import Login, Ran
from remuda_plugin_docker_machine.store import TRIAL_PREFIX, Draft, Machine, Seen, Store

LOOK_SECONDS = 0.25
"""Interval between checks whether a run of docker-machine has ended."""
HALF_MADE_ATTEMPTS = 3
"""Attempts to remove a machine whose creation failed; few, because its driver often does not know what to remove."""
AGAIN = Backoff(first_seconds=5.0, ceiling_seconds=300.0)
_log = logging.getLogger("fleeting-plugin-docker-machine")


class DockerMachineGroup(Plugin[Config]):
    """A group of machines made by docker-machine."""

    name = "docker-machine"
    version = "0.1.0"
    config_type = Config

    def __init__(self) -> None:
        self._tasks = BackgroundTasks(_log)
        self._gone: set[str] = set()
        """Removed machines that `update` has not returned as deleted yet. One that is only missing would be suspect."""
        self._making: set[str] = set()

    async def init(self, config: Config, settings: Settings) -> ProviderInfo:
        check(config)
        if settings.connector.protocol not in ("", "ssh"):
            raise PermanentError(f"protocol = {settings.connector.protocol!r}: machines are reached by ssh")
        self._config = config
        self._settings = settings
        self._pace = Pace(config.create_at_once)
        self._store = Store(config.place)
        try:
            await asyncio.to_thread(self._store.prepare)
            await self._have_certificates()
        except OSError as error:
            raise PermanentError(f"storage_path = {str(config.place)!r} cannot be used: {error}") from error
        await self.update()
        return ProviderInfo(id=f"docker-machine/{config.name}", max_size=config.max_size)

    async def update(self) -> Mapping[str, InstanceState]:
        machines = await asyncio.to_thread(self._store.look_all)
        for seen in machines:
            # A marked machine is removed whoever owns it: its owner, and the process that marked it, may be gone.
            if seen.is_deleting or (seen.is_half_made and self._is_ours(seen)):
                self._tasks.begin(seen.machine.name, self._remove(seen.machine.name))
            elif seen.state is InstanceState.CREATING and self._is_ours(seen):
                self._tasks.begin(seen.machine.name, self._follow(seen.machine.name))
        shown = dict.fromkeys(self._gone, InstanceState.DELETED)
        self._gone.clear()
        return shown | {seen.machine.name: seen.state for seen in machines if self._is_ours(seen)}

    async def increase(self, count: int) -> int:
        room = self._pace.room(self._now, len(self._making))
        if count and not room:
            pause = round(self._pace.pause(self._now))
            when = f"in {pause} s" if pause else "after the one under way"
            raise TemporaryError(
                f"docker-machine could not make a machine {self._pace.failures} times in a row "
                f"({self._pace.cause}); the next attempt begins {when}"
            )
        # A cancelled caller does not stop the creation of added machines.
        work = self._increase(min(count, room))
        return await asyncio.shield(self._tasks.begin(f"increase {time.monotonic_ns()}", work))

    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        for name in instances:
            if self._store.look(name) is not None:
                await asyncio.to_thread(self._store.mark_deleting, name)
                self._tasks.begin(name, self._remove(name))
        return instances

    async def connect_info(self, instance: str) -> ConnectInfo:
        seen = self._existing(instance)
        if seen.state is not InstanceState.RUNNING:
            raise TemporaryError(f"{instance} is {seen.state}")
        login = program.read_login(self._store.machine_place(instance))
        address = await self._address(instance, login)
        connector = self._connector(instance, login)
        return ConnectInfo(connector=connector, internal_addr=address, external_addr=address)

    async def heartbeat(self, instance: str) -> None:
        seen = self._existing(instance)
        if seen.state is not InstanceState.RUNNING:
            if seen.state is InstanceState.CREATING:
                return
            raise UnhealthyError(f"{instance} is about to be removed")
        login = program.read_login(self._store.machine_place(instance))
        address = await self._address(instance, login)
        if not await answers_ssh(address, self._settings.connector.port or login.port):
            state = await program.state_of(self._config, instance)
            raise UnhealthyError(f"{instance} does not answer at {address}; docker-machine says of it: {state}")

    async def stats(self) -> GroupStats:
        return GroupStats(quota=self._config.max_size)

    async def recover(self) -> Sequence[TaggedInstance]:
        machines = await asyncio.to_thread(self._store.look_all)
        return [
            TaggedInstance(instance=seen.machine.name, owner=seen.machine.owner, created_at=seen.machine.created_at)
            for seen in machines
        ]

    async def shutdown(self) -> None:
        """Stop waiting for runs of docker-machine. The runs continue, and the next process waits for them."""
        await self._tasks.finish()

    @property
    def _now(self) -> float:
        return time.monotonic()

    def _is_ours(self, seen: Seen) -> bool:
        return (seen.machine.owner, seen.machine.group) == (self._settings.owner, self._config.name)

    def _existing(self, name: str) -> Seen:
        seen = self._store.look(name)
        if seen is None:
            raise PermanentError(f"there is no machine {name}")
        return seen

    async def _have_certificates(self) -> None:
        """Have docker-machine make the certificates of its store if they are missing, one process at a time."""
        async with wait_for_lock(self._store.place(".certificates")):
            for trial in self._store.list_trials():
                await program.run(self._config, ["rm", "-f", trial], seconds=60)
            if not self._store.has_certificates:
                await program.make_certificates(self._config, f"{TRIAL_PREFIX}{token_hex(4)}")

    async def _address(self, name: str, login: Login) -> str:
        if address := login.address or self._store.read_address(name):
            return address
        address = await program.ask_address(self._config, name)
        self._store.write_address(name, address)
        return address

    def _connector(self, name: str, login: Login) -> Connector:
        default = self._settings.connector
        connector = replace(default, os=default.os or "linux", protocol="ssh", port=default.port or login.port)
        if default.use_static_credentials:
            return connector
        try:
            key = login.key_path.read_bytes()
        except FileNotFoundError:
            # Some drivers make no keys, such as `none`.
            if not (default.key or default.password):
                raise PermanentError(
                    f"the driver made no key for {name}: set username and key_path in connector_config"
                ) from None
            return replace(connector, username=default.username or login.username or program.SSH_USER)
        except OSError as error:
            raise PermanentError(f"the key of {name}, {login.key_path}: {error.strerror}") from error
        return replace(connector, username=login.username or program.SSH_USER, password="", key=key)

    async def _increase(self, count: int) -> int:
        now = time.time()
        machines = [
            Machine(
                name=self._config.new_name(token_hex(5)),
                owner=self._settings.owner,
                group=self._config.name,
                created_at=now,
            )
            for _ in range(count)
        ]
        drafts = await asyncio.to_thread(self._store.add, machines, max_size=self._config.max_size)
        for draft in drafts:
            self._making.add(draft.machine.name)
            self._tasks.begin(draft.machine.name, self._make(draft))
        return len(drafts)

    async def _make(self, draft: Draft) -> None:
        name, config = draft.machine.name, self._config
        try:
            is_begun = await self._turn(name)
            self._pace.under_way += is_begun
            try:
                if is_begun:
                    await asyncio.to_thread(
                        program.start,
                        config,
                        program.create_words(config, name),
                        seconds=config.create_timeout,
                        folder=self._store.place(name),
                        verb="create",
                        lock=draft.lock,
                    )
            finally:
                os.close(draft.lock)
                self._pace.under_way -= is_begun
        finally:
            self._making.discard(name)
        await self._follow(name)

    async def _turn(self, name: str) -> bool:
        """Wait until the machine may be created. False if it is to be removed instead, or the plugin ends."""
        while not self._pace.may_begin(self._now):
            if not await self._tasks.rest(LOOK_SECONDS):
                return False
            if (seen := self._store.look(name)) is None or seen.is_deleting:
                return False
        return True

    async def _follow(self, name: str) -> None:
        """Wait until the machine is made, and remove it if that failed. Returns early if the plugin ends."""
        self._making.add(name)
        self._pace.under_way += 1
        try:
            while (seen := self._store.look(name)) is not None and seen.is_held:
                if not await self._tasks.rest(LOOK_SECONDS):
                    return
        finally:
            self._pace.under_way -= 1
            self._making.discard(name)
        if seen is not None and seen.state is InstanceState.RUNNING:
            self._pace.note_success()
        elif seen is not None and not self._tasks.is_ending:
            await self._remove(name)

    async def _remove(self, name: str) -> None:
        attempts = 0
        while (seen := self._store.look(name)) is not None:
            if seen.is_half_made and not seen.is_deleting:
                self._note_failed_create(seen)
                await asyncio.to_thread(self._store.mark_deleting, name)
            lock = None
            with suppress(FileNotFoundError):
                # A running create is not interrupted: the provider would make the machine, and no record would have it.
                lock = self._store.take_lock(name)
            if lock is None:
                if not await self._tasks.rest(LOOK_SECONDS):
                    return
                continue
            attempts += 1
            if cause := await self._try_remove(seen, lock, attempts):
                pause = AGAIN.delay(attempts, jitter=random.random())
                _log.warning("cannot remove machine %s; next try in %.0f s: %s", name, pause, cause)
                if not await self._tasks.rest(pause):
                    return
        self._gone.add(name)

    async def _try_remove(self, seen: Seen, lock: int, attempt: int) -> str:
        """Try once to remove a machine. `attempt`: number of this try, from 1. Closes `lock`, the descriptor of the
        machine's lock. Returns the cause of a failure, or an empty text."""
        name, config = seen.machine.name, self._config
        try:
            if not self._store.machine_place(name).exists():
                self._store.remove(name)
                return ""
            words = ["rm", "-f" if self._is_hopeless(seen, attempt) else "-y", name]
            folder = self._store.place(name)
            (folder / "rm.exit").unlink(missing_ok=True)
            await asyncio.to_thread(
                program.start, config, words, seconds=config.remove_timeout, folder=folder, verb="rm", lock=lock
            )
        finally:
            os.close(lock)
        while (now := self._store.look(name)) is not None and now.is_held:
            if not await self._tasks.rest(LOOK_SECONDS):
                return "the plugin ends"
        code = self._store.exit_code(name, "rm")
        if code == 0 and not self._store.machine_place(name).exists():
            self._store.remove(name)
            return ""
        return Ran(code=-1 if code is None else code, output=self._store.read_log(name, "rm")).cause

    def _is_hopeless(self, seen: Seen, attempt: int) -> bool:
        """True if docker-machine should forget the machine even if the provider does not remove it (`rm -f`): too many
        attempts failed, or docker-machine's files of the machine are broken."""
        name = seen.machine.name
        most = self._config.remove_attempts if seen.exit_code == 0 else HALF_MADE_ATTEMPTS
        try:
            program.read_login(self._store.machine_place(name))
        except TemporaryError:
            return True
        if attempt > most:
            _log.error(
                "giving up on machine %s after %d attempts to remove it; check whether it still exists at the provider "
                "and remove it there",
                name,
                attempt - 1,
            )
        return attempt > most

    def _note_failed_create(self, seen: Seen) -> None:
        """Log why a machine was not made. Slow down creation, but not if docker-machine was killed."""
        name = seen.machine.name
        if seen.exit_code is None:
            _log.warning("machine %s is incomplete, because its creation was killed; removing it", name)
            return
        cause = Ran(code=seen.exit_code, output=self._store.read_log(name, "create")).cause
        pause = self._pace.note_failure(cause, now=self._now, jitter=random.random())
        _log.warning("cannot create machine %s; removing it, next try in %.0f s: %s", name, pause, cause)
