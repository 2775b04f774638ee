"""The environment of a plugin: keeps the plugin's program running, and passes the manager's calls to it.

The program is restarted with growing pauses when it ends; machines, agents and jobs outlive it. A new plugin process
first gets a call `Adopt` for every job that has a machine, which tells it that the job uses that machine. While no
plugin runs, the capacity is 0, so that no job is requested, and calls raise EnvironmentTemporaryError."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from remuda.environments.client import PluginClient
from remuda.environments.errors import ConfigurationError, LostError, PluginError, TemporaryError
from remuda.environments.handshake import HOOKS_AND_USAGE
from remuda.environments.host import EnvironmentProcess, find_plugin
from remuda.environments.values import Place
from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.lib.tasks import TaskOwner, finish_despite_cancel
from remuda.lib.waiting import first_error, wait_for_event
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.agent_greeting import NO_ANSWER, OtherProtocolError, greet
from remuda.manager.environments.port import UNKNOWN_BYTES, Hook, JobPlace, PreparedPlace, Usage
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import AgentClient

HELLO_SECONDS = 60.0
UP_SECONDS = 30.0
"""How long a call waits for a plugin that is being started."""
STEADY_SECONDS = 60.0
"""Runtime after which a plugin that ends is restarted after the shortest pause."""
_BACKOFF = Backoff(first_seconds=0.5, ceiling_seconds=60.0)


class PluginEnvironment:
    def __init__(self, runner: RunnerConfig, jobs: Path, *, clock: Clock) -> None:
        self._config = runner.remuda.environment
        self._runner = runner.name
        self._folder = jobs
        self._clock = clock
        self._log = logger("manager").bind(plugin=self._config.plugin)
        self._held: dict[str, tuple[Place, str]] = {}
        self._unreported: set[str] = set()
        """Keys of jobs with machines for which `Adopt` was not called in the running plugin process."""
        self._capacity: int | None = 0
        self._client: PluginClient | None = None
        self._process: EnvironmentProcess | None = None
        self._version = 0
        self._cause = "it is being started"
        self._up = asyncio.Event()
        self._keeper = TaskOwner()
        """The task that keeps the plugin running."""
        self._releases = TaskOwner()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._up.is_set() else None

    def capacity(self) -> int | None:
        self._keep()
        return self._capacity

    async def acquire(self, place: JobPlace) -> str:
        held = self._held.get(place.key)
        if held is not None:
            return held[1]
        request = _plugin_place(place)
        client = await self._plugin()
        try:
            with self._errors():
                machine = await client.acquire(request)
        except asyncio.CancelledError:
            # The plugin may have assigned a machine already.
            self._give_up(client, request)
            raise
        self._held[place.key] = (request, machine)
        return machine

    def adopt(self, place: JobPlace, machine: str) -> None:
        self._take(place, machine)
        self._keep()

    async def prepare(self, place: JobPlace, machine: str) -> PreparedPlace:
        client = await self._plugin(place, machine)
        with self._errors():
            prepared = await client.prepare(_plugin_place(place), machine)
        if place.clone_path and not prepared.work_dir.endswith(f"/{place.clone_path}"):
            raise EnvironmentLostError(
                f"GIT_CLONE_PATH: the plugin {self._config.plugin} does not let jobs choose their folder; remove the "
                "variable, or use a newer plugin"
            )
        return PreparedPlace(work_dir=prepared.work_dir, builds_dir=prepared.builds_dir, cache_dir=prepared.cache_dir)

    async def run_hook(self, hook: Hook, place: JobPlace, machine: str) -> str:
        if not place.command_of(hook):
            return ""
        client = await self._plugin(place, machine)
        if self._version < HOOKS_AND_USAGE:
            raise EnvironmentLostError(
                f"the runner's {hook} cannot run: the plugin speaks protocol version {self._version}, hooks came with "
                f"{HOOKS_AND_USAGE}; use a newer plugin, or remove {hook}"
            )
        call = client.before if hook == "before_job" else client.after
        with self._errors():
            return await call(_plugin_place(place), machine)

    async def connect(self, machine: str) -> AgentClient:
        plugin = await self._plugin()
        with self._errors():
            tunnel = await plugin.connect(machine)
        client = AgentClient(tunnel)
        try:
            await greet(client, seconds=HELLO_SECONDS)
        except NO_ANSWER as error:
            raise EnvironmentTemporaryError(f"{machine}: the agent does not answer: {error}") from error
        except OtherProtocolError as error:
            raise EnvironmentTemporaryError(f"{machine}: {error}") from error
        return client

    async def recover(self) -> Sequence[str]:
        client = await self._plugin()
        with self._errors():
            return await client.recover()

    async def usage(self, folders: Sequence[str] = ()) -> Usage:
        client = await self._plugin()
        if self._version < HOOKS_AND_USAGE:
            return Usage(disk_free_bytes=UNKNOWN_BYTES)
        with self._errors():
            return Usage(disk_free_bytes=await client.usage())

    async def clean_up(self, place: JobPlace, machine: str) -> None:
        client = await self._plugin(place, machine)
        with self._errors():
            await client.clean_up(_plugin_place(place), machine)
        self._held.pop(place.key, None)
        self._unreported.discard(place.key)

    async def close(self) -> None:
        await self._releases.wait()
        await self._keeper.close()

    def _give_up(self, client: PluginClient, place: Place) -> None:
        async def release() -> None:
            with suppress(TemporaryError, LostError, ConfigurationError):
                await client.clean_up(place, "")

        self._releases.start(release(), name=f"job {place.key}: release")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        name = self._config.plugin
        try:
            yield
        except LostError as error:
            raise EnvironmentLostError(str(error)) from error
        except (TemporaryError, ConfigurationError) as error:
            raise EnvironmentTemporaryError(f"plugin {name}: {error}") from error

    def _take(self, place: JobPlace, machine: str) -> None:
        if place.key not in self._held:
            self._held[place.key] = (_plugin_place(place), machine)
            self._unreported.add(place.key)

    async def _plugin(self, place: JobPlace | None = None, machine: str = "") -> PluginClient:
        """Return the client of the running plugin, after telling it (`Adopt`) about jobs with machines that it does not
        know yet, and about `place` on `machine`. Raises EnvironmentTemporaryError after UP_SECONDS."""
        if place is not None:
            self._take(place, machine)
        self._keep()
        await wait_for_event(self._up, within_seconds=UP_SECONDS)
        client = self._client
        if client is None:
            raise EnvironmentTemporaryError(f"the plugin {self._config.plugin} does not run: {self._cause}")
        with self._errors():
            await self._report_jobs(client)
        return client

    async def _report_jobs(self, client: PluginClient) -> None:
        for key in list(self._unreported):
            try:
                await client.adopt(*self._held[key])
            except LostError as error:
                # `connect` raises the same error, which ends the jobs of the machine.
                self._log.warning(
                    "plugin does not have the job's machine any more; the job fails", job=key, cause=str(error)
                )
            self._unreported.discard(key)

    def _keep(self) -> None:
        self._keeper.start_once(self._keep_running(), name=f"plugin {self._config.plugin}")

    async def _keep_running(self) -> None:
        failures = 0
        while True:
            started = self._clock.monotonic()
            try:
                await self._run_once()
            except (PluginError, TemporaryError, LostError, ConfigurationError) as error:
                cause = str(error)
            failures = 1 if self._clock.monotonic() - started > STEADY_SECONDS else failures + 1
            pause = _BACKOFF.delay(failures, jitter=random.random())
            if cause != self._cause or failures == 1:
                self._log.error(
                    "environment plugin ended or cannot be started; starting it again after a pause",
                    cause=cause,
                    pause_seconds=round(pause, 1),
                )
            self._cause = cause
            await self._clock.sleep(pause)

    async def _run_once(self) -> None:
        """Start the plugin, and update the capacity with its reports until it ends. Always ends with an error."""
        process = EnvironmentProcess(find_plugin(self._config.plugin), say=self._log.info)
        client: PluginClient | None = None
        try:
            self._version = await process.start()
            client = PluginClient(process)
            folder = self._make_folder()
            config = msgspec.to_builtins(self._config.config)
            await client.open(config, version=self._version, folder=folder, runner=self._runner)
            self._unreported = set(self._held)
            await self._report_jobs(client)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._until_ended(process), name=f"end of plugin {self._config.plugin}")
                async for capacity in client.watch():
                    self._capacity = capacity
                    self._process, self._client = process, client
                    self._up.set()
        except* (PluginError, TemporaryError, LostError, ConfigurationError) as errors:
            raise first_error(errors) from None
        finally:
            self._up.clear()
            self._client, self._capacity = None, 0
            if client is not None:
                client.close()
            # Not cancelled when the environment is closed: somebody has to wait for the process.
            await finish_despite_cancel(process.close(), name=f"end of plugin {self._config.plugin}")

    def _make_folder(self) -> Path:
        folder = self._folder / "plugin"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PluginError(f"the plugin's folder {folder} cannot be created: {error.strerror}") from error
        return folder

    async def _until_ended(self, process: EnvironmentProcess) -> None:
        await process.ended.wait()
        raise PluginError(f"{process.program} has ended")


def _plugin_place(place: JobPlace) -> Place:
    values = msgspec.structs.asdict(place)
    del values["manager"], values["clone_path"], values["is_protected"], values["may_have_begun"]
    return Place(**values, folder=place.folder)
