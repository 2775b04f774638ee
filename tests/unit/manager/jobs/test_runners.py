"""Lookup of the runner of a journal row, also if that runner is no longer configured."""

import msgspec
import pytest
from tests.support.manager_values import a_row

from remuda.lib.clock import VirtualClock
from remuda.manager.config.values import RunnerConfig
from remuda.manager.core.record import JobRow
from remuda.manager.jobs.runners import ClientFactory, RunnerLookup
from remuda.manager.metrics.metrics import ManagerMetrics
from remuda.wire.runner_server import new_session


def runner_row(runner: str, url: str, settings: str = "") -> JobRow:
    return a_row(runner=runner, runner_name=f"the {runner}", url=url, settings=settings)


@pytest.fixture
def runners() -> RunnerLookup:
    metrics = ManagerMetrics(lambda: ())
    return RunnerLookup(
        ClientFactory(system_id="s_1", session=new_session(), clock=VirtualClock(), metrics=metrics),
        served=lambda: (),
        concurrent=lambda: 4,
    )


def test_removed_runners_are_not_confused(runners: RunnerLookup) -> None:
    rows = [runner_row("one", "http://one"), runner_row("two", "http://two"), runner_row("one", "http://two")]
    results = [runners.find(row, None) for row in rows]
    assert [client.url for _, client in results] == ["http://one", "http://two", "http://two"]
    assert [config.name for config, _ in results] == ["the one", "the two", "the one"]


def test_a_removed_runner_has_its_stored_configuration(runners: RunnerLookup) -> None:
    stored = RunnerConfig(name="old", url="http://one", token="glrt-one", executor="docker")
    row = runner_row("one", "http://one", settings="abc")
    config, client = runners.find(row, msgspec.json.encode(stored))
    assert config == stored
    assert runners.find(row, None) == (config, client)


def test_settings_that_cannot_be_decoded_are_ignored(runners: RunnerLookup) -> None:
    row = runner_row("one", "http://one", settings="abc")
    config, client = runners.find(row, b'{"limit": {"of": "another form"}}')
    assert (config.name, client.url) == ("the one", "http://one")
    assert runners.is_placeholder(config)


def test_a_stored_configuration_equal_to_a_placeholder_is_no_placeholder(runners: RunnerLookup) -> None:
    placeholder, _ = runners.find(runner_row("one", "http://one"), None)
    stored = RunnerConfig(name=placeholder.name, url=placeholder.url, token=placeholder.token, executor="shell")
    configured, _ = runners.find(runner_row("one", "http://one", "abc"), msgspec.json.encode(stored))
    assert configured == placeholder
    assert not runners.is_placeholder(configured)
    assert runners.is_placeholder(placeholder)
