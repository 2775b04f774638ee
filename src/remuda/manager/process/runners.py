"""A configured runner at work: its configuration, its way to the server, its environment, and who asks for its jobs.

A runner whose configuration changes is replaced by another one; jobs keep what they began with.
"""

import asyncio
import ssl
from collections.abc import Iterable

import msgspec

from remuda.lib.clock import Clock
from remuda.manager.config.load import RunnerConfig
from remuda.manager.environments.port import Environment
from remuda.manager.errors import ConfigError
from remuda.manager.jobs.journal import JobRow, settings_name
from remuda.manager.jobs.link import AgentLink
from remuda.manager.metrics.metrics import ManagerMetrics, RunnerLabels
from remuda.manager.polling.features import runner_info
from remuda.manager.polling.poller import Poller
from remuda.telemetry.logs import logger
from remuda.wire.http_session import HttpSession
from remuda.wire.runner_client import RunnerClient
from remuda.wire.runner_server import tls_context


class ServedRunner:
    """One `[[runners]]`."""

    __slots__ = ("client", "config", "environment", "link", "poller", "settings", "settings_name", "task")

    def __init__(self, config: RunnerConfig, client: RunnerClient, environment: Environment) -> None:
        self.config = config
        self.client = client
        self.environment = environment
        self.settings = msgspec.json.encode(config)
        self.settings_name = settings_name(self.settings)
        self.poller: Poller | None = None
        self.task: asyncio.Task[None] | None = None
        self.link: AgentLink | None = None
        """To the one machine of its environment, where there is only one."""

    @property
    def identity(self) -> tuple[str, str]:
        """What rows of the journal name it by."""
        return self.config.short_token, self.client.url


class Clients:
    """Makes ways to servers."""

    def __init__(self, *, system_id: str, session: HttpSession, clock: Clock, metrics: ManagerMetrics) -> None:
        self._system_id = system_id
        self._session = session
        self._clock = clock
        self._metrics = metrics

    def make(self, runner: RunnerConfig, *, concurrent: int) -> RunnerClient:
        """ConfigError when the files it needs cannot be used."""
        labels = RunnerLabels(runner=runner.short_token, runner_name=runner.name, system_id=self._system_id)
        try:
            tls = None
            # Reading all authorities of the machine takes a while, and a plain address needs none.
            if not runner.url.startswith("http://") or runner.tls_ca_file or runner.tls_cert_file:
                tls = tls_context(
                    ca_file=runner.tls_ca_file, cert_file=runner.tls_cert_file, key_file=runner.tls_key_file
                )
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"runner {runner.name or runner.short_token}: the tls files cannot be used: {error}"
            ) from error
        return RunnerClient(
            url=runner.url,
            token=runner.token,
            system_id=self._system_id,
            info=runner_info(
                executor=runner.executor,
                labels=runner.labels,
                capacity=min(runner.limit or concurrent, concurrent),
            ),
            session=self._session,
            clock=self._clock,
            tls=tls,
            measure=lambda call: self._metrics.measured(labels, call),
            on_retry=self._metrics.retried,
            load=lambda: load.told if (load := self._metrics.load) is not None else None,
        )


class Takers:
    """The runners that took jobs of the journal: as they were configured then, also when they are not any more."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._gone: dict[tuple[str, str, str], tuple[RunnerConfig, RunnerClient]] = {}
        self._stand_ins: list[RunnerConfig] = []

    def knows(self, config: RunnerConfig) -> bool:
        """Whether somebody wrote it; what is made up for a runner that is gone can end a job and not begin one."""
        return not any(config is one for one in self._stand_ins)

    def of(
        self, row: JobRow, settings: bytes | None, *, served: Iterable[ServedRunner], concurrent: int
    ) -> tuple[RunnerConfig, RunnerClient]:
        """Who ends this job; `settings` are those that the journal has for it."""
        now = next((one for one in served if one.identity == (row.runner, row.url)), None)
        if now is not None and (settings is None or now.settings_name == row.settings):
            return now.config, now.client
        key = row.settings, row.runner, row.url  # settings that nobody knows have no name
        if key not in self._gone:
            config = _read(settings, row)
            if config is None and now is not None:
                return now.config, now.client
            if config is None:
                config = RunnerConfig(name=row.runner_name, url=row.url, token=row.runner, executor="shell")
                self._stand_ins.append(config)
            client = now.client if now is not None else self._clients.make(config, concurrent=concurrent)
            self._gone[key] = config, client
        return self._gone[key]


def _read(settings: bytes | None, row: JobRow) -> RunnerConfig | None:
    """A runner as the journal has it; None: it has not, or in a form that nobody knows."""
    try:
        return None if settings is None else msgspec.json.decode(settings, type=RunnerConfig)
    except (msgspec.MsgspecError, ValueError) as error:
        logger("manager").error("a runner's settings in the journal cannot be read", job=row.job_id, cause=str(error))
        return None
