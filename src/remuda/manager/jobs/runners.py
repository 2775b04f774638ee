"""Runners in use: configured runners with their server client and environment, and former runners of stored jobs. A
runner whose configuration changes is replaced by a new `ServedRunner`; its jobs keep the old configuration."""

import asyncio
import ssl
from collections.abc import Callable, Iterable

import msgspec

from remuda.lib.clock import Clock
from remuda.manager.config.values import RunnerConfig
from remuda.manager.core.record import JobRow
from remuda.manager.environments.port import Environment
from remuda.manager.errors import ConfigError
from remuda.manager.jobs.journal import settings_name
from remuda.manager.jobs.link import AgentLink
from remuda.manager.metrics.metrics import ManagerMetrics, RunnerLabels
from remuda.manager.polling.features import runner_info
from remuda.manager.polling.poller import Poller
from remuda.telemetry.logs import logger
from remuda.wire.http_session import HttpSession
from remuda.wire.runner_client import RunnerClient
from remuda.wire.runner_server import Server, tls_context


class ServedRunner:
    """One `[[runners]]` section of the current configuration, with its server client, environment and poller."""

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
        """Link to the only machine of the runner's environment; None if the environment's machines vary."""

    @property
    def identity(self) -> tuple[str, str]:
        """The runner's short token and server URL, which identify it in journal rows."""
        return self.config.short_token, self.client.url


class ClientFactory:
    def __init__(self, *, system_id: str, session: HttpSession, clock: Clock, metrics: ManagerMetrics) -> None:
        self._system_id = system_id
        self._session = session
        self._clock = clock
        self._metrics = metrics

    def make(self, runner: RunnerConfig, *, concurrent: int) -> RunnerClient:
        """Create the client with which a runner calls its server. It reports to the server how many jobs the runner can
        run: its `limit`, at most `concurrent`. Raises ConfigError for unusable TLS files."""
        labels = RunnerLabels(runner=runner.short_token, runner_name=runner.name, system_id=self._system_id)
        try:
            tls = None
            # Loading the machine's certificate authorities is slow, and a plain http address needs none.
            if not runner.url.startswith("http://") or runner.tls_ca_file or runner.tls_cert_file:
                tls = tls_context(
                    ca_file=runner.tls_ca_file, cert_file=runner.tls_cert_file, key_file=runner.tls_key_file
                )
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"runner {runner.name or runner.short_token}: the tls files cannot be used: {error}"
            ) from error
        server = Server(
            url=runner.url,
            session=self._session,
            clock=self._clock,
            tls=tls,
            measure=lambda call: self._metrics.measure_call(labels, call),
            on_retry=self._metrics.count_retry,
        )
        return RunnerClient(
            server,
            token=runner.token,
            system_id=self._system_id,
            info=runner_info(
                executor=runner.executor,
                has_containers=runner.may_use_containers,
                labels=runner.labels,
                capacity=min(runner.limit or concurrent, concurrent),
            ),
            load=lambda: load.for_server if (load := self._metrics.load) is not None else None,
        )


class RunnerLookup:
    """Finds the runner of a stored job, with the configuration that the runner had when it received the job."""

    def __init__(
        self,
        clients: ClientFactory,
        *,
        served: Callable[[], Iterable[ServedRunner]],
        concurrent: Callable[[], int],
    ) -> None:
        self._clients = clients
        self._served = served
        self._concurrent = concurrent
        self._former: dict[tuple[str, str, str], tuple[RunnerConfig, RunnerClient]] = {}
        self._placeholders: list[RunnerConfig] = []

    @property
    def identities(self) -> set[tuple[str, str]]:
        return {runner.identity for runner in self._served()}

    def is_placeholder(self, config: RunnerConfig) -> bool:
        """True if `config` was made up because the real one is unknown. With it a job can end, but not start."""
        return any(config is placeholder for placeholder in self._placeholders)

    def find(self, row: JobRow, settings: bytes | None) -> tuple[RunnerConfig, RunnerClient]:
        """Return configuration and server client of a job's runner. `settings` is the configuration in the journal; if
        it is None (missing) or invalid, the current one is used, or a placeholder if there is none."""
        served = next((runner for runner in self._served() if runner.identity == (row.runner, row.url)), None)
        if served is not None and (settings is None or served.settings_name == row.settings):
            return served.config, served.client
        key = row.settings, row.runner, row.url  # unknown settings have an empty name
        if key not in self._former:
            config = _read_config(settings, row)
            if config is None and served is not None:
                return served.config, served.client
            if config is None:
                config = RunnerConfig(name=row.runner_name, url=row.url, token=row.runner, executor="shell")
                self._placeholders.append(config)
            client = served.client if served is not None else self._clients.make(config, concurrent=self._concurrent())
            self._former[key] = config, client
        return self._former[key]


def _read_config(settings: bytes | None, row: JobRow) -> RunnerConfig | None:
    """Decode a configuration from the journal. Returns None if there is none or it cannot be decoded."""
    try:
        return None if settings is None else msgspec.json.decode(settings, type=RunnerConfig)
    except (msgspec.MsgspecError, ValueError) as error:
        logger("manager").error(
            "cannot read a job's stored runner settings; using the current ones, if the runner is still configured",
            job=row.job_id,
            runner=row.runner,
            cause=str(error),
        )
        return None
